"""Whom a call depends on within a session, and why it failed there, in band or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from collector.step import Kind, Outcome
from detectors.errors import ErrorClass, Verdict, classify, is_transient

if TYPE_CHECKING:
    from detectors.reading import Reading

MAX_CHARS: Final = 120
_IN_BAND_CHARS: Final = 200
_HEAD_CHARS: Final = 60
_HOST: Final = re.compile(r"\s*[a-z][a-z0-9+.-]{1,15}://(?:[^/@\s]*@)?([^/?#\s]{1,100})", re.IGNORECASE)
_IN_BAND: Final = re.compile(
    r"\b(?:429|50[0234]|529)\b|time[d -]?\s?out|too many (?:requests|tokens)|rate.?limit"
    r"|unavailable|overloaded"
    r"|(?:connection|connect|network|upstream)[ _]?(?:connect )?(?:refused|reset|error|aborted|closed|failed)"
    r"|failed to connect|not connected|bad gateway|socket hang up|econn",
)

_SERVER: Final = re.compile(
    r"(?:status|code|http|error|failed)[\w\s\"':=/.,-]{0,20}\b5\d\d\b|^\W*5\d\d\b|upstream|connect error"
    r"|network[ _]error|internal server error",
)
_UNSURE: Final = frozenset({ErrorClass.UNKNOWN, ErrorClass.TOOL_BUG, ErrorClass.APPLICATION})


def endpoint_of(reading: Reading) -> str:
    """Whom a call depends on: the server if one is told, the host of a URL, the shell operation, the tool.

    Finer than `Reading.target` where no server is told: one fetching tool asks many hosts, one shell runs
    many
    programs, and the failures of one say nothing of the others. Empty for steps that ask nobody.
    """
    step = reading.step
    if step.kind is not Kind.TOOL_CALL or step.target:
        return reading.target[:MAX_CHARS]
    host = _host_in(step.arguments)
    if host:
        return host
    operation = reading.operation
    return operation if ":" in operation else reading.target[:MAX_CHARS]


def is_local(endpoint: str, reading: Reading) -> bool:
    """Tell whether an endpoint is a program that a shell runs: what was edited may change what it does."""
    return reading.step.target is None and endpoint == reading.operation and ":" in endpoint


def failure_of(reading: Reading) -> Verdict | None:
    """Why a call did not do its work; None when it did, or when that was not recorded.

    A short result that begins as a transient error does is one, whatever the outcome says: a shell whose
    `curl` brought a 503 ends with exit code 0.
    """
    verdict = reading.verdict
    if verdict is not None:
        return verdict
    step = reading.step
    result = step.result
    if not result or len(result) > _IN_BAND_CHARS or step.outcome is Outcome.DENIED:
        return None
    if _IN_BAND.search(result[:_HEAD_CHARS].lower()) is None:
        return None
    verdict = classify(result, tool=step.tool)
    return verdict if may_go_away(verdict, result) else None


def may_go_away(verdict: Verdict, text: str) -> bool:
    """Tell whether a failure says that whoever was asked is in trouble, not who asks.

    Wider than a transient class: a bare 500 may be a bug that stays, but to ask again at once is no cure
    either.

    >>> text = "request invalid, data error. status_code=500"
    >>> may_go_away(classify(text), text), may_go_away(classify("no such file"), "no such file")
    (True, False)
    """
    if is_transient(verdict):
        return True
    return verdict.error_class in _UNSURE and _SERVER.search(text[:_IN_BAND_CHARS].lower()) is not None


def _host_in(arguments: object) -> str:
    if not isinstance(arguments, Mapping):
        return ""
    for value in arguments.values():
        if isinstance(value, str):
            found = _HOST.match(value)
            if found is not None:
                return found[1].lower()
    return ""
