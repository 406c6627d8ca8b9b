"""Routes steps to the detectors of their scope, keeps scopes bounded, isolates a detector that fails.

A scope is one (session, agent), one session, one target, ... as the detector's key says. Everything here is a
function of the events in their order: no clock, no randomness; idleness is measured in event time.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from collector.step import Kind, RunEnded, SessionsMerged, Step, StepAmended, StepSeen
from detectors.bounds import bounded, is_unknown_session, without_session
from detectors.keys import SEPARATOR, Key, by_agent
from detectors.primary import PRECEDENCE, Primaries
from detectors.protocol import Detector, Finding
from detectors.reading import Lens, Reading
from detectors.scope import estimated_bytes
from detectors.tool_policy import DEFAULT_POLICY, ToolPolicy

if TYPE_CHECKING:
    from collector.step import Json, StepEvent

_FLEET = "\x1e"  # begins the keys of scopes that are not one agent's
_SAID = "\x1dsaid\x1d"  # begins the keys of what was said, in checkpoints
_FINDING_BYTES = 3072
_TARGET_CHARS = 200

_Found: TypeAlias = "tuple[str, Finding]"  # under which key it is said, and what
_MEASURE_AT = frozenset({1, 16, 64})
_MEASURE_EVERY = 256
_SWEEP_EVERY = 4096
_SWEEP_SAMPLE = 63
_ALIASES_KEPT = 8


@runtime_checkable
class Amends(Protocol):
    """A detector that wants to hear when more becomes known of a step."""

    def amend(self, reading: Reading) -> Sequence[Finding]:
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

    `shadow`: its findings are recorded only, and marked so in their evidence. `key` parts steps into scopes.
    `agents` has the factories of agents that are set apart, None where it is off for one; only scopes of one
    agent can be. `tools` has, for tools that are set apart, whether it is off (None) or in shadow.
    """

    make: Callable[[], Detector]
    shadow: bool = False
    key: Key = by_agent
    agents: Mapping[str, DetectorFactory | None] = field(default_factory=dict)
    tools: Mapping[str, bool | None] = field(default_factory=dict)

    def of(self, agent: str) -> DetectorFactory | None:
        """The factory for one agent's scopes; None where it is off."""
        return self.agents.get(agent, self) if self.agents else self


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
    """State of one scope. A detector that raised is None: disabled for this scope.

    `bytes` is its memory as it was estimated last; `touched` orders scopes by their last use.
    """

    key: Key
    detectors: dict[str, Detector | None]
    session_id: str
    agent: str
    aliases: list[str] = field(default_factory=list)
    last_ns: int = 0
    run_id: str = ""
    steps: int = 0
    bytes: int = 0
    touched: int = 0


def scope_key(session_id: str, agent: str | None) -> str:
    """The name of an agent's scope in checkpoints."""
    return f"{session_id}{SEPARATOR}{agent or ''}"


