"""What two engines said of one history, compared. Pure: no clock, no I/O."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from detectors.protocol import Finding, Severity

SHADOW: Final = "shadow"
"""The severity of what is only recorded, whatever the detector thinks of it."""
_RANK: Final = {SHADOW: -1, **{severity.value: severity.rank for severity in Severity}}


class Change(StrEnum):
    """How a finding differs under the new settings; one may differ in several ways."""

    APPEARED = "appeared"
    VANISHED = "vanished"
    EARLIER = "earlier"
    LATER = "later"
    SEVERITY = "severity"
    KIND = "kind"


@dataclass(frozen=True, slots=True)
class Place:
    """A moment of the history.

    `seq` is the step's place in the engine's order, `call` how many tool calls its session had made by then,
    `at_ns` unix nanoseconds, `inside` whether it counts, that is, whether it is no warm-up.
    """

    seq: int
    call: int
    at_ns: int
    inside: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """All that an engine said of one streak, put together.

    `first` is when it was first said, `alarm` when it first was a warning or worse (None: never). Kind,
    severity, summary and the times of the streak are those of its last revision.
    """

    id: str
    kind: str
    severity: str
    session: str
    service: str
    agent: str | None
    tool: str | None
    summary: str
    occurrences: int
    started_ns: int
    ended_ns: int
    first: Place
    alarm: Place | None

    @property
    def moment(self) -> Place:
        """When on-call would have heard of it; for a mere note, when it was first said."""
        return self.alarm or self.first


def said(finding: Finding, place: Place, before: Said | None = None) -> Said:
    """A finding as it is known after one more revision."""
    severity = SHADOW if finding.evidence.get("shadow") else finding.severity.value
    alarmed = _RANK[severity] >= Severity.WARNING.rank
    return Said(
        id=finding.id,
        kind=finding.kind,
        severity=severity,
        session=finding.session_id,
        service=finding.service,
        agent=finding.agent,
        tool=finding.tool,
        summary=finding.summary,
        occurrences=finding.occurrences,
        started_ns=finding.started_at,
        ended_ns=finding.detected_at,
        first=before.first if before is not None else place,
        alarm=(before.alarm if before is not None else None) or (place if alarmed else None),
    )


@dataclass(frozen=True, slots=True)
class Difference:
    """A finding before and after the change of settings, and what is different of it."""

    before: Said | None
    after: Said | None
    changes: tuple[Change, ...]

    @property
    def shown(self) -> Said:
        """The finding to show: as it is under the new settings, if it is."""
        found = self.after or self.before
        if found is None:
            raise ValueError("a difference is between two findings, of which one may be missing")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KindCount:
    """How many findings of a kind there are under both settings, and how many of them differ how."""

    kind: str
    before: int
    after: int
    changes: dict[Change, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings that differ, in the order of the history, and counts by kind, sorted by name."""

    differences: tuple[Difference, ...]
    kinds: tuple[KindCount, ...]
    same: int


def compare(before: Iterable[Said], after: Iterable[Said]) -> Comparison:
    """Compare what was said under the settings in force with what is said under others.

    Findings are the same one when their ids are equal; of those left over, two of one agent's tool that speak
    of overlapping times are one streak that another detector now speaks for. The warm-up does not count: a
    finding does when it, or its other side, was said (as an alarm, if it is one) within the window.
    """
    pairs = [pair for pair in _paired(list(before), list(after)) if _counts(*pair)]
    differences = [Difference(one, other, changes_of(one, other)) for one, other in pairs]
    return Comparison(
        tuple(sorted((each for each in differences if each.changes), key=_order)),
        _by_kind(differences),
        sum(not each.changes for each in differences),
    )


def changes_of(before: Said | None, after: Said | None) -> tuple[Change, ...]:
    """How a finding differs; nothing if it does not."""
    if before is None or after is None:
        return (Change.APPEARED,) if before is None else (Change.VANISHED,)
    changes: list[Change] = []
    if after.kind != before.kind:
        changes.append(Change.KIND)
    if after.severity != before.severity:
        changes.append(Change.SEVERITY)
    if (before.alarm is None) == (after.alarm is None) and after.moment.seq != before.moment.seq:
        changes.append(Change.EARLIER if after.moment.seq < before.moment.seq else Change.LATER)
    return tuple(changes)


def _paired(before: list[Said], after: list[Said]) -> list[tuple[Said | None, Said | None]]:
    now = {each.id: each for each in after}
    pairs: list[tuple[Said | None, Said | None]] = []
    left: defaultdict[tuple[str, str | None, str | None], list[Said]] = defaultdict(list)
    for one in before:
        other = now.pop(one.id, None)
        if other is not None:
            pairs.append((one, other))
        else:
            left[_where(one)].append(one)
    for other in sorted(now.values(), key=_said_order):
        candidates = left[_where(other)]
        match = next((one for one in sorted(candidates, key=_said_order) if _overlap(one, other)), None)
        if match is not None:
            candidates.remove(match)
        pairs.append((match, other))
    pairs.extend((one, None) for candidates in left.values() for one in candidates)
    return pairs


def _where(each: Said) -> tuple[str, str | None, str | None]:
    return each.session, each.agent, each.tool


def _overlap(one: Said, other: Said) -> bool:
    return one.started_ns <= other.ended_ns and other.started_ns <= one.ended_ns


def _counts(one: Said | None, other: Said | None) -> bool:
    return any(each.moment.inside for each in (one, other) if each is not None)


def _said_order(each: Said) -> tuple[int, str]:
    return each.moment.seq, each.id


def _order(each: Difference) -> tuple[int, str]:
    return _said_order(each.shown)


def _by_kind(differences: Sequence[Difference]) -> tuple[KindCount, ...]:
    before = Counter(each.before.kind for each in differences if each.before is not None)
    after = Counter(each.after.kind for each in differences if each.after is not None)
    changed: defaultdict[str, Counter[Change]] = defaultdict(Counter)
    for each in differences:
        changed[each.shown.kind].update(each.changes)
    return tuple(
        KindCount(
            kind=kind,
            before=before[kind],
            after=after[kind],
            changes={change: changed[kind][change] for change in Change},
        )
        for kind in sorted(before | after)
    )


class Sayings:
    """Collects what one engine says, the latest of each streak."""

    def __init__(self) -> None:
        self._said: dict[str, Said] = {}

    def __len__(self) -> int:
        return len(self._said)

    def __contains__(self, finding_id: str) -> bool:
        return finding_id in self._said

    def take(self, finding: Finding, place: Place) -> None:
        """Take one finding or one more revision of it."""
        self._said[finding.id] = said(finding, place, self._said.get(finding.id))

    def all(self) -> list[Said]:
        """All, in the order in which they were first said."""
        return list(self._said.values())
