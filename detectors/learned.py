"""What a call taught: nothing, an answer that looks like a failure, or an error that is nobody's fault."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from detectors.failing_set import FailingSet, failing_set_in
from detectors.result_text import is_error, is_opaque
from detectors.role import Role, words
from detectors.tool_role import role_of_name

if TYPE_CHECKING:
    from detectors.reading import Reading

_EMPTY_CHARS: Final = 160
_LONG_CHARS: Final = 16
_SEARCHES: Final = words("grep egrep fgrep rg ag diff cmp test [ which pgrep find")
_CHECKERS: Final = words(
    """
    pytest py.test unittest nose2 tox nox pylint flake8 ruff mypy pyright bandit black isort eslint tsc jest
    vitest mocha playwright npm yarn pnpm npx go cargo mix rspec rake make ctest phpunit mvn gradle dotnet
    shellcheck golangci-lint rubocop runtests.py manage.py
    """
)
_UNSETTLED: Final = re.compile(
    r"(?im)^[^\w\n]{0,40}"
    r"(?:error|fail(?:ed|ure)?|traceback|exception|mismatch|wrong|bug|\w{0,60}(?:error|exception))"
    r"\b[^\w\n]{0,8}[:!(]"
)
_REPORT: Final = re.compile(
    r"(?i)\b(?:build failed|compil(?:ation|e|er) (?:failed|errors?)|(?:does|did|could) not compile)\b"
)
_TESTS: Final = re.compile(r"(?i)test|check|lint|build|compile|verify|validate")
_REPORT_CHARS: Final = 2000
_NO_SUCH_TOOL: Final = re.compile(
    r"(?i)\b(?:unknown|no such|unrecognized|invalid) (?:tool|command|function)\b"
    r"|\b(?:tool|command|function)\b.{0,80}"
    r"\b(?:not found|does not exist|is not (?:available|registered|known|defined))"
)
_COORDINATES: Final = words("x y coordinate coordinates position")
_EMPTY_OBJECT: Final = re.compile(
    r"""\{\s*(?:"[^"]{1,40}"\s*:\s*(?:\[\s*\]|\{\s*\}|null|0|""|false)\s*(?:,\s*|(?=\})))+\}$"""
)
_EMPTY: Final = re.compile(
    r"(?i)[\W_]*(?:null|none|nil|empty|undefined|n/?a)?[\W_]*$"
    r"|.*\b(?:no|0|zero|not any|nothing|without)\b[^.\n]{0,40}\b(?:match\w*|results?|rows?|records?"
    r"|files?|hits?|items?|entries|documents?|occurrences?|data|found)\b"
    r"|.*\b(?:nothing|not|none|couldn't be|could not be) found\b|.*\bis empty\b",
)


def is_empty(body: str | None) -> bool:
    """Tell whether a result says that there is nothing.

    >>> [is_empty(text) for text in ("[]", "no matches", "Found 0 results for 'x'", "Error: not found")]
    [True, True, True, False]
    >>> is_empty('{"hits": [], "total": 0}'), is_empty('{"hits": [7], "next": null}')
    (True, False)
    """
    if body is None or len(body) > _EMPTY_CHARS or is_error(body):
        return False
    text = body.strip()
    if text[:1] == "{" and _EMPTY_OBJECT.match(text) is not None and ("[" in text or "null" in text):
        return True
    return _EMPTY.match(text) is not None


def teaches_nothing(reading: Reading, *, nothing: bool) -> bool:
    """Whether a result tells that nothing was learned: no acknowledgement of a change, no short answer."""
    if reading.body is None or (reading.role is Role.CHANGE and not has_coordinates(reading)):
        return False
    return nothing or (len(reading.body) >= _LONG_CHARS and not is_opaque(reading.body))


def is_unsettled(reading: Reading) -> bool:
    """Whether a run that did not fail says on a line of its own that something is wrong."""
    return reading.body is not None and _UNSETTLED.search(reading.body) is not None


def reported(reading: Reading) -> FailingSet | None:
    """What a call that did not fail itself says fails: a checker's run, or a change that was checked at once.

    None when it says nothing of the kind. Who reads a file full of failures has none.
    """
    body, tool = reading.body, reading.step.tool or ""
    if not body or reading.role is Role.LOOK:
        return None
    if role_of_name(tool) is None:
        if _program(reading) not in _CHECKERS:
            return None
    elif reading.role is not Role.CHANGE and not _TESTS.search(tool):
        return None
    found = failing_set_in(body)
    if found.wrong or _REPORT.search(body[:_REPORT_CHARS]) is not None:
        return found
    return None


def goes_away(reading: Reading) -> bool:
    """Whether an error may go away by itself: then other arguments are not what it asks for."""
    verdict = reading.verdict
    return verdict is not None and verdict.retry and not verdict.change_arguments


def is_answer(reading: Reading) -> bool:
    """Whether a shell's failure is what its program found: checkers and searches fail by design."""
    if role_of_name(reading.step.tool or "") is not None:
        return False
    program = _program(reading)
    if program in _SEARCHES:
        return not reading.error_text.strip() or is_empty(reading.error_text)
    return program in _CHECKERS and failing_set_in(reading.error_text).wrong is not None


def _program(reading: Reading) -> str:
    """What a shell runs; empty when that cannot be told."""
    tool, operation = reading.step.tool or "", reading.operation
    return "" if operation == tool else operation.removeprefix(f"{tool}:").partition(" ")[0]


def is_invented(reading: Reading) -> bool:
    """Whether an error says that there is no such tool. What a shell does not find is a program."""
    tool, text = reading.step.tool or "", reading.error_text[: _EMPTY_CHARS * 2]
    return tool in text and role_of_name(tool) is not None and _NO_SUCH_TOOL.search(text) is not None


def has_coordinates(reading: Reading) -> bool:
    """Whether a call is about a spot on a screen."""
    arguments = reading.step.arguments
    return isinstance(arguments, Mapping) and not _COORDINATES.isdisjoint(arguments)
