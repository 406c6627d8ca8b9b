"""Doom loop: the same call brings the same information, and nothing effective changed in between.

Three shapes: a repeat (back to back, one stranger at most in between), an interleaved repeat, and a cycle of
two to six calls. What counts as the same is said in `detectors.signature`. A streak ends when the call brings
other information, when another call may have changed something (`detectors.role`), at a user's turn, in a new
run, and after a pause that says "told to come back later". Waiting is not looping until it is: polls, growing
gaps and transient errors get more patience. A denied call is a repeat and never news. Calls of one model
message are one attempt. A late step may add to a streak and never ends one.

What is missing lowers the verdict: without arguments it is `info`, without results `warning` at most.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from collector.step import Kind, Outcome
from detectors.protocol import Finding, Severity, finding_id
from detectors.role import Role, is_opaque, is_pending, is_terminal, is_transient, role_of
from detectors.scope import Recent
from detectors.signature import Call, Names, call_of, hash64, identifiers, information, names_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step

KIND = "doom_loop"
RULE = "doom_loop/1"
_MASK = 2**64 - 1
_NEVER = 1 << 30
_PERIODS = range(2, 7)
_SPANS_KEPT = 8
_SEVERITIES = tuple(Severity)
_RESETS = (
    "other information from the same call",
    "a change by another call",
    "a user turn",
    "a new run",
    "a pause of config.patience_s",
)

# What is known of one occurrence, as bits.
_FAILED, _NO_ARGUMENTS, _NO_RESULT, _WAITING, _OPAQUE, _TRANSIENT, _MOVE, _NOOP = (1 << i for i in range(8))


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomLoopConfig:
    """Thresholds count occurrences (calls; laps for cycles), times are seconds. All are settable by name."""

    shadow: bool = False
    suspect: int = 3
    errors: int = 4
    successes: int = 5
    transient_errors: int = 5
    patient_errors: int = 8
    polls: int = 10
    unknown_results: int = 8
    interleaved_errors: int = 5
    interleaved_successes: int = 6
    laps: int = 3
    waiting_laps: int = 10
    window: int = 30
    patience_s: float = 240.0
    fast_s: float = 5.0
    calls_kept: int = 64
    seen_kept: int = 256
    ignore_tools: tuple[str, ...] = ()
    poll_tools: tuple[str, ...] = ()
    volatile_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "suspect", "errors", "successes", "transient_errors", "patient_errors", "polls", "unknown_results",
            "interleaved_errors", "interleaved_successes", "laps", "waiting_laps", "window", "calls_kept",
            "seen_kept",
        ):  # fmt: skip
            value = getattr(self, name)
            if value < 2:  # noqa: PLR2004 - one occurrence is no repeat
                raise ValueError(f"doom_loop.{name} must be at least 2, not {value!r}")
        for name in ("patience_s", "fast_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"doom_loop.{name} must be more than 0 seconds, not {getattr(self, name)!r}")


@dataclass(slots=True)
class _Mark:
    """One step as evidence: what a finding says of it."""

    step_id: str
    span_id: str
    start_ns: int
    tool: str

    @staticmethod
    def of(step: Step) -> _Mark:
        return _Mark(step.step_id, step.span_id, step.start_ns, step.tool or "")

    def json(self) -> Json:
        return [self.step_id, self.span_id, self.start_ns, self.tool]


@dataclass(slots=True)
class _Totals:
    """Model usage of a scope so far; `known` tells whether any was told."""

    known: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def json(self) -> Json:
        return [self.known, self.input_tokens, self.output_tokens, self.cost_usd]

    def copy(self) -> _Totals:
        return _Totals(self.known, self.input_tokens, self.output_tokens, self.cost_usd)


@dataclass(slots=True)
class _Reported:
    """What was said of a streak already."""

    rank: int = -1
    next_count: int = 8
    revision: int = -1

    def json(self) -> Json:
        return [self.rank, self.next_count, self.revision]

    def due(self, rank: int, count: int) -> bool:
        """Tell whether this severity or count is worth a (further) finding, and remember it as said."""
        if rank < 0 or not (rank > self.rank or (self.rank >= 0 and count >= self.next_count)):
            return False
        self.rank = max(self.rank, rank)
        while self.next_count <= count:
            self.next_count *= 2
        self.revision += 1
        return True


@dataclass(slots=True)
class _Streak:
    """Occurrences of one call with one information."""

    information: int
    flags: int
    first: _Mark
    totals: _Totals
    attempt: int
    turn: int
    idle_ns: int
    count: int = 1
    foreign: int = 0
    unknown: int = 0
    longest_gap_ns: int = 0
    idle_at_first_ns: int = 0
    spans: list[str] = field(default_factory=list)
    reported: _Reported = field(default_factory=_Reported)

    def json(self) -> Json:
        return [
            self.information, self.flags, self.first.json(), self.totals.json(), self.attempt, self.turn,
            self.idle_ns, self.count, self.foreign, self.unknown, self.longest_gap_ns, self.idle_at_first_ns,
            list(self.spans), self.reported.json(),
        ]  # fmt: skip

    @staticmethod
    def load(state: Any) -> _Streak:  # noqa: ANN401 - JSON that `json` wrote
        first, totals = _Mark(*state[2]), _Totals(*state[3])
        streak = _Streak(state[0], state[1], first, totals, *state[4:12])
        streak.spans, streak.reported = list(state[12]), _Reported(*state[13])
        return streak


@dataclass(slots=True)
class _Attempt:
    """The calls of one model message, as one element of a cycle. `signature` does not depend on their order."""

    signature: int
    flags_any: int
    flags_all: int
    first: _Mark

    def json(self) -> Json:
        return [self.signature, self.flags_any, self.flags_all, self.first.json()]

    @staticmethod
    def load(state: Any) -> _Attempt:  # noqa: ANN401 - JSON that `json` wrote
        return _Attempt(state[0], state[1], state[2], _Mark(*state[3]))


@dataclass(slots=True)
class _Cycle:
    """How long the sequence of attempts has repeated itself at one distance."""

    run: int = 0
    first: _Mark | None = None
    totals: _Totals = field(default_factory=_Totals)
    reported: _Reported = field(default_factory=_Reported)

    def json(self) -> Json:
        first = self.first.json() if self.first is not None else None
        return [self.run, first, self.totals.json(), self.reported.json()]

    @staticmethod
    def load(state: Any) -> _Cycle:  # noqa: ANN401 - JSON that `json` wrote
        first = _Mark(*state[1]) if state[1] is not None else None
        return _Cycle(state[0], first, _Totals(*state[2]), _Reported(*state[3]))


class DoomLoop:
    """Watches one scope. `config` holds the thresholds."""

    def __init__(self, config: DoomLoopConfig | None = None) -> None:
        self._config = config or DoomLoopConfig()
        self._streaks = Recent[int, _Streak](self._config.calls_kept)
        self._seen = Recent[int, bool](self._config.seen_kept)
        self._incomplete = Recent[str, bool](self._config.calls_kept)
        self._names: dict[str, Names] = {}
        self._totals = _Totals()
        self._runs: deque[str] = deque(maxlen=8)
        self._ids: tuple[int, ...] = ()
        self._attempt_id: str | None = None
        self._attempt_end_ns = 0
        self._attempt = 0
        self._turn = 0
        self._last_end_ns = 0
        self._idle_ns = 0
        self._idle_at_tool_ns = 0
        self._tail: deque[_Attempt] = deque(maxlen=max(_PERIODS))
        self._current: _Attempt | None = None
        self._cycles = {period: _Cycle() for period in _PERIODS}

    def observe(self, step: Step) -> Sequence[Finding]:
        """Take one step in; return the streaks that it completed or carried on noticeably."""
        if step.kind is Kind.TOOL_CALL:
            if step.tool is None or step.tool in self._config.ignore_tools:
                return ()
            return self._late_call(step) if step.late else self._call(step)
        if step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            self._pass_time(step)
            self._account(step)
        elif step.kind is Kind.USER_TURN and not step.late:
            self._pass_time(step)
            self._enter_run(step)
            self._forget()
        return ()

    def amend(self, step: Step) -> Sequence[Finding]:
        """Take in that more is known of an earlier step.

        Only what was missing counts: arguments or a result that come after the step are taken as a late
        occurrence of the full call. Anything else about a streak stays as it was judged.
        """
        if step.kind is not Kind.TOOL_CALL or step.tool is None or step.step_id not in self._incomplete:
            return ()
        self._incomplete.pop(step.step_id)
        return self._late_call(step, create=True)

    def _pass_time(self, step: Step) -> None:
        """Add the time in which nothing of this scope ran to its idle time."""
        if self._last_end_ns and step.start_ns > self._last_end_ns:
            self._idle_ns += step.start_ns - self._last_end_ns
        self._last_end_ns = max(self._last_end_ns, step.end_ns)

    def _account(self, step: Step) -> None:
        usage, totals = step.usage, self._totals
        if usage.input_tokens is not None or usage.output_tokens is not None:
            totals.known = True
            totals.input_tokens += usage.input_tokens or 0
            totals.output_tokens += usage.output_tokens or 0
        totals.cost_usd += step.cost_usd or 0.0

    def _enter_run(self, step: Step) -> None:
        """A run that was never seen ends the streaks of the runs before it."""
        if not step.run_id or step.run_id in self._runs:
            return
        if self._runs:
            self._forget()
        self._runs.append(step.run_id)

    def _forget(self) -> None:
        """A new beginning: what was done before is no measure any more."""
        self._settle()
        self._seen.clear()

    def _settle(self) -> None:
        """Something changed: streaks end here."""
        self._streaks.clear()
        self._tail.clear()
        self._current = None
        self._ids = ()
        for period in _PERIODS:
            if self._cycles[period].run:
                self._cycles[period] = _Cycle()

    def _call_of(self, step: Step) -> Call:
        tool = step.tool or ""
        names = self._names.get(tool)
        if names is None:
            if len(self._names) > self._config.seen_kept:
                self._names.clear()
            names = self._names[tool] = names_for(tool, self._config.volatile_arguments)
        return call_of(tool, step.arguments, names)

    def _call(self, step: Step) -> Sequence[Finding]:
        self._enter_run(step)
        self._pass_time(step)
        call = self._call_of(step)
        flags, body = _evidence(step, call)
        told = _information(call, flags, body, denied=step.outcome is Outcome.DENIED)
        role = role_of(step.tool or "", step.arguments)
        if role is Role.WAIT:
            self._idle_ns += max(0, step.end_ns - step.start_ns)
        if self._idle_ns - self._idle_at_tool_ns >= self._config.patience_s * 1e9:
            self._settle()
        self._idle_at_tool_ns = self._idle_ns
        self._begin_attempt(step, role)
        streak = self._streaks.touch(call.signature)
        if streak is not None and (step.outcome is Outcome.DENIED or _silent(flags, streak)):
            told = streak.information
        key = (call.signature * 31 + told) & _MASK
        novel = self._seen.touch(key) is None
        if novel:
            self._seen.put(key, value=True)
        if streak is not None and streak.information != told:
            if call.known:
                self._settle()
            streak = None
        elif novel and streak is None and self._changes(step, role, flags, call):
            self._settle()
        if streak is not None:
            flags |= self._waiting_flags(step, role, body)
        if flags & (_NO_ARGUMENTS | _NO_RESULT):
            self._incomplete.put(step.step_id, value=True)
        self._ids = identifiers(body) if body else ()
        findings = self._cycle(step, key, flags, role)
        looping = any(cycle.reported.rank >= 0 for cycle in self._cycles.values())
        return [*findings, *self._repeat(step, call, told, flags, streak, quiet=looping)]

    def _begin_attempt(self, step: Step, role: Role) -> None:
        """Tell whether this call belongs to the model message before; if not, close that attempt."""
        if step.attempt_id is not None or self._attempt_id is not None:
            same = step.attempt_id == self._attempt_id
        else:
            same = step.start_ns < self._attempt_end_ns
        if same:
            self._attempt_end_ns = max(self._attempt_end_ns, step.end_ns)
            return
        self._attempt_id = step.attempt_id
        self._attempt_end_ns = step.end_ns
        self._attempt += 1
        if role is not Role.WAIT:
            self._turn += 1
        if self._current is not None:
            self._close(self._current)
            self._current = None

    def _changes(self, step: Step, role: Role, flags: int, call: Call) -> bool:
        """Tell whether a call that was never made before may have changed something, or uses what was found."""
        if step.outcome is Outcome.DENIED or call.noop:
            return False
        if role is Role.CHANGE or role is Role.OTHER:
            return not flags & _FAILED or (role is Role.CHANGE and _compound(step.arguments))
        return bool(self._ids) and any(found in self._ids for found in identifiers(str(step.arguments)))

    def _waiting_flags(self, step: Step, role: Role, body: str | None) -> int:
        """What makes a repeat more or less patient; read only when a call repeats."""
        text = body or ""
        flags = _OPAQUE if body is not None and is_opaque(text) else 0
        if role is Role.MOVE:
            flags |= _MOVE
        failed = step.outcome in (Outcome.ERROR, Outcome.SOFT_ERROR)
        if (failed or len(text) < 200) and is_transient(text):  # noqa: PLR2004 - an error page is short
            flags |= _TRANSIENT
        elif not failed and step.outcome is not Outcome.DENIED and not is_terminal(text):
            waits = role in (Role.WAIT, Role.POLL) or step.tool in self._config.poll_tools
            if waits or is_pending(text):
                flags |= _WAITING
        return flags

    def _repeat(
        self,
        step: Step,
        call: Call,
        told: int,
        flags: int,
        streak: _Streak | None,
        *,
        quiet: bool,
    ) -> Sequence[Finding]:
        """Count an occurrence of a call; `quiet` while a reported cycle explains it."""
        if streak is not None and streak.attempt == self._attempt:
            return ()
        distance = self._turn - streak.turn - 1 if streak is not None else 0
        if streak is not None and (
            distance > self._config.window or (distance > 0 and flags & (_OPAQUE | _NOOP))
        ):
            streak = None
        if streak is None:
            fresh = _Streak(
                told, flags, _Mark.of(step), self._totals.copy(), self._attempt, self._turn, self._idle_ns,
                idle_at_first_ns=self._idle_ns, unknown=int(bool(flags & _NO_RESULT)), spans=[step.span_id],
            )  # fmt: skip
            self._streaks.put(call.signature, fresh)
            return ()
        gap = self._idle_ns - streak.idle_ns
        backing_off = streak.longest_gap_ns and gap >= max(
            1.25 * streak.longest_gap_ns, streak.longest_gap_ns + 1e9
        )
        streak.longest_gap_ns = max(streak.longest_gap_ns, gap)
        streak.idle_ns, streak.attempt, streak.turn = self._idle_ns, self._attempt, self._turn
        streak.flags = flags
        if backing_off and gap >= 2e9 and flags & (_WAITING | _TRANSIENT):  # noqa: PLR2004 - below, it is jitter
            return ()
        streak.count += 1
        streak.foreign += max(0, distance)
        streak.unknown += int(bool(flags & _NO_RESULT))
        _keep(streak.spans, step.span_id)
        if quiet and streak.foreign:
            return ()
        return self._judge(step, call, streak)

    def _judge(self, step: Step, call: Call, streak: _Streak) -> Sequence[Finding]:
        alarm, confirm = self._limits(streak)
        rank = 2 if streak.count >= confirm else 1 if streak.count >= alarm else -1
        if (
            rank < 0
            and streak.count >= self._config.suspect
            and streak.foreign <= 1
            and alarm <= self._config.successes
        ):
            rank = 0
        rank = min(rank, _ceiling(streak.flags, streak.unknown))
        if not streak.reported.due(rank, streak.count):
            return ()
        rule = "repeat" if streak.foreign <= 1 else "interleaved"
        what = (
            "refusal" if step.outcome is Outcome.DENIED else "error" if streak.flags & _FAILED else "result"
        )
        summary = f"{step.tool}: the same call brought the same {what} {streak.count} times and nothing changed in between"
        evidence: dict[str, Json] = {
            "rule": rule,
            "threshold": alarm if streak.reported.rank < 2 else confirm,  # noqa: PLR2004 - rank of critical
            "count": streak.count,
            "other_calls_between": streak.foreign,
            "period": 1,
            "call": f"{call.signature:016x}",
            "information": f"{streak.information:016x}",
            "span_ids": list(streak.spans),
            **self._common(streak.totals, streak.flags, streak.unknown),
        }
        return [_finding(step, streak.first, streak.reported, streak.count, summary, evidence)]

    def _limits(self, streak: _Streak) -> tuple[int, int]:
        """(warning, critical) for a streak: how many occurrences each takes."""
        config, flags = self._config, streak.flags
        if flags & _TRANSIENT:
            gaps = (streak.idle_ns - streak.idle_at_first_ns) / max(1, streak.count - 1)
            if gaps >= config.fast_s * 1e9:
                return config.patient_errors, config.patient_errors * 3 // 2
            return config.transient_errors, config.transient_errors + 1
        if flags & _WAITING or (flags & _MOVE and flags & _OPAQUE):
            return config.polls, config.polls * 2
        if flags & _NOOP:
            return config.unknown_results, config.unknown_results * 2
        failed = flags & _FAILED
        if streak.unknown * 2 > streak.count and not failed:
            return config.unknown_results, _NEVER
        strict = config.errors if failed else config.successes
        if streak.foreign <= 1:
            return strict, strict
        loose = config.interleaved_errors if failed else config.interleaved_successes
        if streak.foreign > streak.count:
            loose += 2
        return loose, loose + 4

    def _close(self, attempt: _Attempt) -> None:
        """An attempt is over: carry on, or end, what it continues at each distance."""
        tail = self._tail
        for period, cycle in self._cycles.items():
            if len(tail) >= period and tail[-period].signature == attempt.signature:
                if not cycle.run:
                    cycle.first, cycle.totals = tail[-period].first, self._totals.copy()
                cycle.run += 1
            elif cycle.run:
                self._cycles[period] = _Cycle()
        tail.append(attempt)

    def _cycle(self, step: Step, key: int, flags: int, role: Role) -> Sequence[Finding]:
        """Add a call to the current attempt and judge the sequence so far."""
        if role is Role.WAIT:
            return ()
        current = self._current
        if current is None:
            current = self._current = _Attempt(key, flags, flags, _Mark.of(step))
        elif current.signature != key:
            current.signature = (current.signature + key) & _MASK
            current.flags_any |= flags
            current.flags_all &= flags
        for period, cycle in self._cycles.items():
            if len(self._tail) < period or self._tail[-period].signature != current.signature:
                continue
            laps = (cycle.run + 1 + period) // period
            if laps < self._config.laps or cycle.first is None:
                continue
            lap = [*list(self._tail)[len(self._tail) - period + 1 :], current]
            if len({attempt.signature for attempt in lap}) == 1:
                continue
            return self._judge_cycle(step, period, laps, cycle, lap)
        return ()

    def _judge_cycle(
        self,
        step: Step,
        period: int,
        laps: int,
        cycle: _Cycle,
        lap: list[_Attempt],
    ) -> Sequence[Finding]:
        any_flags = all_flags = lap[0].flags_any
        for attempt in lap:
            any_flags |= attempt.flags_any
            all_flags &= attempt.flags_all
        patient = any_flags & _WAITING or all(a.flags_all & (_OPAQUE | _NO_RESULT | _TRANSIENT) for a in lap)
        limit = self._config.waiting_laps if patient else self._config.laps
        rank = 2 if laps > limit else 1 if laps >= limit else -1
        rank = min(rank, _ceiling(any_flags, int(bool(any_flags & _NO_RESULT))))
        if cycle.first is None or not cycle.reported.due(rank, laps):
            return ()
        tools = " > ".join(attempt.first.tool for attempt in lap)
        evidence: dict[str, Json] = {
            "rule": "cycle",
            "threshold": limit,
            "count": laps,
            "period": period,
            "call": f"{lap[-1].signature:016x}",
            "span_ids": [attempt.first.span_id for attempt in lap],
            **self._common(cycle.totals, any_flags, int(bool(any_flags & _NO_RESULT))),
        }
        summary = f"{laps} laps of the same {period} calls with the same results: {tools}"
        return [_finding(step, cycle.first, cycle.reported, laps * period, summary, evidence)]

    def _common(self, onset: _Totals, flags: int, unknown: int) -> dict[str, Json]:
        missing: list[Json] = []
        if flags & _NO_ARGUMENTS:
            missing.append("arguments")
        if unknown:
            missing.append("result")
        evidence: dict[str, Json] = {"missing": missing, "resets": list(_RESETS)}
        if self._totals.known:
            evidence["tokens_since_onset"] = {
                "input": self._totals.input_tokens - onset.input_tokens,
                "output": self._totals.output_tokens - onset.output_tokens,
            }
        if self._totals.cost_usd:
            evidence["cost_usd_since_onset"] = round(self._totals.cost_usd - onset.cost_usd, 6)
        return evidence

    def _late_call(self, step: Step, *, create: bool = False) -> Sequence[Finding]:
        """A step out of its place adds to a streak that it equals; it ends none, and starts one only if asked."""
        call = self._call_of(step)
        flags, body = _evidence(step, call)
        denied = step.outcome is Outcome.DENIED
        told = _information(call, flags, body, denied=denied)
        streak = self._streaks.touch(call.signature)
        if streak is None:
            return self._repeat(step, call, told, flags, None, quiet=True) if create else ()
        if create and call.known and streak.unknown and not flags & _NO_RESULT:
            streak.unknown -= 1
            if streak.information in (told, _unknown(call, flags)):
                streak.information = told
                return self._judge(step, call, streak)
            self._streaks.pop(call.signature)
            return self._repeat(step, call, told, flags, None, quiet=True)
        if streak.information != told and not denied and not _silent(flags, streak):
            return ()
        role = role_of(step.tool or "", step.arguments)
        streak.flags = flags | self._waiting_flags(step, role, body)
        streak.count += 1
        _keep(streak.spans, step.span_id)
        return self._judge(step, call, streak)

    def absorb(self, state: Json) -> None:
        """Take over what another instance knew of the same scope under another session id, as its past."""
        other = DoomLoop(self._config)
        other.restore(state)
        for signature, past in other._streaks.items():
            now = self._streaks.get(signature)
            if now is None:
                past.attempt = past.turn = 0
                past.idle_ns = past.idle_at_first_ns = self._idle_ns
                self._streaks.put(signature, past)
            elif now.information == past.information:
                now.count += past.count
                now.foreign += past.foreign
                now.unknown += past.unknown
                now.first, now.totals = past.first, past.totals
                now.spans = [*past.spans, *now.spans][-_SPANS_KEPT:]
                if past.reported.rank > now.reported.rank:
                    now.reported = past.reported
        for key, _ in other._seen.items():
            self._seen.put(key, value=True)
        self._runs.extendleft(run for run in other._runs if run not in self._runs)

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters and span ids."""
        return {
            "streaks": [[signature, streak.json()] for signature, streak in self._streaks.items()],
            "seen": [key for key, _ in self._seen.items()],
            "incomplete": [key for key, _ in self._incomplete.items()],
            "totals": self._totals.json(),
            "runs": list(self._runs),
            "ids": list(self._ids),
            "attempt": [
                self._attempt_id, self._attempt_end_ns, self._attempt, self._turn, self._last_end_ns,
                self._idle_ns, self._idle_at_tool_ns,
            ],
            "tail": [attempt.json() for attempt in self._tail],
            "current": self._current.json() if self._current is not None else None,
            "cycles": [[period, cycle.json()] for period, cycle in self._cycles.items() if cycle.run],
        }  # fmt: skip

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self.__init__(self._config)  # type: ignore[misc] # a clean instance of the same configuration
        saved: Any = state
        for signature, streak in saved["streaks"]:
            self._streaks.put(signature, _Streak.load(streak))
        for key in saved["seen"]:
            self._seen.put(key, value=True)
        for step_id in saved["incomplete"]:
            self._incomplete.put(step_id, value=True)
        self._totals = _Totals(*saved["totals"])
        self._runs.extend(saved["runs"])
        self._ids = tuple(saved["ids"])
        (
            self._attempt_id, self._attempt_end_ns, self._attempt, self._turn, self._last_end_ns,
            self._idle_ns, self._idle_at_tool_ns,
        ) = saved["attempt"]  # fmt: skip
        self._tail.extend(_Attempt.load(attempt) for attempt in saved["tail"])
        self._current = _Attempt.load(saved["current"]) if saved["current"] is not None else None
        for period, cycle in saved["cycles"]:
            self._cycles[period] = _Cycle.load(cycle)


