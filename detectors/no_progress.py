"""No progress: an agent that is busy, and learns and changes nothing.

Four shapes. No news: look after look whose results hold no word that the scope has not seen, whatever was
asked. Rewording: one tool, asked in other words each time, answers the same each time. Plan churn: a plan is
written down again and again, and the states of its items do not move. Burn: tokens go on being spent, and
nothing is learnt, changed or failing less.

Progress is a result with unseen words (words that the call itself brought along are none), a change that was
not made before, and a new low of failures. Waiting, polling, thinking and short answers are neither progress
nor lack of it. The calls of one model message are one attempt; a late step only adds to what was seen.

Sources: the issue; rules 8 and 15 of peers (qwen-code's read-like rule, openclaw's status pattern of plans);
the reports macanderson/stella#2543, jwbron/egg#3595.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collector.step import Kind, Outcome
from detectors.evidence import NOOP
from detectors.news import words_in
from detectors.plan_status import is_plan_tool, status_pattern
from detectors.result_text import is_opaque, is_pending
from detectors.rewording import Latest, Sketch, head_of
from detectors.role import Role
from detectors.rows import Row, missing_of, rank_of, told
from detectors.streaks import Spent
from detectors.tool_role import role_of_name
from detectors.tuning import Tuned
from detectors.word_memory import WordMemory

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.protocol import Finding
    from detectors.reading import Reading

KIND = "no_progress"
RULE = "no_progress/1"
_ASIDE = (Role.WAIT, Role.THINK, Role.POLL)
_FEW = 12
_NOISE = 0.03
_ASKED = 1024
_FAILURES = re.compile(
    r"(\d{1,6}) (?:tests? |checks? |specs? )?(?:failed|failures?|failing|errors?|problems?)\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoProgressConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    Each is the count of a warning; critical at twice as many. `looks`: looks in a row without a word that is
    new. `rewordings`: calls in a row of one tool with other arguments and the same answer. `plans`: plans in
    a row whose states do not move. `burn_turns` and `burn_tokens`: attempts and tokens (input and output of
    all model calls) without progress, both of which must be reached. `min_words`: a result of fewer different
    words is a short answer, which tells nothing. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    looks: int = 8
    rewordings: int = 4
    plans: int = 5
    burn_turns: int = 20
    burn_tokens: int = 400_000
    min_words: int = 12

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "shadow" and value < 2:  # noqa: PLR2004 - one is nothing in a row
                raise ValueError(f"{KIND}.{field.name} must be at least 2, not {value!r}")


_DEFAULTS = Tuned(NoProgressConfig())


class NoProgress:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[NoProgressConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear_all()

    def _clear_all(self) -> None:
        self._words = WordMemory()
        self._latest = Latest()
        self._looks, self._rewordings, self._plans, self._burn = Row(), Row(), Row(), Row()
        self._pattern = ""
        self._failures = -1
        self._spent = Spent()
        self._run_id = ""
        self._attempt_id: str | None = None

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the row that it completed or carried on noticeably."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            return self._call(reading) if step.tool is not None else ()
        if kind is Kind.MODEL_CALL or kind is Kind.COMPACTION:
            self._spent = self._spent.plus_model(step)
        elif kind is Kind.USER_TURN and not step.late:
            self._end_rows()
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, step and span ids."""
        return {
            "words": self._words.json(),
            "latest": self._latest.json(),
            "rows": [row.json() for row in (self._looks, self._rewordings, self._plans, self._burn)],
            "pattern": self._pattern,
            "failures": self._failures,
            "spent": list(self._spent),
            "run": self._run_id,
            "attempt": self._attempt_id,
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        saved: Any = state
        self._words = WordMemory.load(saved["words"])
        self._latest = Latest.load(saved["latest"])
        self._looks, self._rewordings, self._plans, self._burn = map(Row.load, saved["rows"])
        self._pattern, self._failures = saved["pattern"], saved["failures"]
        self._spent = Spent(*saved["spent"])
        self._run_id, self._attempt_id = saved["run"], saved["attempt"]

    def _end_rows(self) -> None:
        """Something new begins; what was seen stays seen."""
        self._looks.end()
        self._rewordings.end()
        self._plans.end()
        self._burn.end()
        self._latest = Latest()
        self._pattern = ""
        self._failures = -1

    def _call(self, reading: Reading) -> Sequence[Finding]:
        step = reading.step
        role = reading.role
        before = self._spent
        self._spent = before.plus_call()
        words = reading.news
        unseen = self._words.unseen(words)
        self._words.keep(unseen)
        if role in _ASIDE or step.late:
            return ()
        if step.run_id != self._run_id:
            self._run_id = step.run_id
            self._end_rows()
        same_attempt = step.attempt_id is not None and step.attempt_id == self._attempt_id
        self._attempt_id = step.attempt_id
        config = self._tuned.of(step.tool)
        if step.tool is not None and is_plan_tool(step.tool):
            return () if same_attempt else self._plan(step, config, before)
        fresh = self._has_news(reading, words, unseen)
        reworded = self._reword(reading, words, config, before, same_attempt=same_attempt)
        if fresh or self._answers_otherwise(reading) or self._changed(reading):
            self._plans.end()
            self._looks.end()
            self._burn.end()
            return reworded
        if same_attempt or self._is_progress_of_failures(reading):
            return reworded
        self._burn.add(step, before)
        return reworded or self._look(reading, words, config, before) or self._burnt(step, config)

    def _has_news(self, reading: Reading, words: frozenset[int], unseen: list[int]) -> bool:
        """Tell whether a result says anything that was not said before.

        In a long one, three words in a hundred are noise: counters, clocks, what was read wrong off a screen.
        """
        new = len(unseen)
        if new <= len(words) * _NOISE:
            return False
        if new > _FEW:
            return True
        asked = words_in(_beginning(reading.step.arguments))
        return sum(word not in asked for word in unseen) > len(words) * _NOISE

    def _answers_otherwise(self, reading: Reading) -> bool:
        """Tell whether a call that was made before brings what it never brought: a number has moved."""
        asked = reading.call.signature & 0xFFFFFFFF
        answered = (reading.call.signature ^ reading.information) & 0xFFFFFFFF
        before = not self._words.unseen((asked,))
        fresh = bool(self._words.unseen((answered,)))
        if fresh:
            self._words.keep((asked, answered))
        return before and fresh

    def _changed(self, reading: Reading) -> bool:
        """Tell whether a call did something that it had not done before in the same way."""
        step = reading.step
        if reading.failed or step.outcome is Outcome.DENIED or reading.flags & NOOP:
            return False
        role = reading.role
        if role is not Role.CHANGE and (role is not Role.OTHER or len(reading.news) >= _FEW):
            return False
        key = (reading.call.signature * 31 + reading.information) & 0xFFFFFFFF
        if not self._words.unseen((key,)):
            return False
        self._words.keep((key,))
        return True

    def _is_progress_of_failures(self, reading: Reading) -> bool:
        """Tell whether fewer things fail than ever before since the rows began."""
        body = reading.body or ""
        if not ("fail" in body or "error" in body or "problem" in body):
            return False
        found = _FAILURES.findall(body)
        if not found:
            return False
        count = sum(map(int, found))
        lower = 0 <= count < self._failures
        if lower or self._failures < 0:
            self._failures = count
        if lower:
            self._looks.end()
            self._burn.end()
        return lower

    def _look(
        self, reading: Reading, words: frozenset[int], config: NoProgressConfig, before: Spent
    ) -> Sequence[Finding]:
        """Count a look that brought nothing new."""
        step, body = reading.step, reading.body
        if reading.failed or body is None or not _asks(reading):
            return ()
        long = len(words) >= config.min_words
        if not long and (words or reading.role is not Role.LOOK or (is_opaque(body) and body.strip())):
            return ()
        row = self._looks
        row.add(step, before)
        if row.count in (config.looks, 2 * config.looks) and is_pending(body):
            row.end()  # who waits need not learn anything
            return ()
        summary = f"{step.tool}: the {row.count}th look in a row that brought nothing new"
        return self._say("no_news", row, step, config.looks, summary)

    def _reword(
        self,
        reading: Reading,
        words: frozenset[int],
        config: NoProgressConfig,
        before: Spent,
        *,
        same_attempt: bool,
    ) -> Sequence[Finding]:
        """Compare with the result before, when the same tool was asked something else."""
        step, latest, row = reading.step, self._latest, self._rewordings
        body = reading.body
        if same_attempt:
            return ()
        if body is None or len(words) < config.min_words or reading.failed or not _asks(reading):
            if latest.tool:
                row.end()
                self._latest = Latest()
            return ()
        head, tool, signature = head_of(body), step.tool or "", reading.call.signature
        if latest.tool != tool or latest.head != head:
            row.end()
            self._latest = Latest(tool, signature, reading.information, head)
            row.add(step, before)
            return ()
        if signature == latest.signature and row.count == 1:
            return ()
        sketch = Sketch.of(words, body)
        if latest.information != reading.information and not latest.like(sketch):
            row.end()
        self._latest = Latest(tool, signature, reading.information, head, sketch, latest.sketch)
        row.add(step, before)
        summary = f"{step.tool}: asked in other words {row.count} times, the same answer each time"
        return self._say("rewording", row, step, config.rewordings, summary)

    def _plan(self, step: Step, config: NoProgressConfig, before: Spent) -> Sequence[Finding]:
        """Compare a plan's states with those of the plan before."""
        pattern, row = status_pattern(step.arguments), self._plans
        if not pattern:
            return ()
        if pattern != self._pattern:
            row.end()
        self._pattern = pattern
        row.add(step, before)
        summary = f"{step.tool}: the plan was written down {row.count} times, and no item's state moved"
        return self._say("plan_churn", row, step, config.plans, summary)

    def _burnt(self, step: Step, config: NoProgressConfig) -> Sequence[Finding]:
        row = self._burn
        onset, now = row.onset, self._spent
        used = (now.input_tokens or 0) + (now.output_tokens or 0)
        used -= (onset.input_tokens or 0) + (onset.output_tokens or 0)
        if used < config.burn_tokens:
            return ()
        summary = f"{used} tokens in {row.count} calls since anything was learnt or changed"
        return self._say("burn", row, step, config.burn_turns, summary)

    def _say(self, rule: str, row: Row, step: Step, limit: int, summary: str) -> Sequence[Finding]:
        if row.count < limit:
            return ()
        missing = missing_of(step, arguments=rule != "burn")
        rank = rank_of(row.count, limit, 2 * limit, missing)
        if not row.reported.due(rank, row.count):
            return ()
        resets: list[Json] = ["a result with new words", "a change that was not made before", "a user turn"]
        evidence: dict[str, Json] = {
            "rule": rule,
            "count": row.count,
            "threshold": limit if row.count < 2 * limit else 2 * limit,
            "missing": missing,
            "resets": resets,
            "since_onset": self._spent.since(row.onset),
        }
        return [told(RULE, row, step, summary, evidence)]


def _asks(reading: Reading) -> bool:
    """Tell whether a call asks something in words of its own choice.

    Commands of a shell that are no looks do not: to run a program with other options is to try it out.
    """
    if reading.role is Role.OTHER:
        return role_of_name(reading.step.tool or "") is not None
    return reading.role is Role.LOOK


def _beginning(arguments: Json) -> str:
    """Arguments as text, of each the beginning."""
    if isinstance(arguments, Mapping):
        return " ".join(
            value[:_ASKED] if isinstance(value, str) else str(value)[:_ASKED] for value in arguments.values()
        )
    return str(arguments)[:_ASKED]
