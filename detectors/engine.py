"""Routes steps to the detectors of their scope, keeps scopes bounded, isolates a detector that fails.

A scope is one (session, agent). Everything here is a function of the events in their order: no clock, no
randomness; idleness is measured in event time.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from collector.step import Kind, RunEnded, SessionsMerged, Step, StepAmended, StepSeen
from detectors.bounds import bounded, is_unknown_session, without_session
from detectors.protocol import Detector, Finding, Severity
from detectors.scope import Recent, estimated_bytes

if TYPE_CHECKING:
    from collector.step import Json, StepEvent

_SEPARATOR = "\x1f"
_MEASURE_AT = frozenset({1, 16, 64})
_MEASURE_EVERY = 256
_SWEEP_EVERY = 4096
_SWEEP_SAMPLE = 63
_REPORTED_KEPT = 64
_ALIASES_KEPT = 8


@runtime_checkable
class Amends(Protocol):
    """A detector that wants to hear when more becomes known of a step."""

    def amend(self, step: Step) -> Sequence[Finding]:
        """Take in a step seen before, with more known."""
        ...


@runtime_checkable
class Absorbs(Protocol):
    """A detector that can take over the past of another instance when two session ids turn out to be one."""

    def absorb(self, state: Json) -> None:
        """Take over what another instance's `snapshot` returned, as what happened before."""
        ...