def _evidence(step: Step, call: Call) -> tuple[int, str | None]:
    """What is known of an occurrence as bits, and the text that it brought back (None: not recorded)."""
    flags = 0 if call.known else _NO_ARGUMENTS
    if call.noop:
        flags |= _NOOP
    body = step.result
    if step.outcome is Outcome.ERROR or step.outcome is Outcome.SOFT_ERROR:
        flags |= _FAILED
        if step.error:
            body = f"{step.error}\x1e{body}" if body else step.error
        elif not body:
            body = None
    if body is None and step.outcome is not Outcome.DENIED:
        flags |= _NO_RESULT
    return flags, body


def _information(call: Call, flags: int, body: str | None, *, denied: bool) -> int:
    if denied:
        return hash64("denied")
    if call.noop and not flags & _FAILED:
        return hash64("noop")
    if body is None:
        return _unknown(call, flags)
    return information(f"{'e' if flags & _FAILED else 'o'}\x1e{body}", call.dropped)


def _unknown(call: Call, flags: int) -> int:
    """Stands for information that was not recorded."""
    return hash64(f"unknown\x1e{flags & _FAILED}\x1e{call.known}")


def _silent(flags: int, streak: _Streak) -> bool:
    """An unrecorded result contradicts nothing, if the outcomes agree."""
    return bool(flags & _NO_RESULT) and (flags & _FAILED) == (streak.flags & _FAILED)