class Engine:
    """Judges a stream of steps with one instance of each detector for each of its scopes.

    `errors` tells by detector name what was raised; `evicted` counts scopes that went for lack of memory,
    `expired` those that had been idle.
    """

    def __init__(
        self,
        factories: Mapping[str, DetectorFactory],
        limits: EngineLimits | None = None,
        policy: ToolPolicy = DEFAULT_POLICY,
    ) -> None:
        self._factories = dict(factories)
        self._limits = limits or EngineLimits()
        self._lens = Lens(policy)
        self._keys = list(dict.fromkeys(factory.key for factory in self._factories.values()))
        self._ignored = frozenset(policy.ignore)
        self._scopes: OrderedDict[str, _Scope] = OrderedDict()
        self._sessions: dict[str, set[str]] = {}
        self._said: dict[str, Primaries] = {}
        self._dirty: dict[str, None] = {}
        self._bytes = 0
        self._touches = 0
        self.errors: dict[str, DetectorError] = {}
        self.evicted = 0
        self.expired = 0

    def __len__(self) -> int:
        return len(self._scopes)

    @property
    def lens(self) -> Lens:
        """How it reads steps; who reads them through it, too, need not work out the same again."""
        return self._lens

    @property
    def limits(self) -> EngineLimits:
        """The bounds over all scopes."""
        return self._limits

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
        if step.tool is not None and step.tool in self._ignored:
            return []
        reading = self._lens.read(step)
        found: list[_Found] = []
        keep = ""
        sweeps = self._touches // _SWEEP_EVERY
        for key in self._keys:
            name = _name_of(key, reading)
            if name is not None:
                keep = keep or name
                found += self._run(key, name, reading, amend=False)
        if step.kind is Kind.USER_TURN and step.agent is None:
            own = scope_key(step.session_id, None)
            for other in sorted(self._sessions.get(step.session_id, ())):
                if other != own and self._scopes[other].key.of_agent:
                    found += self._run(by_agent, other, reading, amend=False)
        findings = self._say_all(found, step) if found else []
        if self._touches // _SWEEP_EVERY != sweeps:
            self._expire()
        self._shrink(keep=keep)
        return findings

    def dirty_scopes(self) -> dict[str, Json | None]:
        """Snapshots of what changed since the last call, by key; None for what went."""
        changed: dict[str, Json | None] = {}
        for key in self._dirty:
            if key.startswith(_SAID):
                said = self._said.get(key.removeprefix(_SAID))
                changed[key] = {"last_ns": 0, "said": said.json()} if said is not None else None
            else:
                scope = self._scopes.get(key)
                changed[key] = self._snapshot(scope) if scope is not None else None
        self._dirty.clear()
        return changed

    def forget_changes(self) -> None:
        """Forget which scopes changed: for whoever writes no checkpoints, lest their names pile up."""
        self._dirty.clear()

    def restore(self, scopes: Mapping[str, Json]) -> dict[str, Exception | None]:
        """Take over snapshots, in the order of their last use, so that the same ones go for lack of memory.

        A detector that is not configured any more is left out; one whose state cannot be read starts anew and
        is counted in `errors`. Returns by name what was not taken over, so that nobody keeps it, and why:
        None where there is no use for it any more.
        """
        left: dict[str, Exception | None] = {}
        loaded: list[tuple[bool, int, str, Any]] = []
        for name, state in scopes.items():
            saved: Any = state
            try:
                said = name.startswith(_SAID)
                loaded.append((said, 0 if said else int(saved["touched"]), name, saved))
            except Exception as error:  # noqa: BLE001 - of another version, or damaged
                left[name] = error
        # What was said comes after the scopes that it was said of.
        for said, _, name, saved in sorted(loaded, key=lambda item: item[:3]):
            try:
                taken = self._restore_said(name, saved) if said else self._restore_scope(name, saved)
            except Exception as error:  # noqa: BLE001 - as above
                left[name] = error
            else:
                if not taken:
                    left[name] = None
        self._dirty.clear()
        return left

    def _restore_said(self, name: str, saved: Any) -> bool:  # noqa: ANN401 - JSON that `dirty_scopes` wrote
        """Take over what was said; False where there is no scope any more that would let go of it."""
        said_key = name.removeprefix(_SAID)
        if said_key not in self._scopes and said_key not in self._sessions:
            return False
        self._put_said(said_key, Primaries.load(saved["said"]))
        return True

    def _restore_scope(self, name: str, saved: Any) -> bool:  # noqa: ANN401 - JSON that `_snapshot` wrote
        """Take over a scope; False where no detector has such ones any more."""
        key = next((key for key in self._keys if key.name == saved["key"]), None)
        if key is None:
            return False
        scope = self._new(key, saved["session_id"], saved["agent"])
        scope.aliases = list(saved["aliases"])
        scope.last_ns, scope.run_id, scope.steps = saved["last_ns"], saved["run_id"], saved["steps"]
        scope.touched, size = saved["touched"], int(saved["bytes"])
        as_it_was = saved["detectors"].keys() == scope.detectors.keys()
        for detector_name, detector in scope.detectors.items():
            if detector_name not in saved["detectors"] or detector is None:
                continue
            if saved["detectors"][detector_name] is None:
                scope.detectors[detector_name] = None
                continue
            try:
                detector.restore(saved["detectors"][detector_name])
            except Exception as error:  # noqa: BLE001 - a detector of any origin; counted by name
                self._note(detector_name, error)
                scope.detectors[detector_name] = self._make(detector_name, scope.agent)
                as_it_was = False
        self._add(name, scope)
        self._touches = max(self._touches, scope.touched)
        if as_it_was:
            scope.bytes = size
            self._bytes += size
        else:
            self._measure(scope)
        return True

    def _make(self, detector_name: str, agent: str) -> Detector | None:
        factory = self._factories[detector_name].of(agent)
        return factory.make() if factory is not None else None

    def _new(self, key: Key, session_id: str, agent: str) -> _Scope:
        of_agent = agent if key.of_agent else ""
        detectors = {
            name: self._make(name, of_agent)
            for name, factory in self._factories.items()
            if factory.key is key
        }
        return _Scope(key, detectors, session_id if key.of_session else "", of_agent)

    def _add(self, name: str, scope: _Scope) -> None:
        self._scopes[name] = scope
        if scope.key.of_session:
            self._sessions.setdefault(scope.session_id, set()).add(name)

    def _touch(self, scope: _Scope) -> None:
        self._touches += 1
        scope.touched = self._touches

    def _remove(self, name: str, *, forget: bool = True) -> _Scope | None:
        """Let go of a scope; with the last of its session goes what was said there, unless told otherwise."""
        scope = self._scopes.pop(name, None)
        if scope is None:
            return None
        self._bytes -= scope.bytes
        self._dirty[name] = None
        said_key = name
        if scope.key.of_session:
            said_key = scope.session_id
            names = self._sessions.get(scope.session_id, set())
            names.discard(name)
            if names:
                return scope
            self._sessions.pop(scope.session_id, None)
        if forget:
            self._pop_said(said_key)
        return scope

    def _put_said(self, said_key: str, said: Primaries) -> None:
        self._pop_said(said_key)
        self._said[said_key] = said
        self._bytes += _FINDING_BYTES * len(said)
        self._dirty[_SAID + said_key] = None

    def _pop_said(self, said_key: str) -> Primaries | None:
        said = self._said.pop(said_key, None)
        if said is not None:
            self._bytes -= _FINDING_BYTES * len(said)
            self._dirty[_SAID + said_key] = None
        return said

    def _run(self, key: Key, name: str, reading: Reading, *, amend: bool) -> list[_Found]:
        """Show a step to the detectors of one scope."""
        step = reading.step
        scope = self._scopes.get(name)
        if scope is None:
            scope = self._new(key, step.session_id, step.agent or "")
            self._add(name, scope)
        else:
            self._scopes.move_to_end(name)
        self._touch(scope)
        self._dirty[name] = None
        scope.last_ns = max(scope.last_ns, step.end_ns)
        scope.run_id = step.run_id or scope.run_id
        scope.steps += 1
        found: list[_Found] = []
        for detector_name, detector in scope.detectors.items():
            if detector is None:
                continue
            try:
                if not amend:
                    findings = detector.observe(reading)
                elif isinstance(detector, Amends):
                    findings = detector.amend(reading)
                else:
                    continue
                if findings:
                    said_key = scope.session_id if key.of_session else name
                    told = [self._told(scope, detector_name, finding, reading) for finding in findings]
                    found += [(said_key, finding) for finding in told if finding is not None]
            except Exception as error:  # noqa: BLE001 - one detector's failure is not the others'
                self._note(detector_name, error)
                scope.detectors[detector_name] = None
        if scope.steps in _MEASURE_AT or scope.steps % _MEASURE_EVERY == 0:
            self._measure(scope)
        return found

    def _told(self, scope: _Scope, name: str, finding: Finding, reading: Reading) -> Finding | None:
        """Give a finding its bounds, its sessions, and the mark of a shadow; None where it is switched off.

        One of a session also says whom its last step asked, so that it can be seen as a part of what befell
        all who asked there. Raises `TypeError` for what is no finding.
        """
        finding = bounded(finding)
        if scope.key.of_session and reading.target:
            finding = bounded(_with_target(finding, reading))
        factory = self._factories[name].of(scope.agent) or self._factories[name]
        shadow = factory.shadow
        if finding.tool is not None and finding.tool in factory.tools:
            of_tool = factory.tools[finding.tool]
            if of_tool is None:
                return None
            shadow = of_tool
        if finding.session_id and is_unknown_session(reading.step.session_id):
            finding = without_session(finding)
        changes: dict[str, Any] = {}
        if scope.aliases:
            changes["session_ids"] = (scope.session_id, *scope.aliases)
        if not finding.detector:
            changes["detector"] = name
        if shadow:
            changes["evidence"] = {**finding.evidence, "shadow": True}
        return dataclasses.replace(finding, **changes) if changes else finding

    def _say_all(self, found: list[_Found], step: Step) -> list[Finding]:
        """Put what all detectors found at one step together; the strongest speaks first."""
        findings: list[Finding] = []
        for said_key, finding in sorted(found, key=_strength):
            said = self._said.get(said_key)
            if said is None:
                said = self._said[said_key] = Primaries()
            before = len(said)
            told = said.say(finding)
            self._bytes += _FINDING_BYTES * (len(said) - before)
            self._dirty[_SAID + said_key] = None
            if told is not None:
                told = bounded(told)
                unknown = told.session_id and is_unknown_session(step.session_id)
                findings.append(without_session(told) if unknown else told)
        return findings

    def _note(self, name: str, error: Exception) -> None:
        before = self.errors.get(name)
        count = before.count + 1 if before is not None else 1
        self.errors[name] = DetectorError(count, f"{type(error).__name__}: {error}"[:500])

    def _amend(self, step: Step) -> list[Finding]:
        if step.tool is not None and step.tool in self._ignored:
            return []
        reading = self._lens.read(step)
        found: list[_Found] = []
        for key in self._keys:
            name = _name_of(key, reading)
            if name is not None and name in self._scopes:
                found += self._run(key, name, reading, amend=True)
        return self._say_all(found, step) if found else []

    def _merge(self, old: str, new: str) -> list[Finding]:
        """Hand the scopes of `old` to `new`; say again, as revisions, what was said under `old`."""
        if old == new:
            return []
        aliases: list[str] = [old]
        for name in sorted(self._sessions.get(old, ())):
            past = self._remove(name, forget=False)
            if past is None:
                continue
            target = _renamed(name, old, new)
            present = self._remove(target, forget=False)
            if present is not None:
                self._absorb(present, past)
                scope = present
            else:
                scope = past
                scope.session_id = new
            scope.aliases = [*dict.fromkeys([*scope.aliases, *past.aliases, old])][-_ALIASES_KEPT:]
            aliases = [*dict.fromkeys([*aliases, *scope.aliases])]
            self._add(target, scope)
            self._touch(scope)
            self._dirty[target] = None
            scope.bytes = 0
            self._measure(scope)
        past_said = self._pop_said(old)
        if past_said is None:
            return []
        present_said = self._pop_said(new) or Primaries()
        findings = present_said.rename(new, (new, *aliases[-_ALIASES_KEPT:]), past_said)
        self._put_said(new, present_said)
        return [bounded(finding) for finding in findings]

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
        for name in sorted(self._sessions.get(session_id, ())):
            if run_id and self._scopes[name].run_id == run_id:
                self._remove(name)

    def _measure(self, scope: _Scope) -> None:
        """Estimate a scope's memory from what it would write down."""
        size = 1024
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
            name = next(iter(self._scopes))
            if name == keep:
                break
            self._remove(name)
            self.evicted += 1

    def _expire(self) -> None:
        """Let go of scopes that were idle for long, by the median clock of the most recent ones.

        The median, so that a producer whose clock is ahead does not end everybody's scopes.
        """
        recent = _last(self._scopes.values(), _SWEEP_SAMPLE)
        now_ns = sorted(scope.last_ns for scope in recent)[len(recent) // 2] if recent else 0
        limit = now_ns - int(self._limits.idle_s * 1e9)
        while self._scopes:
            name, scope = next(iter(self._scopes.items()))
            if scope.last_ns >= limit:
                break
            self._remove(name)
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
            "key": scope.key.name,
            "session_id": scope.session_id,
            "agent": scope.agent,
            "aliases": list(scope.aliases),
            "last_ns": scope.last_ns,
            "run_id": scope.run_id,
            "steps": scope.steps,
            "bytes": scope.bytes,
            "touched": scope.touched,
            "detectors": detectors,
        }