@dataclass(frozen=True, slots=True)
class DetectorFactory:
    """Makes a detector for a new scope.

    `shadow`: its findings are recorded only, and marked so in their evidence.
    """

    make: Callable[[], Detector]
    shadow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Bounds over all scopes: estimated memory in bytes, and idle time in seconds of event time."""

    max_bytes: int = 512 * 1024 * 1024
    idle_s: float = 6 * 3600.0

    def __post_init__(self) -> None:
        if self.max_bytes <= 0:
            raise ValueError(f"engine.max_bytes must be more than 0, not {self.max_bytes!r}")
        if self.idle_s <= 0:
            raise ValueError(f"engine.idle_s must be more than 0 seconds, not {self.idle_s!r}")


@dataclass(frozen=True, slots=True)
class DetectorError:
    """What a detector raised last, and how often it has raised."""

    count: int
    last: str


@dataclass(slots=True)
class _Scope:
    """State of one (session, agent). A detector that raised is None: disabled for this scope."""

    detectors: dict[str, Detector | None]
    session_id: str
    agent: str
    aliases: list[str] = field(default_factory=list)
    last_ns: int = 0
    run_id: str = ""
    steps: int = 0
    bytes: int = 0
    reported: Recent[str, Finding] = field(default_factory=lambda: Recent(_REPORTED_KEPT))


def scope_key(session_id: str, agent: str | None) -> str:
    """The name of a scope in checkpoints."""
    return f"{session_id}{_SEPARATOR}{agent or ''}"


class Engine:
    """Judges a stream of steps with one instance of each detector for each scope.

    `errors` tells by detector name what was raised; `evicted` counts scopes that went for lack of memory,
    `expired` those that had been idle.
    """

    def __init__(self, factories: Mapping[str, DetectorFactory], limits: EngineLimits | None = None) -> None:
        self._factories = dict(factories)
        self._limits = limits or EngineLimits()
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._sessions: dict[str, set[str]] = {}
        self._dirty: dict[str, None] = {}
        self._bytes = 0
        self._seen = 0
        self.errors: dict[str, DetectorError] = {}
        self.evicted = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._scopes)

    @property
    def estimated_bytes(self) -> int:
        """Estimated memory of all scopes, in bytes."""
        return self._bytes

    def apply(self, event: StepEvent) -> list[Finding]:
        """Take one event in; return what it completes."""
        match event:
            case StepSeen(step):
                return self.observe(step)
            case StepAmended(step):
                return self._amend(step)
            case SessionsMerged(old, new):
                return self._merge(old, new)
            case RunEnded(session_id, run_id, _):
                self._end_run(session_id, run_id)
        return []

    def observe(self, step: Step) -> list[Finding]:
        """Take one step in, in the order in which the scope's steps are to be judged.

        A user's turn that names no agent is shown to every agent of its session.
        """
        key = scope_key(step.session_id, step.agent)
        findings = self._run(key, step, amend=False)
        if step.kind is Kind.USER_TURN and step.agent is None:
            for other in sorted(self._sessions.get(step.session_id, ())):
                if other != key:
                    findings += self._run(other, step, amend=False)
        self._seen += 1
        if self._seen % _SWEEP_EVERY == 0:
            self._expire()
        self._shrink(keep=key)
        return findings

    def dirty_scopes(self) -> dict[str, Json | None]:
        """Snapshots of the scopes that changed since the last call, by key; None for those that went."""
        changed: dict[str, Json | None] = {}
        for key in self._dirty:
            scope = self._scopes.get(key)
            changed[key] = self._snapshot(scope) if scope is not None else None
        self._dirty.clear()
        return changed

    def restore(self, scopes: Mapping[str, Json]) -> None:
        """Take over snapshots, least recently used first as far as their times tell.

        A detector that is not configured any more is left out; one whose state cannot be read starts anew and
        is counted in `errors`.
        """
        loaded: list[tuple[int, str, Any]] = []
        for key, state in scopes.items():
            saved: Any = state
            loaded.append((saved["last_ns"], key, saved))
        for _, key, saved in sorted(loaded, key=lambda item: item[:2]):
            scope = self._new(saved["session_id"], saved["agent"])
            scope.aliases = list(saved["aliases"])
            scope.last_ns, scope.run_id, scope.steps = saved["last_ns"], saved["run_id"], saved["steps"]
            for stored in saved["reported"]:
                scope.reported.put(stored["id"], _finding_of(stored))
            for name, detector in scope.detectors.items():
                if name not in saved["detectors"] or detector is None:
                    continue
                if saved["detectors"][name] is None:
                    scope.detectors[name] = None
                    continue
                try:
                    detector.restore(saved["detectors"][name])
                except Exception as error:  # noqa: BLE001 - a detector of any origin; counted by name
                    self._note(name, error)
                    scope.detectors[name] = self._factories[name].make()
            self._add(key, scope)
            self._measure(scope)
        self._dirty.clear()

    def _new(self, session_id: str, agent: str) -> _Scope:
        return _Scope({name: factory.make() for name, factory in self._factories.items()}, session_id, agent)

    def _add(self, key: str, scope: _Scope) -> None:
        self._scopes[key] = scope
        self._sessions.setdefault(scope.session_id, set()).add(key)

    def _remove(self, key: str) -> _Scope | None:
        scope = self._scopes.pop(key, None)
        if scope is None:
            return None
        self._bytes -= scope.bytes
        keys = self._sessions.get(scope.session_id)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._sessions[scope.session_id]
        self._dirty[key] = None
        return scope

    def _run(self, key: str, step: Step, *, amend: bool) -> list[Finding]:
        """Show a step to the detectors of one scope."""
        scope = self._scopes.get(key)
        if scope is None:
            scope = self._new(step.session_id, step.agent or "")
            self._add(key, scope)
        else:
            self._scopes.move_to_end(key)
        self._dirty[key] = None
        scope.last_ns = max(scope.last_ns, step.end_ns)
        scope.run_id = step.run_id or scope.run_id
        scope.steps += 1
        findings: list[Finding] = []
        for name, detector in scope.detectors.items():
            if detector is None:
                continue
            try:
                if not amend:
                    found = detector.observe(step)
                elif isinstance(detector, Amends):
                    found = detector.amend(step)
                else:
                    continue
                if found:
                    findings.extend([self._say(scope, name, finding, step) for finding in found])
            except Exception as error:  # noqa: BLE001 - one detector's failure is not the others'
                self._note(name, error)
                scope.detectors[name] = None
        if scope.steps in _MEASURE_AT or scope.steps % _MEASURE_EVERY == 0:
            self._measure(scope)
        return findings

    def _say(self, scope: _Scope, name: str, finding: Finding, step: Step) -> Finding:
        """Give a finding its bounds, its revision within the scope, its sessions, and the mark of a shadow.

        What was said is never taken back: a revision is at least as severe as the one before. Raises
        `TypeError` for what is no finding.
        """
        finding = bounded(finding)
        if is_unknown_session(step.session_id):
            finding = without_session(finding)
        before = scope.reported.get(finding.id)
        changes: dict[str, Any] = {}
        if before is not None:
            if finding.revision <= before.revision:
                changes["revision"] = before.revision + 1
            if finding.severity.rank < before.severity.rank:
                changes["severity"] = before.severity
        if scope.aliases:
            changes["session_ids"] = (scope.session_id, *scope.aliases)
        if not finding.detector:
            changes["detector"] = name
        if self._factories[name].shadow:
            changes["evidence"] = {**finding.evidence, "shadow": True}
        if changes:
            finding = bounded(dataclasses.replace(finding, **changes))
        scope.reported.put(finding.id, finding)
        return finding

    def _note(self, name: str, error: Exception) -> None:
        before = self.errors.get(name)
        count = before.count + 1 if before is not None else 1
        self.errors[name] = DetectorError(count, f"{type(error).__name__}: {error}"[:500])

    def _amend(self, step: Step) -> list[Finding]:
        key = scope_key(step.session_id, step.agent)
        return self._run(key, step, amend=True) if key in self._scopes else []

    def _merge(self, old: str, new: str) -> list[Finding]:
        """Hand the scopes of `old` to `new`; say again, as revisions, what was said under `old`."""
        findings: list[Finding] = []
        if old == new:
            return findings
        for key in sorted(self._sessions.get(old, ())):
            past = self._remove(key)
            if past is None:
                continue
            target = scope_key(new, past.agent)
            present = self._remove(target)
            if present is not None:
                self._absorb(present, past)
                scope = present
            else:
                scope = past
                scope.session_id = new
            scope.aliases = [*dict.fromkeys([*scope.aliases, *past.aliases, old])][-_ALIASES_KEPT:]
            self._add(target, scope)
            self._dirty[target] = None
            scope.bytes = 0
            self._measure(scope)
            for finding in list(past.reported.values()):
                said = bounded(
                    dataclasses.replace(
                        finding,
                        session_id=new,
                        session_ids=(new, *scope.aliases),
                        revision=finding.revision + 1,
                    )
                )
                known = scope.reported.get(said.id)
                if known is None or known.revision < said.revision:
                    scope.reported.put(said.id, said)
                    findings.append(said)
        return findings

    def _absorb(self, present: _Scope, past: _Scope) -> None:
        """Give the detectors of a scope the past of another; one that cannot take it goes on without."""
        present.last_ns = max(present.last_ns, past.last_ns)
        present.steps += past.steps
        for name, detector in present.detectors.items():
            other = past.detectors.get(name)
            if other is None or not isinstance(detector, Absorbs):
                continue
            try:
                detector.absorb(other.snapshot())
            except Exception as error:  # noqa: BLE001 - one detector's failure is not the others'
                self._note(name, error)
                present.detectors[name] = None

    def _end_run(self, session_id: str, run_id: str) -> None:
        """A run is over: the scopes that were in it have nothing left to compare with."""
        for key in sorted(self._sessions.get(session_id, ())):
            if run_id and self._scopes[key].run_id == run_id:
                self._remove(key)

    def _measure(self, scope: _Scope) -> None:
        """Estimate a scope's memory from what it would write down."""
        size = 1024 + 1536 * len(scope.reported)
        for name, detector in scope.detectors.items():
            if detector is None:
                continue
            try:
                size += 512 + estimated_bytes(detector.snapshot())
            except Exception as error:  # noqa: BLE001 - one detector's failure is not the others'
                self._note(name, error)
                scope.detectors[name] = None
        self._bytes += size - scope.bytes
        scope.bytes = size

    def _shrink(self, keep: str) -> None:
        while self._bytes > self._limits.max_bytes and len(self._scopes) > 1:
            key = next(iter(self._scopes))
            if key == keep:
                break
            self._remove(key)
            self.evicted += 1

    def _expire(self) -> None:
        """Let go of scopes that were idle for long, by the median clock of the most recent ones.

        The median, so that a producer whose clock is ahead does not end everybody's scopes.
        """
        recent = _last(self._scopes.values(), _SWEEP_SAMPLE)
        now_ns = sorted(scope.last_ns for scope in recent)[len(recent) // 2] if recent else 0
        limit = now_ns - int(self._limits.idle_s * 1e9)
        while self._scopes:
            key, scope = next(iter(self._scopes.items()))
            if scope.last_ns >= limit:
                break
            self._remove(key)
            self.expired += 1

    def _snapshot(self, scope: _Scope) -> Json:
        detectors: dict[str, Json] = {}
        for name, detector in scope.detectors.items():
            try:
                detectors[name] = detector.snapshot() if detector is not None else None
            except Exception as error:  # noqa: BLE001 - one detector's failure is not the others'
                self._note(name, error)
                scope.detectors[name] = detectors[name] = None
        return {
            "session_id": scope.session_id,
            "agent": scope.agent,
            "aliases": list(scope.aliases),
            "last_ns": scope.last_ns,
            "run_id": scope.run_id,
            "steps": scope.steps,
            "detectors": detectors,
            "reported": [_finding_json(finding) for finding in scope.reported.values()],
        }


def _last(scopes: Iterable[_Scope], count: int) -> list[_Scope]:
    """The most recently used scopes; `scopes` is a view that can be walked backwards."""
    newest: Any = scopes
    return [scope for scope, _ in zip(reversed(newest), range(count), strict=False)]


def _finding_json(finding: Finding) -> dict[str, Json]:
    """A finding as JSON, fields by name."""
    return {
        field_.name: list(value) if isinstance(value, tuple) else value
        for field_ in dataclasses.fields(finding)
        for value in [getattr(finding, field_.name)]
    }


def _finding_of(stored: Mapping[str, Any]) -> Finding:
    return Finding(
        **{
            **stored,
            "severity": Severity(stored["severity"]),
            "session_ids": tuple(stored["session_ids"]),
        },
    )
