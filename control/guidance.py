"""What a stopped agent and its people are told.

The text for the model is built from the tool's name and counts only, never from what tools returned or
from arguments: those are written by others and could carry instructions. It says what is stuck, how
often, and what to do instead, because an unexplained refusal is retried.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from control.action import Action
from control.scope import Scope

if TYPE_CHECKING:
    from detectors.protocol import Finding

MAX_HUMAN_TEXT: Final = 2000
_MAX_TOOL_NAME: Final = 80
_UNUSUAL: Final = re.compile(r"[^\w.:/\-]+")
_WHAT: Final = {
    "doom_loop": "was called {n} times in the same way and brought back nothing new",
    "flail": "failed {n} times in the same way while only its arguments were varied",
    "retry_storm": "was retried {n} times against a target that keeps failing",
    "known_dead_call": "was called {n} times although its failure is permanent",
    "duplicate_side_effect": "caused the same effect {n} times",
    "budget": "was in use when the budget of this run was spent",
    "cascade": "failed {n} times because of one earlier failure",
}
_WHAT_ELSE: Final = "made no progress in {n} steps"
_DENY: Final = (
    "Do not call it again with these or similar arguments. Use what you already know, take another approach "
    "or another tool, or, if there is none, say what is blocking you and ask for help."
)
_HALT: Final = (
    "This run has been stopped. Do not call any more tools. Finish now: say what you were trying to do, what "
    "you tried, and what is blocking you, so that a person can take over."
)


def for_model(finding: Finding, scope: Scope, action: Action) -> str:
    """Say to the model what is stuck, how often, and what to do instead.

    >>> from detectors.protocol import Finding, Severity
    >>> stuck = Finding(id="a", kind="doom_loop", severity=Severity.CRITICAL, session_id="s", started_at=0,
    ...     detected_at=0, occurrences=6, summary="", tool="fetch_page")
    >>> for_model(stuck, Scope(session="s", tool="fetch_page"), Action.DENY)[:62]
    "Stopped by Recloser: the tool 'fetch_page' was called 6 times "
    """
    tool = scope.tool or finding.tool
    if tool:
        what = f"the tool '{_plain(tool)}' {_WHAT.get(finding.kind, _WHAT_ELSE)}"
    else:
        what = f"this run {_WHAT_ELSE}"
    told = what.replace("{n}", str(finding.occurrences))
    return f"Stopped by Recloser: {told}. {_HALT if action is Action.HALT else _DENY}"


def for_human(finding: Finding, action: Action) -> str:
    """Say to a person why calls are refused."""
    verb = "Run halted" if action is Action.HALT else "Calls refused"
    return f"{verb}: {finding.summary}"[:MAX_HUMAN_TEXT]


def halt_instead(message: str) -> str:
    """Turn the text of a refusal that was ignored into that of a halt.

    >>> halt_instead("Stopped by Recloser: the tool 'x' is stuck. " + _DENY).endswith("take over.")
    True
    """
    return f"{message.removesuffix(_DENY).rstrip()} {_HALT}"


def _plain(name: str) -> str:
    return _UNUSUAL.sub("_", name)[:_MAX_TOOL_NAME]