def _name_of(key: Key, reading: Reading) -> str | None:
    """The name of the scope that a step belongs to; None when it belongs to none of this key."""
    value = key.of(reading)
    if value is None:
        return None
    step = reading.step
    if key.of_agent:
        return scope_key(step.session_id, step.agent)
    within = f"{step.session_id}{SEPARATOR}" if key.of_session else ""
    return f"{_FLEET}{key.name}{_FLEET}{within}{value}"


def _renamed(name: str, old: str, new: str) -> str:
    """The name of a session's scope under another session id."""
    head, found, tail = name.partition(f"{old}{SEPARATOR}")
    return f"{head}{new}{SEPARATOR}{tail}" if found else name


def _with_target(finding: Finding, reading: Reading) -> Finding:
    """The finding with whom its last step asked, and for what."""
    step = reading.step
    asked: dict[str, Json] = {"target": reading.target[:_TARGET_CHARS], "step": step.tool or step.kind.value}
    return dataclasses.replace(finding, evidence={**finding.evidence, **asked})


def _strength(found: _Found) -> tuple[int, int]:
    """Sorts what is said at one step: alarms before notes, the stronger kind first."""
    finding = found[1]
    return (0 if finding.severity.rank else 1, -PRECEDENCE.get(finding.kind, 0))


def _last(scopes: Iterable[_Scope], count: int) -> list[_Scope]:
    """The most recently used scopes; `scopes` is a view that can be walked backwards."""
    newest: Any = scopes
    return [scope for scope, _ in zip(reversed(newest), range(count), strict=False)]
