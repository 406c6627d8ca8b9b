"""One call as a loop detector sees it: who it is, what it brought back, how much patience it deserves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from detectors.evidence import (
    DENIED,
    FAILED,
    FAILURE,
    MOVE,
    NO_RESULT,
    OPAQUE,
    SAYS_ERROR,
    TRANSIENT,
    WAITING,
)
from detectors.result_text import is_error, is_opaque, is_pending, is_terminal, is_transient
from detectors.role import Role
from detectors.signature import Call
from detectors.streaks import Mark, Streak

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.reading import Reading

_MASK = 2**64 - 1
_SHORT_CHARS = 200
_JITTER_NS = 2_000_000_000
_BACK_OFF = 1.25
_RETRY_AFTER = re.compile(r"retry[-_ ]?after\D{0,12}(\d{1,5})|try again in (\d{1,5})")
_COMPOUND = re.compile(r"\n|\\n|&&|;")


@dataclass(slots=True)
class Occurrence:
    """One tool call as it is judged. `information` stands for `body`, None when that was not recorded.

    `novel`: the call never brought that before, as far as is known. `again`: it did, and nothing that was new
    has changed anything since.
    """

    step: Step
    call: Call
    role: Role
    flags: int
    body: str | None
    information: int
    mark: Mark
    novel: bool = False
    again: bool = False


def occurrence_of(reading: Reading) -> Occurrence:
    """Take what a loop detector needs from a call that was read."""
    step = reading.step
    return Occurrence(
        step, reading.call, reading.role, reading.flags, reading.body, reading.information, Mark.of(step)
    )


def says_nothing(flags: int, streak: Streak) -> bool:
    """A refusal is no news, and a result that was not recorded contradicts nothing if the outcomes agree."""
    if flags & DENIED:
        return True
    return bool(flags & NO_RESULT) and (flags & FAILED) == (streak.flags & FAILED)


def is_tight(streak: Streak) -> bool:
    """Tell whether hardly anything lay in between: one stranger, or one to three occurrences or more."""
    return streak.foreign <= max(1, streak.count // 3)


def was_unrecorded(flags: int, streak: Streak) -> bool:
    """Tell whether a streak has no information yet that this occurrence could contradict."""
    return streak.unknown == streak.count and (flags & FAILED) == (streak.flags & FAILED)


def is_compound(arguments: Json) -> bool:
    """Tell whether a command has several parts: one may have changed something although the whole failed."""
    return _COMPOUND.search(str(arguments)) is not None


def key_of(now: Occurrence) -> int:
    """64 bits for (call, information)."""
    return (now.call.signature * 31 + now.information) & _MASK


def patience_of(now: Occurrence) -> int:
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
        waits = now.role in (Role.WAIT, Role.POLL)
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
