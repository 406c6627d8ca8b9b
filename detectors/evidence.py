"""What is known of one call, as bits; what it brought back, as text and as a fingerprint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from collector.step import Kind, Outcome
from detectors.role import Role
from detectors.signature import Call, hash64, information, without_hashes, without_new_ids

if TYPE_CHECKING:
    from collector.step import Step

FAILED, DENIED, SAYS_ERROR, NO_ARGUMENTS, NO_RESULT, WAITING, OPAQUE, TRANSIENT, MOVE, NOOP = (
    1 << bit for bit in range(10)
)
# The call changed something; it brought other information than last time, which it had brought before.
CHANGED, RETURNED = 1 << 10, 1 << 11
FAILURE = FAILED | DENIED | SAYS_ERROR

_DENIED_INFORMATION = hash64("denied")
_NOOP_INFORMATION = hash64("noop")


def body_of(step: Step) -> str | None:
    """The text that a call brought back; None: not recorded, or refused by a brake."""
    if step.outcome is Outcome.DENIED:
        return None
    body = step.result
    if step.outcome is Outcome.ERROR or step.outcome is Outcome.SOFT_ERROR:
        if step.error:
            return f"{step.error}\x1e{body}" if body else step.error
        return body or None
    return body


def flags_of(step: Step, call: Call, role: Role) -> int:
    """What is known of a call: `FAILED`, `DENIED`, `NO_ARGUMENTS`, `NO_RESULT`, `NOOP`, `CHANGED`."""
    flags = 0 if call.known else NO_ARGUMENTS
    outcome = step.outcome
    if outcome is Outcome.DENIED:
        return flags | DENIED
    if outcome is Outcome.ERROR or outcome is Outcome.SOFT_ERROR:
        flags |= FAILED
    elif call.noop:
        flags |= NOOP
    if body_of(step) is None:
        flags |= NO_RESULT
    if role is Role.CHANGE and step.kind is Kind.TOOL_CALL and not flags & FAILED:
        flags |= CHANGED
    return flags


def information_of(call: Call, flags: int, body: str | None, *, makes_things: bool) -> int:
    """The fingerprint of what a call brought back."""
    if flags & DENIED:
        return _DENIED_INFORMATION
    if flags & NOOP:
        return _NOOP_INFORMATION
    if body is None:
        return unrecorded(call, flags)
    if flags & FAILED:
        return information("e\x1e" + without_hashes(body), call.dropped)
    return information("o\x1e" + (without_new_ids(body) if makes_things else body), call.dropped)


def unrecorded(call: Call, flags: int) -> int:
    """Stands for information that was not recorded."""
    return hash64(f"unknown\x1e{flags & FAILED}\x1e{call.known}")
