"""Doom loop: the same call brings the same information, and nothing effective changed in between.

Nine shapes: a repeat (one stranger at most in between), an interleaved repeat, a call that recurs whatever
is done in between, a cycle of two to six calls, calls in a row of which none brings anything new, commands
of which most were made before, a sweep over ranges that were read before, a check that says the same after
change upon change, and a remedy that does not help. What counts as the same is said in
`detectors.signature`; tokens that look random and are all that differs from the last time do not count, nor
do the numbers of an error (`detectors.random_ids`). A streak ends when the call brings other information,
when another call may have changed something (`detectors.tool_role`), at a user's turn, in a new run, and
after a pause that says "come back later".
Waiting is not looping until it is: polls, growing gaps and transient errors get more patience. A denied
call is a repeat and never news. Calls of one model message are one attempt. A late step may add to a streak
and never ends one.

Loops of the second order: model calls, compactions and runs of an agent that fail in a row with one error.
The first of the kind that succeeds ends it; what tools do meanwhile does not.

What is missing lowers the verdict: without arguments it is `info`, without results or a known session
`warning` at most.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from collector.step import Kind
from detectors.again import Again
from detectors.bounds import is_unknown_session
from detectors.cycles import Cycles, Laps
from detectors.effects import Effects, says_failure
from detectors.evidence import (
    CHANGED,
    DENIED,
    FAILED,
    FAILURE,
    MOVE,
    NO_ARGUMENTS,
    NO_RESULT,
    NOOP,
    OPAQUE,
    RETURNED,
    SAYS_ERROR,
    TRANSIENT,
    WAITING,
    information_of,
    unrecorded,
)
from detectors.occurrence import (
    Occurrence,
    backs_off,
    is_compound,
    is_tight,
    key_of,
    may_wait,
    occurrence_of,
    patience_of,
    says_nothing,
    was_unrecorded,
)
from detectors.pacing import Pacing
from detectors.protocol import Finding, Severity, finding_id
from detectors.random_ids import without_numbers, without_random_ids
from detectors.ranges import Ranges, range_of
from detectors.recurrences import Recurrences, Seen
from detectors.remedies import Remedy
from detectors.result_text import is_pending, is_transient
from detectors.role import Role
from detectors.rows import Row
from detectors.scope import Recent
from detectors.signature import Names, call_of, hash64, identifiers, named
from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent, Streak
from detectors.tool_role import takes_program
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND = "doom_loop"
RULE = "doom_loop/1"
_NEVER = 1 << 30
_SEVERITIES = tuple(Severity)
_NOTE, _ALARM, _CONFIRMED = range(3)
_RUNS_KEPT = 8
_UNABLE_KEPT = 4
_MASKED_KEPT = 16

_ASIDE = (Role.WAIT, Role.THINK)
_STEERED = (Role.WAIT, Role.THINK, Role.POLL, Role.MOVE)
_SHORT_CHARS = 200
_ROUND = 3

_Told: TypeAlias = "tuple[str, dict[str, Json]]"  # a finding's summary and evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class DoomLoopConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    Counts are occurrences of one call with one information unless said otherwise; times are seconds.

    `suspect`: a note. `repeated_errors`, `repeated_results`: a warning, with one other call in between at
    most, or one to three occurrences; `errors`, `successes`: critical. `interleaved_errors`,
    `interleaved_successes`: a warning when more lies in between; two more when others are the majority;
    critical four later. `transient_errors`: a warning on errors that may go away,
    critical one later; `patient_errors` when the retries are at least `fast_s` apart. `polls`: a warning on a
    call that waits for something, critical at twice as many. `unknown_results`: a warning when no result was
    recorded. `laps`: a warning on a cycle, in laps, critical one later; half a lap less when all of it fails,
    one call more when nothing in three calls or more fails or changes anything; `waiting_laps` when it waits
    for something. `recurring_errors`: a warning on a call that brings the same error and nothing else,
    whatever others change in between, when every seventh turn or more is this call; `recurring` on a look or
    a long answer that stays the same; one less when every second turn is it; critical at twice as many.
    `stale`: a warning on calls in a row, of any order, that bring what they brought before; critical at twice
    as many. `again`: a warning when so many of the latest `again_within` calls of a shell or database were
    made before, and nothing was changed since; critical at twice as many in one row.
    `ranged_reads`: a warning on reads in a row of what was read before, critical at twice as many.
    `failing_rounds`: a warning on a check that says the same failure, the first included, with a successful
    change before each; `rounds` when its output tells neither failure nor success; critical at twice as many.
    `remedies`: a warning on an error that comes back after the same successful call each time; critical two
    later.
    `window`: occurrences further apart than this many attempts are no streak. `patience_s`: a pause after
    which everything starts anew. `calls_kept`, `seen_kept`: bounds of the state. `shadow`: findings
    are recorded only.
    """

    shadow: bool = False
    suspect: int = 3
    repeated_errors: int = 3
    repeated_results: int = 4
    errors: int = 4
    successes: int = 5
    interleaved_errors: int = 4
    interleaved_successes: int = 5
    transient_errors: int = 5
    patient_errors: int = 6
    polls: int = 10
    unknown_results: int = 5
    laps: int = 3
    waiting_laps: int = 10
    ranged_reads: int = 6
    failing_rounds: int = 5
    rounds: int = 10
    remedies: int = 3
    recurring_errors: int = 5
    recurring: int = 6
    stale: int = 8
    again: int = 3
    again_within: int = 5
    window: int = 30
    calls_kept: int = 48
    seen_kept: int = 256
    patience_s: float = 240.0
    fast_s: float = 5.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, float) and not value > 0:  # nan is not, either
                raise ValueError(f"{KIND}.{field.name} must be more than 0 seconds, not {value!r}")
            if isinstance(field.default, int) and not isinstance(field.default, bool) and value < 2:  # noqa: PLR2004 - one occurrence repeats nothing
                raise ValueError(f"{KIND}.{field.name} must be at least 2, not {value!r}")


