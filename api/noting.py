"""What the detection loop writes for control besides findings: facts, notes, services' pulse, activity.

All of it is in the spool (`control/facts.py` reads it). Facts and the notes of the sessions that a finding is
about are written with the finding, everything else with the next checkpoint. A crash in between makes things
happen again: facts are kept once by their key, and notes know which step was the last that is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from api.activity import ActiveSessions
from api.judging import OnTrouble
from collector.step import Json, StepEvent, StepSeen
from control.facts import ACTIVE, NOTES, PULSE
from detectors.facts import Fact
from detectors.notes_book import TOOLS, NotesBook
from detectors.protocol import Finding
from detectors.scope import Recent

FACTS: Final = "facts:tools"  # the key of what is known of tools, in the spool's table `state`
SERVICES_KEPT: Final = 1024
SESSIONS_AT_ONCE: Final = 8  # of one finding whose notes are written with it

FactRow = tuple[str, str, str, str]
"""Key, kind, session, payload: what `Spool.add_facts` takes."""


class Noter:
    """See the module.

    Behind a guard: what it cannot take in, write down or read is told to `on_trouble`, the rest goes on.
    """

    def __init__(self, book: NotesBook, pack: Callable[[bytes], bytes], on_trouble: OnTrouble) -> None:
        self._book = book
        self._pack = pack
        self._on_trouble = on_trouble
        self._facts: list[FactRow] = []
        self._pulse = Recent[str, int](SERVICES_KEPT)
        self._active = ActiveSessions()
        self._heard = False
        self._last = ("", 0)

    def __len__(self) -> int:
        return len(self._facts)

    def take(self, event: StepEvent, received_ns: int) -> None:
        """Take one event in."""
        if isinstance(event, StepSeen) and (event.step.service, received_ns) != self._last:
            self._last = event.step.service, received_ns
            self._pulse.put(event.step.service, received_ns)
            self._heard = True
        self._active.take(event, received_ns)
        try:
            facts = self._book.apply(event)
            if facts:
                self._facts += [_row(fact) for fact in facts]
        except Exception as error:  # noqa: BLE001 - one event must not keep all others from being noted
            self._on_trouble("note", error)

    def found(self, findings: Iterable[Finding]) -> None:
        """Note down findings, after the event that completed them."""
        for finding in findings:
            try:
                self._book.found(finding)
            except Exception as error:  # noqa: BLE001 - evidence of any shape
                self._on_trouble("note", error)

    def pending(self) -> Sequence[FactRow]:
        """Facts that are to be written; `written` says that they are."""
        return tuple(self._facts)

    def written(self, count: int) -> None:
        """The first `count` of the pending facts are on disk."""
        del self._facts[:count]

    def of_findings(self, findings: Iterable[Finding]) -> dict[str, bytes | None]:
        """State of the sessions that findings are about, as it is now."""
        wanted: dict[str, None] = {}
        for finding in findings:
            sessions = (finding.session_id, *finding.session_ids)
            wanted |= dict.fromkeys([one for one in sessions if one][:SESSIONS_AT_ONCE])
        return self._packed(self._book.states(wanted))

    def changed(self) -> dict[str, bytes | None]:
        """State of what changed since the last call, by key of the table `state`; None for what went."""
        try:
            packed = self._packed(self._book.changed())
        except Exception as error:  # noqa: BLE001 - the cursor must go on, whatever the notes hold
            self._on_trouble("checkpoint", error)
            packed = {}
        if self._heard:
            self._heard = False
            packed |= self._packed_pulse()
            packed[ACTIVE] = self._pack(orjson.dumps(self._active.state()))
        return packed

    def restore(self, states: Mapping[str, Json]) -> dict[str, Exception]:
        """Take over states by key of the table `state`; return by key what was not taken over, and why."""
        told = {
            TOOLS if key == FACTS else key.removeprefix(NOTES): state
            for key, state in states.items()
            if key not in (PULSE, ACTIVE)
        }
        left = {_key(key): why for key, why in self._book.restore(told).items()}
        try:
            pulse = states.get(PULSE)
            for service, at_ns in pulse.items() if isinstance(pulse, dict) else ():
                self._pulse.put(str(service), int(at_ns))
        except (TypeError, ValueError) as error:
            left[PULSE] = error
        try:
            self._restore_active(states)
        except (TypeError, ValueError, KeyError) as error:
            left[ACTIVE] = error
        return left

    def _restore_active(self, states: Mapping[str, Json]) -> None:
        active: Any = states.get(ACTIVE)
        if active is None:
            return
        noted = ((key, state) for key, state in states.items() if key.startswith(NOTES))
        self._active.restore(
            int(active["at_ns"]),
            [
                (key.removeprefix(NOTES), last_ns)
                for key, state in noted
                if isinstance(state, dict) and isinstance(last_ns := state.get("last_ns"), int)
            ],
        )

    def _packed_pulse(self) -> dict[str, bytes | None]:
        try:
            return {PULSE: self._pack(orjson.dumps(dict(self._pulse.items())))}
        except TypeError as error:  # a name with half a character
            self._on_trouble("checkpoint", error)
            self._pulse.clear()
            return {}

    def _packed(self, states: Mapping[str, Json | None]) -> dict[str, bytes | None]:
        packed: dict[str, bytes | None] = {}
        for key, state in states.items():
            try:
                key.encode()  # a key with half a character is for no database
                packed[_key(key)] = None if state is None else self._pack(orjson.dumps(state))
            except Exception as error:  # noqa: BLE001 - whatever one session holds, the others are written
                self._on_trouble("checkpoint", error)
        return packed


def is_noted(key: str) -> bool:
    """Whether a key of the table `state` is one that a `Noter` writes."""
    return key.startswith(NOTES) or key in (PULSE, ACTIVE, FACTS)


def _key(key: str) -> str:
    return FACTS if key == TOOLS else f"{NOTES}{key}"


def _row(fact: Fact) -> FactRow:
    """A fact as the spool takes it. Raises `UnicodeEncodeError` or `TypeError` for what no database takes."""
    fact.key.encode()
    fact.session_id.encode()
    return fact.key, fact.kind, fact.session_id, orjson.dumps(fact.payload).decode()
