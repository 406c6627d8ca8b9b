"""What in a result that was reported as a success says that it failed.

Only what speaks of the call itself counts: a file that was read may be full of errors, and a list of them may
be what was asked for. So a text has to be short, or to be an envelope that says so (`isError`, `"success":
false`, a status of 400 or more), or an error page. Envelopes are opened first: frameworks and middle servers
wrap the real result, and with it the flag, as text in a text.

Source: real results: 6.8 % of MCP calls and 38 % of wrapped API calls are reported as
successes and are none (tests/testdata/errors, `reported_ok`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from detectors.role import Role

SHORT_CHARS: Final = 400
ENVELOPE_CHARS: Final = 16_384
WORDS_CHARS: Final = 100

_HEAD_CHARS = 1200
_DEPTH = 4
_FEW_LINES = 2
_FEW_FIELDS = 6
_HTTP_STATUSES = range(400, 600)


def _any_of(*patterns: str) -> str:
    return "|".join(patterns)


_BEGINS = re.compile(
    r"\W{0,4}(?:"
    + _any_of(
        r"[\w.]{0,40}(?:error|exception)\b(?!s?\s*(?:log|handling|handler|message|code|rate|budget|count))",
        r"traceback \(most recent",
        r"(?:request|call|query|command|operation|tool(?: call)?|search|fetch|download|upload)"
        r" (?:failed|timed out|was (?:rejected|denied|blocked))",
        r"failed to \w+|failure:|fatal:|could(?:n't| not) \w+|unable to \w+|cannot \w+|can't \w+",
        r"access (?:is )?denied|permission denied|forbidden\b|unauthori[sz]ed\b|not authori[sz]ed",
        r"authentication (?:is )?(?:required|failed)|invalid \w+|unrecogni[sz]ed \w+",
        r"unknown (?:tool|command|function|option)|no such (?:file|directory|table|column|command|tool|user)",
        r"internal server error|bad (?:request|gateway)|service unavailable|gateway time-?out",
        r"too many requests|rate limit|quota exceeded|missing (?:required|parameter|argument)|page not found",
        r"(?:http(?:/[\d.]+)? |(?:http )?(?:status|error)(?: code)?:? )[45]\d\d\b",
        r"[45]\d\d[ :-]{1,3}"
        r"(?:bad request|unauthori|forbidden|not found|too many|internal|bad gateway|service)",
    )
    + ")",
    re.IGNORECASE,
)
_SAYS = re.compile(
    _any_of(
        r"\btimed out\b|\btimeout (?:exceeded|reached|after)\b|\bdoes(?: not|n't) exist\b",
        r"\bcould not be (?:found|loaded|opened|read|parsed|reached|resolved)\b",
        r"\b(?:is|was|were) not found\b|^[^.\n]{0,80}\bnot found\W*$",
        r"\bapi key (?:is )?(?:required|missing|invalid)|\bno (?:api )?key was provided",
        r"\bauthentication required\b|\binvalid (?:api )?key\b|\bnot subscribed to this api\b",
        r"\bmust be (?:an? )?(?:integer|number|string|valid|positive|boolean|array|object|list|one of)\b",
        r"\bis (?:currently )?not (?:currently )?"
        r"(?:loaded|open|connected|available|supported|allowed|permitted|running)\b",
        r"\bno \w+ is (?:currently )?(?:loaded|open|connected|selected|active)\b",
        r"\brate limit(?:ed)? (?:exceeded|reached|hit)|\bexceeded (?:your|the) (?:quota|rate|limit)",
        r"\bsyntax error\b|\bconnection (?:refused|reset|closed|timed out)\b|\bcommand not found\b",
    ),
    re.IGNORECASE,
)
_NOTHING_WRONG = re.compile(
    r"\b(?:0|no|zero) (?:\w+ )?(?:errors?|failures?|problems?|issues?)\b"
    r"|\bsuccess(?:fully)?\b|\bpassed\b|\bfixed\b",
    re.IGNORECASE,
)
_SHELL_SAYS = re.compile(
    r"(?:/bin/)?(?:ba|z|da)?sh: (?:line \d+: |\d+: )?\S+: (?:command )?not found"
    r"|[\w./+-]{1,40}: (?:[^\n]{0,120}: )?(?:"
    + _any_of(
        r"no such file or directory|permission denied|command not found|not found|cannot [^\n]{1,120}",
        r"can't open file[^\n]*|invalid option[^\n]*|unrecognized (?:option|argument)s?[^\n]*",
        r"is a directory|not a git repository[^\n]*",
    )
    + ")",
    re.IGNORECASE,
)
_PAGE = re.compile(r"\s*(?:<!doctype html|<html|<\?xml[^>]*>\s*<html)", re.IGNORECASE)
_PAGE_SAYS = re.compile(
    r"<(?:title|h1)[^>]*>[^<]{0,80}(?:\b[45]\d\d\b|not found|forbidden|access denied|error|unavailable"
    r"|bad gateway|just a moment|attention required|are you (?:a )?(?:human|robot)|captcha|time-?out)",
    re.IGNORECASE,
)
_CUT = re.compile(r"(?:\.{3}|…|truncated\W*|omitted\W*)\s*$", re.IGNORECASE)

_FLAGS = ("isError", "is_error", "iserror")
_SUCCESS_FLAGS = ("success", "ok", "succeeded")
_ERROR_KEYS = ("error", "errors", "exception", "error_message", "errorMessage", "err")
_NO_ERROR = frozenset({"none", "null", "false", "0", "no error", "[]", "{}", ""})
_STATUS_KEYS = ("statusCode", "status_code", "httpStatus", "http_status", "code", "status")
_BAD_STATUS = frozenset({"error", "failed", "failure", "fail", "denied", "unauthorized", "forbidden"})
_INNER = (
    *("response", "result", "content", "text", "data", "output"),
    *("message", "msg", "detail", "body", "structuredContent"),
)
CUT_AT: Final = frozenset(
    {256, 500, 512, 1000, 1024, 2000, 2048, 4000, 4096, 5000, 8000, 8192, 10_000, 16_000, 16_384}
)


@dataclass(frozen=True, slots=True)
class SoftFailure:
    """Why a success is none: the `rule` that says so, and the words that it rests on."""

    rule: str
    words: str


def soft_failure_in(result: str, role: Role, *, shell: bool = False) -> SoftFailure | None:
    r"""Return what in a result says that the call failed, None when nothing does.

    What a `shell` prints is mostly the program's own: only a line or two count there, and no traceback, which
    a script may print on purpose.

    >>> soft_failure_in('{"error": "", "response": "Forbidden"}', Role.LOOK).rule
    'error text'
    >>> soft_failure_in('[{"type": "text", "text": "{\\"isError\\": true}"}]', Role.LOOK).rule
    'error flag'
    >>> soft_failure_in("Tool call timed out.", Role.OTHER).rule
    'error text'
    >>> soft_failure_in("Error handling is described in chapter 3.", Role.LOOK) is None
    True
    """
    if role is Role.THINK:
        return None
    if shell:
        return _in_shell_text(result.strip()) if len(result) <= SHORT_CHARS else None
    return _judged(result[: ENVELOPE_CHARS + 1])


@lru_cache(maxsize=1024)
def _judged(text: str) -> SoftFailure | None:
    """What `soft_failure_in` returns; remembered for a while, because loops bring the same text again."""
    head = text.lstrip()[:1]
    if head and head in "{[":
        return _in_envelope(text)
    if head == "<" and _PAGE.match(text) is not None:
        found = _PAGE_SAYS.search(text[:_HEAD_CHARS])
        return SoftFailure("error page", found.group()[:WORDS_CHARS]) if found is not None else None
    return _in_text(text.strip())


def _in_shell_text(text: str) -> SoftFailure | None:
    """What a shell itself, or what stands in front of it, says in a line or two."""
    if _SHELL_SAYS.fullmatch(text) is not None:
        return SoftFailure("shell error", text[:WORDS_CHARS])
    found = _BEGINS.match(text) if text.count("\n") < _FEW_LINES else None
    if found is None or text.startswith("Traceback") or _NOTHING_WRONG.search(text) is not None:
        return None
    return SoftFailure("error text", text[:WORDS_CHARS])


def _in_text(text: str) -> SoftFailure | None:
    """What a text says of the call: a short one, or a traceback from its beginning on."""
    if len(text) > SHORT_CHARS:
        broke = text.startswith("Traceback (most recent call last)")
        return SoftFailure("traceback", text[:WORDS_CHARS]) if broke else None
    if _SHELL_SAYS.fullmatch(text) is not None:
        return SoftFailure("shell error", text[:WORDS_CHARS])
    found = _BEGINS.match(text)
    if found is None and text.count("\n") <= _FEW_LINES:
        found = _SAYS.search(text)
    if found is None or _NOTHING_WRONG.search(text) is not None:
        return None
    return SoftFailure("error text", text[:WORDS_CHARS])


def _in_envelope(text: str) -> SoftFailure | None:
    """What a JSON text says, or a Python one."""
    if len(text) > ENVELOPE_CHARS:
        return None
    read = _read(text)
    if read is not None:
        return _in_value(read, 0)
    return SoftFailure("truncated JSON", text[-WORDS_CHARS:]) if _is_cut(text) else None


def _read(text: str) -> Any:  # noqa: ANN401 - JSON
    """The value that a text spells, None when it spells none."""
    try:
        return orjson.loads(text)
    except ValueError:
        if "'" not in text or len(text) > _HEAD_CHARS:
            return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _is_cut(text: str) -> bool:
    """Whether a JSON text ends before its time, and not because whoever recorded it cut it."""
    stripped = text.strip()
    if len(text) in CUT_AT or _CUT.search(stripped) is not None:
        return False
    return stripped.startswith(('{"', '[{"', '["')) and stripped[-1] not in "]}" and "\n" not in stripped


def _in_value(read: Any, depth: int) -> SoftFailure | None:  # noqa: ANN401 - JSON
    if depth > _DEPTH:
        return None
    if isinstance(read, str):
        inner = read.strip()
        if inner and inner[0] in "{[":
            value = _read(inner)
            return None if value is None or isinstance(value, str) else _in_value(value, depth + 1)
        return _in_text(inner)
    if isinstance(read, list):
        # A list is an answer; only the one part of a wrapped one speaks for the call.
        part = read[0] if len(read) == 1 else None
        wrapped = isinstance(part, Mapping) and ("type" in part or any(flag in part for flag in _FLAGS))
        return _in_value(part, depth + 1) if wrapped else None
    return _in_object(read, depth) if isinstance(read, Mapping) else None


def _in_object(read: Mapping[Any, Any], depth: int) -> SoftFailure | None:
    """What an object says by its own fields, else what it holds."""
    for flag in _FLAGS:
        if read.get(flag) is True:
            return SoftFailure("error flag", flag)
    for flag in _SUCCESS_FLAGS:
        if read.get(flag) is False:
            return SoftFailure("error flag", f"{flag}: false")
    for key in _ERROR_KEYS:
        told = read.get(key)
        if told and told is not True and str(told).strip().lower() not in _NO_ERROR:
            return SoftFailure("error field", f"{key}: {told}"[:WORDS_CHARS])
    if len(read) <= _FEW_FIELDS:  # with more, it is a record of something that has a status
        for key in _STATUS_KEYS:
            if _is_bad_status(key, read.get(key)):
                return SoftFailure("error status", f"{key}: {read[key]}"[:WORDS_CHARS])
    return _in_inner(read, depth)


def _is_bad_status(key: str, said: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(said, str) and said.isdigit():
        said = int(said[:4])
    if isinstance(said, int) and not isinstance(said, bool):
        return said in _HTTP_STATUSES
    return key == "status" and isinstance(said, str) and said.lower() in _BAD_STATUS


def _in_inner(read: Mapping[Any, Any], depth: int) -> SoftFailure | None:
    """What an envelope holds; it is one when hardly anything else is in it."""
    told = [key for key, value in read.items() if value not in ("", None, [], {})]
    inner = [key for key in _INNER if key in told]
    if len(told) - len(inner) > _FEW_LINES:
        return None
    for key in inner:
        found = _in_value(read[key], depth + 1)
        if found is not None:
            return found
    return None