_DEFAULTS = Tuned(DoomLoopConfig())


class DoomLoop:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[DoomLoopConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._config = tuned.base
        self._clear_all()

    def _clear_all(self) -> None:
        self._streaks = Recent[int, Streak](self._config.calls_kept)
        self._seen = Recent[int, int](self._config.seen_kept)
        self._again = Again()
        self._incomplete = Recent[str, bool](self._config.calls_kept)
        self._spent = Spent()
        self._runs: deque[str] = deque(maxlen=_RUNS_KEPT)
        self._ids: tuple[int, ...] = ()
        self._pacing = Pacing()
        self._cycles = Cycles()
        self._ranges = Ranges()
        self._effects = Effects()
        self._remedy = Remedy()
        self._recurrences = Recurrences()
        self._stale = Row()
        self._stale_attempt = -1
        self._masked = Recent[int, int](_MASKED_KEPT)
        self._unable = Recent[int, Streak](_UNABLE_KEPT)
        self._unable_ns = 0

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the streaks that it completed or carried on noticeably."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            if step.tool is None:
                return ()
            self._config = self._tuned.of(step.tool)
            return self._late_call(reading) if step.late else self._call(reading)
        if kind is not Kind.USER_TURN:
            return self._second_order(reading)
        if not step.late and not self._is_fed_back(step):
            self._pacing.pass_time(step)
            self._enter_run(step)
            self._forget()
            self._unable.clear()
        return ()

    def amend(self, reading: Reading) -> Sequence[Finding]:
        """Take in that more is known of an earlier step.

        Only what was missing counts: arguments or a result that come after the step are taken as a late
        occurrence of the full call. Everything else about a streak stays as it was judged.
        """
        step = reading.step
        if step.kind is not Kind.TOOL_CALL or step.tool is None or step.step_id not in self._incomplete:
            return ()
        self._config = self._tuned.of(step.tool)
        self._incomplete.pop(step.step_id)
        occurrence = occurrence_of(reading)
        streak = self._streaks.touch(occurrence.call.signature)
        if streak is None:
            return self._begin(occurrence)
        if not streak.unknown or occurrence.flags & NO_RESULT:
            return self._late_call(reading)
        streak.unknown -= 1
        if streak.information not in (occurrence.information, unrecorded(occurrence.call, occurrence.flags)):
            return self._begin(occurrence)
        streak.information = occurrence.information
        return self._judge(occurrence, streak)

    def absorb(self, state: Json) -> None:
        """Take over what another instance knew of the same scope under another session id, as its past."""
        past = DoomLoop(self._tuned)
        past.restore(state)
        for signature, streak in past._streaks.items():
            present = self._streaks.get(signature)
            if present is None:
                streak.attempt = streak.turn = 0
                streak.idle_ns = streak.idle_at_first_ns = self._pacing.idle_ns
                self._streaks.put(signature, streak)
            elif present.information == streak.information:
                _prepend(streak, present)
        for key in past._seen:
            self._seen.put(key, -1)
        self._runs.extendleft(run for run in past._runs if run not in self._runs)

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, step and span ids."""
        return {
            "streaks": [[signature, streak.json()] for signature, streak in self._streaks.items()],
            "seen": [[key, era] for key, era in self._seen.items()],
            "again": self._again.json(),
            "incomplete": list(self._incomplete),
            "spent": list(self._spent),
            "runs": list(self._runs),
            "ids": list(self._ids),
            "pacing": self._pacing.json(),
            "cycles": self._cycles.json(),
            "ranges": self._ranges.json(),
            "effects": self._effects.json(),
            "remedy": self._remedy.json(),
            "recurrences": self._recurrences.json(),
            "stale": [self._stale_attempt, self._stale.json()],
            "masked": [[signature, masked] for signature, masked in self._masked.items()],
            "unable": [[signature, streak.json()] for signature, streak in self._unable.items()],
            "unable_ns": self._unable_ns,
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear_all()
        saved: Any = state
        for signature, streak in saved["streaks"]:
            self._streaks.put(signature, Streak.load(streak))
        for key, era in saved["seen"]:
            self._seen.put(key, era)
        self._again = Again.load(saved["again"])
        for step_id in saved["incomplete"]:
            self._incomplete.put(step_id, value=True)
        self._spent = Spent(*saved["spent"])
        self._runs.extend(saved["runs"])
        self._ids = tuple(saved["ids"])
        self._pacing = Pacing.load(saved["pacing"])
        self._cycles = Cycles.load(saved["cycles"])
        self._ranges = Ranges.load(saved["ranges"])
        self._effects = Effects.load(saved["effects"])
        self._remedy = Remedy.load(saved["remedy"])
        self._recurrences = Recurrences.load(saved["recurrences"])
        self._stale_attempt, self._stale = saved["stale"][0], Row.load(saved["stale"][1])
        for signature, masked in saved["masked"]:
            self._masked.put(signature, masked)
        for signature, streak in saved["unable"]:
            self._unable.put(signature, Streak.load(streak))
        self._unable_ns = saved["unable_ns"]

    def _enter_run(self, step: Step) -> None:
        """A run that was never seen ends the streaks of the runs before it."""
        if not step.run_id or step.run_id in self._runs:
            return
        if self._runs:
            self._forget()
        self._runs.append(step.run_id)

    def _is_fed_back(self, step: Step) -> bool:
        """Some frameworks hand results to the model in a user's message, within the run."""
        return step.run_id in self._runs and self._pacing.is_fed_back(step)

    def _forget(self) -> None:
        """A new beginning: what was done before is no measure any more."""
        self._pause()
        self._seen.clear()
        self._effects.clear()
        self._remedy.clear()

    def _pause(self) -> None:
        """Nothing goes on over this."""
        self._settle()
        self._cycles.clear()
        self._recurrences.clear()
        self._stale.end()
        self._again.clear()

    def _settle(self) -> None:
        """Something changed: streaks end here. A cycle does not, whose first lap is made of such changes."""
        self._streaks.clear()
        self._ranges.clear()
        self._ids = ()

    def _call(self, reading: Reading) -> Sequence[Finding]:
        """Judge a tool call in its place."""
        step = reading.step
        self._enter_run(step)
        pacing = self._pacing
        pacing.pass_time(step)
        self._spent = self._spent.plus_call()
        now = occurrence_of(reading)
        waits = now.role is Role.WAIT
        if pacing.call(step, waits=waits) >= self._config.patience_s * 1e9:
            self._pause()
        if pacing.begins_attempt(step, aside=now.role in _ASIDE):
            self._cycles.close(self._spent)
        streak = self._streaks.touch(now.call.signature)
        if streak is not None and says_nothing(now.flags, streak):
            now.information = streak.information
        elif streak is not None and was_unrecorded(now.flags, streak):
            streak.information = now.information
        elif now.flags & FAILED or (streak and streak.information != now.information):
            self._overlook_random_ids(reading, now, streak)
        streak = self._end_or_keep(now, streak)
        if streak is not None:
            now.flags |= patience_of(now)
        if now.flags & (NO_ARGUMENTS | NO_RESULT):
            self._incomplete.put(step.step_id, value=True)
        self._ids = identifiers(now.body) if now.body else ()
        findings = [*self._cycle(now), *self._sweep(now, reading.names), *self._outcome(now)]
        findings.extend(self._repeat(now, streak) if streak is not None else self._begin(now))
        often = self._again_in(now)
        return findings or self._recur(now, streak) or self._nothing_new(now, streak) or often

    def _again_in(self, now: Occurrence) -> Sequence[Finding]:
        """Say when most of the latest calls had been made before, and nothing was changed since."""
        if now.role in _STEERED or now.flags & (DENIED | NOOP | NO_ARGUMENTS):
            return ()
        self._again.recorded |= now.body is not None
        if now.body is None and not self._again.recorded:
            return ()
        if not takes_program(now.step.tool or "", now.step.arguments):
            return ()
        counts = now.again and not now.flags & RETURNED and not patience_of(now) & (WAITING | TRANSIENT)
        again, config = self._again, self._config
        signature = now.call.signature if counts else 0
        count = again.call(signature, self._pacing.attempt, config.again_within)
        if signature:
            again.row.add_mark(now.mark, self._spent)
        if count < config.again:
            return ()
        summary = f"{count} of the latest {config.again_within} calls had been made before, the same results"
        return self._say_row("again", now, again.row, (config.again, 2 * config.again), summary)

    def _overlook_random_ids(self, reading: Reading, now: Occurrence, streak: Streak | None) -> None:
        """Take a result for the one before when only tokens that look random differ, back to back.

        The numbers of an error are as much noise, from the second time on that the same call fails.
        """
        if now.body is None:
            return
        masked = without_random_ids(now.body)
        if masked is None and streak is not None and now.flags & FAILED and not is_pending(now.body):
            masked = without_numbers(now.body)
        if masked is None:
            return
        makes_things = now.role is Role.CHANGE or reading.names.delegates
        shape = information_of(now.call, now.flags, masked, makes_things=makes_things)
        signature, turn = now.call.signature, self._pacing.turn
        if (
            streak is not None
            and turn - streak.turn <= 1
            and not (now.flags ^ streak.flags) & FAILED
            and self._masked.get(signature) == shape
        ):
            now.information = streak.information
        self._masked.put(signature, shape)

    def _second_order(self, reading: Reading) -> Sequence[Finding]:
        """Account for a model call, compaction or run of this agent, and follow those that keep failing.

        Each failure makes the context longer that made it fail, or costs a whole run. Runs that overlap are
        one attempt.
        """
        step = reading.step
        self._config = self._tuned.base
        if step.kind is not Kind.AGENT_RUN:
            self._pacing.pass_time(step)
            self._spent = self._spent.plus_model(step)
        if step.late or not (reading.failed or len(self._unable)):
            return ()
        now = occurrence_of(reading)
        signature = now.call.signature
        if not reading.failed:
            self._unable.pop(signature)
            return ()
        if step.kind is Kind.AGENT_RUN:
            if step.start_ns < self._unable_ns:
                return ()
            self._unable_ns = step.end_ns
        self._pacing.attempt += 1
        streak = self._unable.touch(signature)
        if streak is None or streak.information != now.information:
            self._unable.put(signature, self._streak_of(now))
            return ()
        streak.turn = self._pacing.turn
        now.flags |= patience_of(now)
        return self._repeat(now, streak)

    def _end_or_keep(self, now: Occurrence, streak: Streak | None) -> Streak | None:
        """End what this call ends: all streaks, its own, or none; return its own if that goes on."""
        key = key_of(now)
        era = self._again.era
        seen = self._seen.touch(key)
        novel = now.novel = seen is None
        now.again = seen == era
        if novel:
            self._stale.end()
            if now.role is Role.CHANGE and not now.flags & (FAILED | DENIED | NOOP):
                self._again.era = era = era + 1
        if not now.again:
            self._seen.put(key, era)
        if streak is not None and streak.information != now.information:
            if now.call.known:
                if not novel:
                    now.flags |= RETURNED
                    if now.body is not None and says_failure(now.body):
                        now.flags |= SAYS_ERROR
                self._settle()
            return None
        if novel and streak is None and self._may_have_changed(now):
            self._settle()
        return streak

    def _may_have_changed(self, now: Occurrence) -> bool:
        """Tell whether a call that was never made before did something, or uses an id that was just found."""
        if now.flags & (DENIED | NOOP):
            return False
        if now.role is Role.CHANGE:
            return not now.flags & FAILED or is_compound(now.step.arguments)
        if now.role is Role.OTHER:
            return not now.flags & FAILED
        return bool(self._ids) and not self._ids_unused(now)

    def _ids_unused(self, now: Occurrence) -> bool:
        return not any(found in self._ids for found in identifiers(str(now.step.arguments)))

    def _begin(self, now: Occurrence) -> Sequence[Finding]:
        """A first occurrence."""
        self._streaks.put(now.call.signature, self._streak_of(now))
        return ()

    def _streak_of(self, now: Occurrence) -> Streak:
        pacing = self._pacing
        return Streak(
            now.information,
            now.flags,
            now.mark,
            self._spent,
            pacing.attempt,
            pacing.turn,
            pacing.idle_ns,
            pacing.idle_ns,
            1 if now.flags & NO_RESULT else 0,
        )

    def _repeat(self, now: Occurrence, streak: Streak) -> Sequence[Finding]:
        """Count an occurrence of a call that was made before."""
        pacing = self._pacing
        if streak.attempt == pacing.attempt:
            return ()
        between = max(0, pacing.turn - streak.turn - 1)
        if between > self._config.window or (between and now.flags & (OPAQUE | NOOP)):
            return self._begin(now)
        gap = pacing.idle_ns - streak.idle_ns
        waited = backs_off(now, streak, gap)
        if pacing.waited_attempt >= streak.attempt and may_wait(now):
            now.flags |= WAITING
        streak.longest_gap_ns = max(streak.longest_gap_ns, gap)
        streak.idle_ns, streak.attempt, streak.turn = pacing.idle_ns, pacing.attempt, pacing.turn
        streak.flags = now.flags
        if waited:
            return ()
        streak.count += 1
        streak.foreign += between
        streak.unknown += 1 if now.flags & NO_RESULT else 0
        streak.keep(now.step.span_id)
        if streak.foreign and self._cycles.reported():
            return ()
        return self._judge(now, streak)

    def _late_call(self, reading: Reading) -> Sequence[Finding]:
        """A step out of its place adds to a streak that it equals, and does nothing else."""
        step, now = reading.step, occurrence_of(reading)
        streak = self._streaks.get(now.call.signature)
        if streak is None:
            return ()
        if streak.information != now.information and not says_nothing(now.flags, streak):
            return ()
        streak.flags = now.flags | patience_of(now)
        streak.count += 1
        streak.unknown += 1 if now.flags & NO_RESULT else 0
        streak.keep(step.span_id)
        return self._judge(now, streak)

    def _judge(self, now: Occurrence, streak: Streak) -> Sequence[Finding]:
        """Say what a streak's count means."""
        alarm, confirm = self._limits(streak, tool=now.step.tool)
        count, flags = streak.count, streak.flags
        unknown = streak.unknown if count - streak.unknown < confirm else 0
        rank = _CONFIRMED if count >= confirm else _ALARM if count >= alarm else -1
        if (
            rank < 0
            and count >= self._config.suspect
            and streak.foreign <= 1
            and not flags & (WAITING | MOVE)
        ):
            rank = _NOTE
        rank = min(rank, _ceiling(now, flags, unknown))
        if rank < 0 or not streak.said().due(rank, count):
            return ()
        what = "refusal" if flags & DENIED else "error" if flags & FAILURE else "result"
        name = now.step.tool or now.step.kind.value
        summary = f"{name}: same call, same {what} {count} times, nothing changed in between"
        evidence: dict[str, Json] = {
            "rule": "repeat" if is_tight(streak) else "interleaved",
            "count": count,
            "threshold": confirm if count >= confirm else alarm,
            "period": 1,
            "other_calls_between": streak.foreign,
            "call": f"{now.call.signature:016x}",
            **named(now.call),
            "information": f"{streak.information:016x}",
            "span_ids": list(streak.spans),
        }
        said = streak.said()
        if now.call.known:
            evidence["signature"] = f"{now.call.signature:016x}"
        evidence |= self._common(now, streak.onset, flags, unknown)
        return [_finding(now, streak.first, said, count, (summary, evidence))]

    def _limits(self, streak: Streak, *, tool: str | None) -> tuple[int, int]:  # noqa: PLR0911 - a table
        """How many occurrences of a streak are worth a warning, and how many are critical."""
        config, flags = self._config, streak.flags
        failed = flags & FAILURE
        if flags & TRANSIENT:
            return self._limits_of_retries(streak)
        if flags & WAITING or (flags & MOVE and flags & (OPAQUE | NO_RESULT)):
            return config.polls, config.polls * 2
        if flags & NOOP:
            return config.interleaved_successes + 2, config.interleaved_successes * 2
        if streak.unknown * 2 > streak.count and not failed:
            return config.unknown_results * (1 if is_tight(streak) else 2), _NEVER
        if is_tight(streak) and not failed:
            return config.repeated_results, config.successes
        if is_tight(streak):
            told = tool is not None and not streak.unknown
            return config.repeated_errors if told else config.errors, config.errors
        loose = config.interleaved_errors if failed else config.interleaved_successes
        loose += 2 if streak.foreign > streak.count else 0
        return loose, loose + 4

    def _limits_of_retries(self, streak: Streak) -> tuple[int, int]:
        """The same for errors that may go away: more for those who give them time to."""
        config = self._config
        gaps_ns = (streak.idle_ns - streak.idle_at_first_ns) / max(1, streak.count - 1)
        if gaps_ns >= config.fast_s * 1e9:
            return config.patient_errors, config.patient_errors * 3 // 2
        return config.transient_errors, config.transient_errors + 1

    def _cycle(self, now: Occurrence) -> Sequence[Finding]:
        """Add a call to the sequence and say what its laps mean."""
        if now.role in _ASIDE:
            return ()
        self._cycles.add(key_of(now), now.flags, now.mark)
        found = self._cycles.laps(self._config.laps - 1)
        return self._judge_laps(now, found) if found is not None else ()

    def _judge_laps(self, now: Occurrence, found: Laps) -> Sequence[Finding]:
        attempts, lap, cycle = found
        laps = attempts // len(lap)
        flags = 0
        for attempt in lap:
            flags |= attempt.any_flags
        failing = flags & (FAILED | SAYS_ERROR)
        # What goes up and down by itself, as a flaky test or a gauge does, is no cycle; a change that is made
        # and taken back without success is one.
        if flags & RETURNED and not (flags & CHANGED and failing):
            return ()
        weak = all(attempt.all_flags & (OPAQUE | NO_RESULT | TRANSIENT) for attempt in lap)
        acts = flags & CHANGED and failing  # who acts and fails waits for nothing
        patient = (flags & WAITING and not acts) or (weak and not flags & FAILED)
        limit = self._config.waiting_laps if patient else self._config.laps
        needed = limit * len(lap)
        if not patient and all(attempt.all_flags & FAILED for attempt in lap):
            needed -= len(lap) // 2
        elif len(lap) >= _ROUND and not flags & (FAILURE | CHANGED):
            needed += 1  # to check everything once more in the end is no loop yet
        rank = _CONFIRMED if attempts >= needed + len(lap) else _ALARM if attempts >= needed else -1
        unknown = 1 if flags & NO_RESULT else 0
        rank = min(rank, _ceiling(now, flags, unknown))
        if not cycle.reported.due(rank, laps):
            return ()
        tools = " > ".join(attempt.first.tool for attempt in lap)
        summary = f"{laps} laps of the same {len(lap)} calls with the same results: {tools}"
        evidence: dict[str, Json] = {
            "rule": "cycle",
            "count": laps,
            "threshold": limit if rank < _CONFIRMED else limit + 1,
            "period": len(lap),
            "call": f"{lap[-1].signature:016x}",
            "span_ids": [attempt.first.span_id for attempt in lap],
            "signatures": [f"{attempt.signature:016x}" for attempt in lap],
        }
        evidence |= self._common(now, cycle.onset, flags, unknown)
        return [_finding(now, cycle.first, cycle.reported, attempts, (summary, evidence))]

    def _sweep(self, now: Occurrence, names: Names) -> Sequence[Finding]:
        """Follow ranged reads of one resource, and say when they bring nothing that was not read before."""
        if now.flags & (FAILURE | NO_ARGUMENTS) or now.role is Role.CHANGE:
            return ()
        asked = range_of(now.step.arguments)
        if asked is None:
            return ()
        tool = now.step.tool or ""
        resource = call_of(tool, asked.rest, names).signature
        self._ranges.turn = self._pacing.turn
        sweep = self._ranges.read(resource, asked, now.call.signature)
        if sweep is None:
            return ()
        if sweep.first is None:
            sweep.first, sweep.onset = now.mark, self._spent
        limit = self._config.ranged_reads
        rank = _CONFIRMED if sweep.again >= 2 * limit else _ALARM if sweep.again >= limit else -1
        rank = min(rank, _ceiling(now, 0, 0))
        if not sweep.reported.due(rank, sweep.again):
            return ()
        summary = f"{tool}: {sweep.again} reads in a row of ranges that had been read before"
        evidence: dict[str, Json] = {
            "rule": "ranged_reads",
            "count": sweep.again,
            "threshold": limit if rank == _ALARM else 2 * limit,
            "call": f"{resource:016x}",
            "span_ids": [sweep.first.span_id, now.step.span_id],
        }
        evidence |= self._common(now, sweep.onset, 0, 0)
        return [_finding(now, sweep.first, sweep.reported, sweep.again, (summary, evidence))]

    def _recur(self, now: Occurrence, streak: Streak | None) -> Sequence[Finding]:
        """Say when a call keeps bringing the same over changes that others made in between."""
        if now.role in _STEERED or now.body is None or now.flags & (DENIED | NOOP):
            return ()
        call, pacing, config = now.call, self._pacing, self._config
        # Whether changes help a check is another question, which `no_effect` and `flail` ask.
        era = self._effects.changes if now.role is Role.OTHER else 0
        seen = Seen((now.information, era), now.mark, self._spent, pacing.attempt, pacing.turn)
        row = self._recurrences.see(call.signature, seen)
        if row is None or row.count < min(config.recurring_errors, config.recurring) - 1 or not row.dense:
            return ()
        if streak is not None and streak.count >= row.count:
            return ()
        if patience_of(now) & (OPAQUE | WAITING | TRANSIENT):
            return ()
        limit = self._limit_of_recurring(now) - row.every_other
        summary = f"{now.step.tool}: the same {row.count} times, whatever was done in between"
        return self._say_row("recurring", now, row, (limit, 2 * limit), summary)

    def _nothing_new(self, now: Occurrence, streak: Streak | None) -> Sequence[Finding]:
        """Say when call after call brings what it brought before, in whatever order they are made."""
        if now.flags & RETURNED:
            self._stale.end()
        if now.novel or now.role in _STEERED or now.flags & (RETURNED | DENIED | NOOP | NO_RESULT):
            return ()
        attempt = self._pacing.attempt
        if attempt == self._stale_attempt or patience_of(now) & (OPAQUE | WAITING | TRANSIENT):
            return ()
        self._stale_attempt = attempt
        self._stale.add_mark(now.mark, self._spent)
        said = streak.reported if streak is not None else None
        if (said is not None and said.rank >= _ALARM) or self._cycles.reported():
            return ()
        limit, row = self._config.stale, self._stale
        summary = f"{row.count} calls in a row that had been made before and brought the same as then"
        return self._say_row("nothing_new", now, row, (limit, 2 * limit), summary)

    def _limit_of_recurring(self, now: Occurrence) -> int:
        """How often a call may bring the same: what passes may go on passing."""
        config, body = self._config, now.body or ""
        if now.flags & FAILED:
            return config.recurring_errors
        if now.role is Role.LOOK or (now.role is Role.OTHER and len(body) >= _SHORT_CHARS):
            tells = len(body) >= _SHORT_CHARS or says_failure(body) is not False
            return config.recurring if tells else _NEVER
        return config.recurring_errors if says_failure(body) else _NEVER

    def _outcome(self, now: Occurrence) -> Sequence[Finding]:
        """Follow what changes and remedies bring about, and say when it is nothing."""
        flags = now.flags
        if flags & (FAILED | DENIED):
            # Whether changes help a check that fails is another question: here it is no more of this one.
            self._effects.forget(now.call.signature)
            return () if flags & DENIED else self._after_remedy(now)
        if now.role in _ASIDE:
            return ()
        changes = now.role is Role.CHANGE
        self._remedy.succeeded(key_of(now), acts=changes or now.role is Role.OTHER)
        if changes and not flags & NOOP:
            self._effects.changed()
        if now.role is not Role.OTHER or flags & (NOOP | NO_ARGUMENTS):
            return ()
        return self._after_change(now)

    def _after_remedy(self, now: Occurrence) -> Sequence[Finding]:
        if now.body is None or is_transient(now.body):
            self._remedy.clear()
            return ()
        error = hash64(f"{now.step.tool}\x1e{now.information}")
        row = self._remedy.failed(error, now.step, self._spent)
        if row is None:
            return ()
        limit = self._config.remedies
        summary = f"{now.step.tool}: the same error {row.count} times, after the same remedy each time"
        return self._say_row("remedy", now, row, (limit, limit + 2), summary)

    def _after_change(self, now: Occurrence) -> Sequence[Finding]:
        config = self._config
        row = self._effects.check(now.call.signature, now.information, now.step, self._spent)
        if row is None or now.body is None or row.count < min(config.failing_rounds, config.rounds):
            return ()
        failing = says_failure(now.body)
        if failing is False:
            return ()
        limit = config.failing_rounds if failing else config.rounds
        summary = f"{now.step.tool}: the same outcome {row.count} times, with a change before each"
        return self._say_row("no_effect", now, row, (limit, 2 * limit), summary)

    def _say_row(
        self, rule: str, now: Occurrence, row: Row, limits: tuple[int, int], summary: str
    ) -> Sequence[Finding]:
        limit, confirm = limits
        rank = _CONFIRMED if row.count >= confirm else _ALARM if row.count >= limit else -1
        rank = min(rank, _ceiling(now, now.flags, 0))
        if row.first is None or not row.reported.due(rank, row.count):
            return ()
        evidence: dict[str, Json] = {
            "rule": rule,
            "count": row.count,
            "threshold": confirm if row.count >= confirm else limit,
            "call": f"{now.call.signature:016x}",
            **named(now.call),
            "information": f"{now.information:016x}",
            "span_ids": list(row.spans),
        }
        evidence |= self._common(now, row.onset, now.flags, 0)
        return [_finding(now, row.first, row.reported, row.count, (summary, evidence))]

    def _common(self, now: Occurrence, onset: Spent, flags: int, unknown: int) -> Mapping[str, Json]:
        """Evidence that every finding has."""
        missing: list[Json] = []
        if flags & NO_ARGUMENTS:
            missing.append("arguments")
        if unknown:
            missing.append("result")
        if is_unknown_session(now.step.session_id):
            missing.append("session")
        resets: list[Json] = [
            "other information from the same call",
            "a change by another call",
            "a user turn",
            "a new run",
            f"a pause of {self._config.patience_s:g} s",
        ]
        return {"missing": missing, "resets": resets, "since_onset": self._spent.since(onset)}


def _ceiling(now: Occurrence, flags: int, unknown: int) -> int:
    """The highest rank of severity that the evidence allows."""
    if flags & NO_ARGUMENTS:
        return _NOTE
    return _ALARM if unknown or is_unknown_session(now.step.session_id) else _CONFIRMED


def _prepend(past: Streak, present: Streak) -> None:
    """Two streaks of one call turn out to be one."""
    present.count += past.count
    present.foreign += past.foreign
    present.unknown += past.unknown
    present.first, present.onset = past.first, past.onset
    present.spans = [*(past.spans or [past.first.span_id]), *present.spans][-SPANS_KEPT:]
    if past.reported is not None and past.reported.rank > present.said().rank:
        present.reported = past.reported


def _finding(now: Occurrence, first: Mark, said: Reported, count: int, told: _Told) -> Finding:
    step = now.step
    return Finding(
        id=finding_id(RULE, first.step_id),
        kind=KIND,
        severity=_SEVERITIES[said.rank],
        revision=said.revision,
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
        occurrences=count,
        summary=told[0],
        detector=KIND,
        evidence=told[1],
    )
