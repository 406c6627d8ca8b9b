"""One call as a loop detector sees it: who it is, what it brought back, how much patience it deserves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from collector.step import Outcome
from detectors.result_text import is_error, is_opaque, is_pending, is_terminal, is_transient
from detectors.role import Role
from detectors.signature import (
    Call,
    Names,
    call_of,
    hash64,
    information,
    without_hashes,
    without_new_ids,
)
from detectors.streaks import Mark, Streak
from detectors.tool_role import role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step

# What is known of one occurrence, as bits.
FAILED, DENIED, SAYS_ERROR, NO_ARGUMENTS, NO_RESULT, WAITING, OPAQUE, TRANSIENT, MOVE, NOOP = (
    1 << bit for bit in range(10)
)
# The call changed something; it brought other information than last time, which it had brought before.
CHANGED, RETURNED = 1 << 10, 1 << 11
FAILURE = FAILED | DENIED | SAYS_ERROR

_MASK = 2**64 - 1
_SHORT_CHARS = 200
_JITTER_NS = 2_000_000_000
_BACK_OFF = 1.25
_RETRY_AFTER = re.compile(r"retry[-_ ]?after\D{0,12}(\d{1,5})|try again in (\d{1,5})")
_COMPOUND = re.compile(r"\n|\\n|&&|;")
_DENIED_INFORMATION = hash64("denied")
_NOOP_INFORMATION = hash64("noop")


@dataclass(slots=True)
class Occurrence:
    """One tool call as it is judged. `information` stands for `body`, None when that was not recorded."""

    step: Step
    call: Call
    role: Role
    flags: int
    body: str | None
    information: int
    mark: Mark


def occurrence_of(step: Step, names: Names) -> Occurrence:
    """Read a tool call."""
    tool = step.tool or ""
    call = call_of(tool, step.arguments, names)
    flags, body = evidence_of(step, call)
    role = role_of(tool, step.arguments)
    if role is Role.CHANGE and not flags & (FAILED | DENIED):
        flags |= CHANGED
    makes_things = role is Role.CHANGE or names.delegates
    told = information_of(call, flags, body, makes_things=makes_things)
    return Occurrence(step, call, role, flags, body, told, Mark.of(step))


def model_occurrence_of(step: Step) -> Occurrence:
    """Read a model call or a compaction as if it were a call of a tool without arguments."""
    call = Call(hash64(f"{step.kind}\x1e{step.model or ''}"))
    flags, body = evidence_of(step, call)
    told = information_of(call, flags, body, makes_things=False)
    return Occurrence(step, call, Role.OTHER, flags, body, told, Mark.of(step))


def evidence_of(step: Step, call: Call) -> tuple[int, str | None]:
    """What is known of an occurrence as bits, and the text that it brought back (None: not recorded)."""
    flags = 0 if call.known else NO_ARGUMENTS
    outcome, body = step.outcome, step.result
    if outcome is Outcome.DENIED:
        return flags | DENIED, None
    if outcome is Outcome.ERROR or outcome is Outcome.SOFT_ERROR:
        flags |= FAILED
        if step.error:
            body = f"{step.error}\x1e{body}" if body else step.error
        elif not body:
            body = None
    elif call.noop:
        flags |= NOOP
    return (flags, body) if body is not None else (flags | NO_RESULT, None)


def information_of(call: Call, flags: int, body: str | None, *, makes_things: bool) -> int:
    """The fingerprint of what an occurrence brought back."""
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


def says_nothing(flags: int, streak: Streak) -> bool:
    """A refusal is no news, and a result that was not recorded contradicts nothing if the outcomes agree."""
    if flags & DENIED:
        return True
    return bool(flags & NO_RESULT) and (flags & FAILED) == (streak.flags & FAILED)


def was_unrecorded(flags: int, streak: Streak) -> bool:
    """Tell whether a streak has no information yet that this occurrence could contradict."""
    return streak.unknown == streak.count and (flags & FAILED) == (streak.flags & FAILED)


def is_compound(arguments: Json) -> bool:
    """Tell whether a command has several parts: one may have changed something although the whole failed."""
    return _COMPOUND.search(str(arguments)) is not None


def key_of(now: Occurrence) -> int:
    """64 bits for (call, information)."""
    return (now.call.signature * 31 + now.information) & _MASK


def patience_of(now: Occurrence, poll_tools: Sequence[str] = ()) -> int:
    """What makes a repeat deserve more or less patience; read only when a call repeats."""
    text = now.body or ""
    flags = OPAQUE if now.body is not None and is_opaque(without_echo(text, now.step.arguments)) else 0
    if now.role is Role.MOVE:
        flags |= MOVE
    if now.body is not None and is_error(text):
        flags |= SAYS_ERROR
    failed = (now.flags | flags) & FAILURE
    if (failed or len(text) < _SHORT_CHARS) and is_transient(text):
        flags |= TRANSIENT
    elif not failed and not is_terminal(text):
        waits = now.role in (Role.WAIT, Role.POLL) or now.step.tool in poll_tools
        if waits or is_pending(text):
            flags |= WAITING
    return flags


def may_wait(now: Occurrence) -> bool:
    """Tell whether a call after an explicit wait looks whether something has come."""
    if now.flags & (FAILURE | TRANSIENT) or now.role is Role.CHANGE or now.body is None:
        return False
    return not is_terminal(now.body)


def without_echo(text: str, arguments: Json) -> str:
    """A short result without the arguments that it repeats.

    >>> without_echo("Pressed ArrowDown", {"key": "ArrowDown"})
    'Pressed '
    """
    if len(text) > _SHORT_CHARS or not isinstance(arguments, Mapping):
        return text
    for value in arguments.values():
        if isinstance(value, str) and len(value) > 1:
            text = text.replace(value, "")
    return text


def backs_off(now: Occurrence, streak: Streak, gap_ns: int) -> bool:
    """Tell whether somebody waits as asked, or longer each time: no occurrence of a loop."""
    if not now.flags & (WAITING | TRANSIENT):
        return False
    if now.flags & TRANSIENT and now.body is not None:
        asked = _RETRY_AFTER.search(now.body.lower())
        if asked is not None and gap_ns >= int(asked[1] or asked[2]) * 0.9e9:
            return True
    longest = streak.longest_gap_ns
    return longest > 0 and gap_ns >= max(_JITTER_NS, _BACK_OFF * longest, longest + _JITTER_NS // 2)
