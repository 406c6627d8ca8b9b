"""Flail: one thing is tried with ever other arguments, and nothing is learned from it.

Five shapes. *Same error*: attempts of one tool with differing arguments that fail in one family of errors
(`detectors.error_family`), without a success or a diagnosis in between. *Often*: the same whatever works in
between, in many of the latest attempts. *Echo*: commands of which each prints the same. *No news*: queries
reworded or numbers moved a little, and the same information or nothing each time, reported as a success.
*No effect*: edits that differ, and the same things fail after each of them (`detectors.rounds`).

A diagnosis is a successful call of any other sort that brings information not seen before in the scope, or
changes something; what follows it is counted anew. Many attempts at the same error are flail whatever lies
in between. An error that names something new, or counts fewer wrong things than ever, is progress. Identical
calls are the business of doom_loop. Calls of one model message are one attempt. Critical only when the hit
rate of the tool's perturbations is low; never without results or a known session.

Source: field reports on flailing agents (one parameter at a time without attribution, hit rate under
30 % forces a re-plan).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.churn import Churn
from detectors.echoes import Echoes
from detectors.edit_rounds import EditRounds, RoundLimits, limit_of
from detectors.flail_config import FlailConfig
from detectors.learned import goes_away, is_answer, is_empty, is_invented, teaches_nothing
from detectors.pacing import Pacing
from detectors.perturbations import Perturbed, Tries
from detectors.protocol import Finding, Severity, finding_id
from detectors.role import Role
from detectors.rows import told
from detectors.scope import Recent
from detectors.streaks import Mark, Reported, Spent
from detectors.tool_role import role_of_name, takes_program
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from collector.step import Json, Step
    from detectors.error_family import Family
    from detectors.reading import Reading
    from detectors.rounds import Rounds

KIND = "flail"
RULE = "flail/1"
_SEVERITIES = tuple(Severity)
_ALARM, _CONFIRMED = 1, 2
_RUNS_KEPT: Final = 8
_TOOLS_KEPT: Final = 16
_SEEN_KEPT: Final = 256
_SHOWN_PARAMETERS: Final = 3
_LONG_LINES: Final = 4
_NO_TOOL: Final = "\x1fno such tool"
_ASIDE = (Role.WAIT, Role.THINK)


_DEFAULTS = Tuned(FlailConfig())


class Flail:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[FlailConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._config = tuned.base
        self._clear()

    def _clear(self) -> None:
        kept = self._tuned.base.streaks_kept
        self._errors = Recent[str, Perturbed](kept)
        self._often = Recent[str, Perturbed](kept)
        self._variants = Recent[str, Perturbed](kept)
        self._rounds = EditRounds(kept)
        self._echoes = Echoes()
        self._tries = Recent[str, Tries](_TOOLS_KEPT)
        self._seen = Recent[int, bool](_SEEN_KEPT)
        self._runs: deque[str] = deque(maxlen=_RUNS_KEPT)
        self._pacing = Pacing()
        self._spent = Spent()

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the streaks that it completed or carried on noticeably."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            return self._call(reading) if step.tool is not None else ()
        if kind is Kind.MODEL_CALL or kind is Kind.COMPACTION:
            self._pacing.pass_time(step)
            self._spent = self._spent.plus_model(step)
        elif kind is Kind.USER_TURN and not step.late and not self._is_fed_back(step):
            self._pacing.pass_time(step)
            self._enter_run(step)
            self._forget()
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, ids, and short excerpts of arguments."""
        return {
            "errors": [[key, streak.json()] for key, streak in self._errors.items()],
            "often": [[key, streak.json()] for key, streak in self._often.items()],
            "variants": [[key, streak.json()] for key, streak in self._variants.items()],
            "rounds": self._rounds.json(),
            "echoes": self._echoes.json(),
            "tries": [[tool, tries.failing, list(tries.outcomes)] for tool, tries in self._tries.items()],
            "seen": list(self._seen),
            "runs": list(self._runs),
            "pacing": self._pacing.json(),
            "spent": list(self._spent),
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear()
        saved: Any = state
        for key, streak in saved["errors"]:
            self._errors.put(key, Perturbed.load(streak))
        for key, streak in saved["often"]:
            self._often.put(key, Perturbed.load(streak))
        for key, streak in saved["variants"]:
            self._variants.put(key, Perturbed.load(streak))
        self._rounds.restore(saved["rounds"])
        self._echoes = Echoes.load(saved["echoes"])
        for tool, failing, outcomes in saved["tries"]:
            self._tries.put(tool, Tries(failing, list(outcomes)))
        for key in saved["seen"]:
            self._seen.put(key, value=True)
        self._runs.extend(saved["runs"])
        self._pacing = Pacing.load(saved["pacing"])
        self._spent = Spent(*saved["spent"])

    def _is_fed_back(self, step: Step) -> bool:
        """Some frameworks hand results to the model in a user's message, within the run."""
        return step.run_id in self._runs and self._pacing.is_fed_back(step)

    def _enter_run(self, step: Step) -> None:
        if not step.run_id or step.run_id in self._runs:
            return
        if self._runs:
            self._forget()
        self._runs.append(step.run_id)

    def _forget(self) -> None:
        """A new beginning."""
        self._errors.clear()
        self._often.clear()
        self._variants.clear()
        self._rounds.forget()
        self._echoes.clear()
        self._tries.clear()
        self._seen.clear()

    def _call(self, reading: Reading) -> Sequence[Finding]:
        step, role = reading.step, reading.role
        if step.late:
            return ()
        self._enter_run(step)
        self._spent = self._spent.plus_call()
        self._pacing.pass_time(step)
        pause = self._pacing.call(step, waits=role is Role.WAIT)
        if pause >= self._tuned.base.patience_s * 1e9:
            self._forget()
        self._pacing.begins_attempt(step, aside=role in _ASIDE)
        if role in _ASIDE or step.outcome is Outcome.DENIED:
            return ()
        self._config = self._tuned.of(step.tool)
        echo = self._echo(reading)
        if not reading.failed and is_empty(reading.body):
            found = self._uninformed(reading, f"{step.tool}\x1fempty", nothing=True)
        elif reading.failed or (reading.soft is not None and not self._goes_on(reading)):
            found = self._failure(reading)
        else:
            found = self._success(reading)
        return found or echo

    def _goes_on(self, reading: Reading) -> bool:
        """Whether a success that reads as an error has more to say, and not what was said before."""
        return (reading.body or "").count("\n") >= _LONG_LINES and reading.information not in self._seen

    def _success(self, reading: Reading) -> Sequence[Finding]:
        """A call that brought something, or changed something."""
        step, role = reading.step, reading.role
        tool = step.tool or ""
        information = reading.information
        novel = self._seen.touch(information) is None
        if novel:
            self._seen.put(information, value=True)
        failing = self._rounds.report(reading)
        if role is Role.CHANGE:
            self._rounds.change(reading)
        if failing is not None:
            return self._no_effect(reading, self._rounds.run(reading, failing, self._spent))
        self._rounds.passes(reading)
        tries = self._tries.get(tool)
        if tries is not None and tries.failing:
            tries.add(hit=True)
            tries.failing = False
        if novel and role is Role.LOOK:
            self._rounds.look()
        if self._errors and (novel or role is Role.CHANGE):
            self._learned(tool, role)
        unsettled = self._rounds.settles_nothing(reading, self._spent)
        if unsettled is not None:
            return self._no_effect(reading, unsettled)
        if not novel and role is not Role.POLL:
            return self._uninformed(reading, f"{tool}\x1f{information:x}", nothing=False)
        return ()

    def _echo(self, reading: Reading) -> Sequence[Finding]:
        """Say when a program says the same, or nothing, whatever way it is called."""
        row, config, step = self._echoes.hear(reading, self._spent), self._config, reading.step
        if row is None:
            return ()
        blank = row is self._echoes.blanks
        limit, what = (config.blanks, "nothing") if blank else (config.echoes, "the same output")
        if row.count < limit or not row.reported.due(_ALARM, row.count):
            return ()
        evidence: dict[str, Json] = {
            "rule": "blank" if blank else "echo",
            "count": row.count,
            "threshold": limit,
            "operation": reading.operation,
            "hit_rate": 0.0,
        }
        evidence |= self._common(reading, row.onset)
        summary = f"{step.tool}: {row.count} other commands in a row, {what} each time: {reading.operation}"
        return [told(RULE, row, step, summary, evidence)]

    def _learned(self, tool: str, role: Role) -> None:
        """A success of the tool ends its streaks; of a shell only what is no mere look; others begin anew."""
        ends = role_of_name(tool) is not None or role is not Role.LOOK
        for key, streak in list(self._errors.items()):
            if ends and key.startswith(f"{tool}\x1f"):
                self._errors.pop(key)
            else:
                streak.begin_anew()

    def _failure(self, reading: Reading) -> Sequence[Finding]:
        """A call that went wrong."""
        found = self._no_effect(reading, self._rounds.fails(reading, self._spent))
        family = reading.family
        if family is None or not reading.call.known or is_answer(reading):
            return found
        step, call = reading.step, reading.call
        tool = step.tool or ""
        about = tool if family.specific else f"{tool}\x1f{reading.operation}"
        invented = is_invented(reading)
        key = _NO_TOOL if invented else f"{about}\x1f{family.hash:x}"
        streak = self._streak(self._errors, key, step)
        if streak.count and streak.attempt == self._pacing.attempt:
            return found
        streak.template = family.template[:160]
        again = call.signature in streak.since
        if streak.count and streak.churn.goes_up(step.arguments):
            streak.churn.add(step.arguments)
            return found
        hit = not invented and streak.names_more(family.named, family.amount)
        if hit:
            streak.begin_anew()
        tries = self._tries.touch(tool)
        if tries is None:
            tries = Tries()
            self._tries.put(tool, tries)
        tries.failing = True
        if not again:
            tries.add(hit=hit)
        self._place(streak)
        streak.add(call.signature, step.arguments, Mark.of(step))
        found = [*found, *self._judge_errors(reading, streak, tries)]
        return [*found, *self._judge_often(reading, family, streak)]

    def _judge_often(self, reading: Reading, family: Family, streak: Perturbed) -> Sequence[Finding]:
        """Say when a tool meets one error again and again, whatever works in between.

        Of a tool that takes a program (a shell, a database) it has to be the very same error of one program.
        """
        step, tool = reading.step, reading.step.tool or ""
        verbatim = takes_program(tool, step.arguments)
        if not family.specific or goes_away(reading):
            return ()
        key = f"{reading.operation}\x1f{reading.information}" if verbatim else f"{tool}\x1f{family.hash:x}"
        often = self._streak(self._often, key, step)
        if often.names_more(family.named, family.amount) and not verbatim:
            often.turns, often.tried = [], []
        self._place(often)
        often.template = streak.template
        often.add(reading.call.signature, None, Mark.of(step))
        limit, turns = self._often_limits(tool, verbatim=verbatim)
        count = often.within(turns)
        if count < limit or len(often.tried) == 1 or streak.reported.rank >= _ALARM:
            return ()
        often.churn = streak.churn
        what = often.template[:80]
        summary = f"{tool}: the same error {count} times in {turns} calls, whatever worked in between: {what}"
        more: dict[str, Json] = {"rule": "often", "threshold": limit, "error": often.template}
        return self._say(reading, often, (_ALARM, often.count), summary, more)

    def _often_limits(self, tool: str, *, verbatim: bool) -> tuple[int, int]:
        """How often one error of a tool is an alarm, and within how many attempts."""
        config = self._config
        if not verbatim:
            return config.often, config.often_within
        programs = role_of_name(tool) is None
        return (config.often_programs if programs else config.often_statements), config.verbatim_within

    def _judge_errors(self, reading: Reading, streak: Perturbed, tries: Tries) -> Sequence[Finding]:
        config, distinct = self._config, len(streak.since)
        limit = config.transient_errors if goes_away(reading) else config.errors
        at_once = distinct >= limit - 1 and streak.recent >= limit
        in_all = len(streak.tried) >= limit and streak.count >= max(limit, config.errors_in_all)
        if not (at_once or in_all) or tries.rate() >= config.hit_rate:
            return ()
        confirmed = len(streak.tried) >= config.perturbations
        what = streak.template[:80] or "an error without text"
        tool = reading.step.tool
        summary = f"{tool}: {streak.count} attempts with other arguments, the same error each time: {what}"
        more: dict[str, Json] = {
            "rule": "same_error",
            "threshold": limit if at_once else max(limit, config.errors_in_all),
            "error": streak.template,
            "hit_rate": round(tries.rate(), 3),
        }
        rank = _CONFIRMED if confirmed else _ALARM
        return self._say(reading, streak, (rank, streak.count), summary, more)

    def _uninformed(self, reading: Reading, key: str, *, nothing: bool) -> Sequence[Finding]:
        """A success that says nothing new: an information that was there before, or none at all."""
        step, call, role = reading.step, reading.call, reading.role
        if role is Role.CHANGE and nothing:
            self._rounds.change(reading)
        if role in (Role.POLL, Role.MOVE) or not call.known or not teaches_nothing(reading, nothing=nothing):
            return ()
        streak = self._streak(self._variants, key, step)
        if streak.count and streak.attempt == self._pacing.attempt:
            return ()
        if nothing and takes_program(step.tool or "", step.arguments):
            if streak.template != reading.operation or streak.turn != self._pacing.turn - 1:
                streak.row, streak.template = 0, reading.operation
            streak.row += 1
        near = not streak.count or call.signature in streak.since or streak.churn.is_variant(step.arguments)
        self._place(streak)
        if not near:
            streak.churn.add(step.arguments)
        if not near and streak.row < self._config.nothings:
            return ()
        streak.add(call.signature, step.arguments, Mark.of(step))
        # Of an information that is there again, the first that brought it was not kept.
        count, distinct = streak.count + (not nothing), len(streak.since) + (not nothing)
        few = count < self._config.variants or distinct * 2 < self._config.variants
        if few and streak.row < self._config.nothings:
            return ()
        what = "nothing found" if nothing else "the same result"
        summary = f"{step.tool}: asked {count} times in other words, {what} each time"
        more: dict[str, Json] = {"rule": "no_news", "threshold": self._config.variants, "hit_rate": 0.0}
        rank = _CONFIRMED if distinct > self._config.perturbations else _ALARM
        return self._say(reading, streak, (rank, count), summary, more)

    def _no_effect(self, reading: Reading, rounds: Rounds | None) -> Sequence[Finding]:
        """What rounds of edits, the latest of which has just failed, are worth."""
        if rounds is None:
            return ()
        config = self._config
        limit = limit_of(
            rounds,
            RoundLimits(
                config.rounds,
                config.rounds_with_looks,
                config.verbatim,
                config.verbatim_with_looks,
                config.unchanged,
            ),
        )
        if rounds.count < limit:
            return ()
        step = reading.step
        fewest = "" if rounds.best is None else f", never fewer than {rounds.best}"
        same = "failures" if rounds.fails else "output"
        summary = (
            f"{step.tool}: {rounds.count} rounds of edits, and the same {same} after each of them{fewest}"
        )
        rank = min(
            _CONFIRMED if rounds.count > limit else _ALARM, _ceiling(step, unknown=reading.body is None)
        )
        if not rounds.reported.due(rank, rounds.count):
            return ()
        evidence: dict[str, Json] = {
            "rule": "no_effect",
            "count": rounds.count,
            "threshold": limit,
            "operation": reading.operation,
            "fewest_failures": rounds.best,
            "hit_rate": 0.0,
            "span_ids": list(rounds.spans),
        }
        evidence |= self._common(reading, rounds.onset)
        return [_finding(step, rounds.first, rounds.reported, (rounds.count, summary, evidence))]

    def _streak(self, streaks: Recent[str, Perturbed], key: str, step: Step) -> Perturbed:
        """The streak under a key; a new one when there is none, or none that this attempt could belong to."""
        streak = streaks.touch(key)
        if streak is None or self._pacing.turn - streak.turn > self._config.gap:
            pacing = self._pacing
            streak = Perturbed(Mark.of(step), self._spent, pacing.attempt, pacing.turn, Churn())
            streaks.put(key, streak)
        return streak

    def _place(self, streak: Perturbed) -> None:
        if not streak.count:
            streak.onset = self._spent
        streak.attempt, streak.turn = self._pacing.attempt, self._pacing.turn

    def _say(
        self,
        reading: Reading,
        streak: Perturbed,
        strength: tuple[int, int],
        summary: str,
        more: Mapping[str, Json],
    ) -> Sequence[Finding]:
        """Say what a streak's `strength`, rank and count, is worth, with what its arguments did."""
        rank, count = strength
        rank = min(rank, _ceiling(reading.step, unknown=reading.body is None))
        if not streak.reported.due(rank, count):
            return ()
        churn = streak.churn
        moving = churn.parameters()[:_SHOWN_PARAMETERS]
        values: dict[str, Json] = {name: list(churn.values(name)) for name in moving}
        entropy: dict[str, Json] = {name: churn.entropy(name) for name in moving}
        evidence: dict[str, Json] = {
            **more,
            "count": count,
            "perturbations": len(streak.tried),
            "parameters": list(moving),
            "values": values,
            "entropy": entropy,
            "span_ids": list(streak.spans),
        }
        evidence |= self._common(reading, streak.onset)
        return [_finding(reading.step, streak.first, streak.reported, (count, summary, evidence))]

    def _common(self, reading: Reading, onset: Spent) -> Mapping[str, Json]:
        """Evidence that every finding has."""
        missing: list[Json] = ["result"] if reading.body is None else []
        if is_unknown_session(reading.step.session_id):
            missing.append("session")
        resets: list[Json] = [
            "a success",
            "an error that names something new, or fewer failures",
            "new information from another call",
            "a user turn",
            "a new run",
            f"a pause of {self._tuned.base.patience_s:g} s",
        ]
        return {"missing": missing, "resets": resets, "since_onset": self._spent.since(onset)}


def _ceiling(step: Step, *, unknown: bool) -> int:
    """The highest rank of severity that the evidence allows."""
    return _ALARM if unknown or is_unknown_session(step.session_id) else _CONFIRMED


def _finding(step: Step, first: Mark, said: Reported, told: tuple[int, str, Mapping[str, Json]]) -> Finding:
    count, summary, evidence = told
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
        summary=summary,
        detector=KIND,
        evidence=evidence,
    )