def _ceiling(flags: int, unknown: int) -> int:
    """The highest rank of severity that the evidence allows."""
    return 0 if flags & _NO_ARGUMENTS else 1 if unknown else 2


def _compound(arguments: Json) -> bool:
    """A shell command of several parts may have changed something although the whole failed."""
    text = str(arguments)
    return "\\n" in text or "&&" in text or ";" in text or "\n" in text


def _keep(spans: list[str], span_id: str) -> None:
    """Keep the first half and the last half of the spans of a streak."""
    spans.append(span_id)
    if len(spans) > _SPANS_KEPT:
        del spans[_SPANS_KEPT // 2]


def _finding(
    step: Step,
    first: _Mark,
    reported: _Reported,
    occurrences: int,
    summary: str,
    evidence: dict[str, Json],
) -> Finding:
    return Finding(
        id=finding_id(RULE, first.step_id),
        kind=KIND,
        severity=_SEVERITIES[reported.rank],
        revision=reported.revision,
        session_id=step.session_id,
        session_ids=(step.session_id,),
        run_id=step.run_id,
        service=step.service,
        agent=step.agent,
        tool=step.tool,
        trace_id=step.trace_id,
        span_id=step.span_id,
        first_span_id=first.span_id,
        step_id=step.step_id,
        started_at=first.start_ns,
        detected_at=step.end_ns,
        occurrences=occurrences,
        summary=summary,
        detector=KIND,
        evidence=evidence,
    )
