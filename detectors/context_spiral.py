"""Context spiral: the context is refilled with what filled it before.

Four shapes. A compaction follows a compaction, and hardly anything was done in between. A compaction
succeeds, and the context is as long as before. One error fills the stretch before a compaction and again the
stretch after it. The context grows by half and more while one error comes back in a row. Compactions that
fail are `doom_loop`'s (a loop of the second order).

The length of the context is the input of the agent's model calls, in tokens as the provider counted them; for
what came before a compaction the longest since the last one, so that small calls in between (titles,
summaries) do not matter. Without token counts the first and the third shape remain.

Sources: the issue ("each retry pours its traceback into the context, which nears compaction"); the report of
1,279 sessions with 50 and more consecutive failures each, from a compaction without a ceiling.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from collector.step import Kind
from detectors.rows import Row, missing_of, rank_of, told
from detectors.scope import Recent
from detectors.streaks import Spent
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.protocol import Finding
    from detectors.reading import Reading

_Told: TypeAlias = "tuple[str, dict[str, Json]]"  # a finding's summary and its own evidence

KIND = "context_spiral"
RULE = "context_spiral/1"
_FAMILIES_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSpiralConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    Counts are those of a warning; critical at twice as many. `compactions`: in a row with fewer than `work`
    successful tool calls before each but the first. `unshrunk`: in a row after which the next model call's
    input is at least `shrink` times the longest before. `relapses`: in a row before each of which one and the
    same error was at least half of all calls and came `relapse_errors` times. `errors`: of one family in a
    row, while the input grew by `growth` (a factor) and `growth_tokens`. `shadow`: findings are
    recorded only.
    """

    shadow: bool = False
    compactions: int = 3
    work: int = 3
    unshrunk: int = 2
    shrink: float = 0.9
    relapses: int = 2
    relapse_errors: int = 3
    errors: int = 6
    growth: float = 1.5
    growth_tokens: int = 10_000

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, float) and not value > 0:  # nan is not, either
                raise ValueError(f"{KIND}.{field.name} must be more than 0, not {value!r}")
            least = 2 if field.name in _COUNTS else 1
            if type(field.default) is int and value < least:
                raise ValueError(f"{KIND}.{field.name} must be at least {least}, not {value!r}")


_COUNTS = frozenset({"compactions", "unshrunk", "relapses", "errors"})
_DEFAULTS = Tuned(ContextSpiralConfig())


class ContextSpiral:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[ContextSpiralConfig] = _DEFAULTS) -> None:
        self._config = tuned.base
        self._spent = Spent()
        self._compactions, self._unshrunk, self._relapses, self._errors = Row(), Row(), Row(), Row()
        self._calls = 0
        self._worked = 0
        self._families = Recent[int, int](_FAMILIES_KEPT)
        self._filled_by = 0
        self._longest = 0
        self._longest_model = ""
        self._latest = 0
        self._before: tuple[int, str] | None = None
        self._family = 0
        self._at_first_error = 0

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return what it completed or carried on noticeably."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            if not step.late:
                self._call(reading)
        elif kind is Kind.MODEL_CALL:
            self._spent = self._spent.plus_model(step)
            if not (reading.failed or step.late):
                return self._model(step)
        elif kind is Kind.COMPACTION:
            self._spent = self._spent.plus_model(step)
            if not (reading.failed or step.late):
                return self._compaction(step)
        elif kind is Kind.USER_TURN and not step.late:
            self._compactions.end()
            self._errors.end()
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, step and span ids."""
        rows = (self._compactions, self._unshrunk, self._relapses, self._errors)
        return {
            "spent": list(self._spent),
            "rows": [row.json() for row in rows],
            "stretch": [self._calls, self._worked, self._filled_by],
            "families": [[family, count] for family, count in self._families.items()],
            "context": [self._longest, self._longest_model, self._latest],
            "before": list(self._before) if self._before is not None else None,
            "family": [self._family, self._at_first_error],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        saved: Any = state
        self._spent = Spent(*saved["spent"])
        self._compactions, self._unshrunk, self._relapses, self._errors = map(Row.load, saved["rows"])
        self._calls, self._worked, self._filled_by = saved["stretch"]
        self._families.clear()
        for family, count in saved["families"]:
            self._families.put(family, count)
        self._longest, self._longest_model, self._latest = saved["context"]
        self._before = (saved["before"][0], saved["before"][1]) if saved["before"] is not None else None
        self._family, self._at_first_error = saved["family"]

    def _call(self, reading: Reading) -> None:
        before = self._spent
        self._spent = before.plus_call()
        self._calls += 1
        if not reading.failed:
            self._worked += 1
            self._errors.end()
            return
        told = reading.family
        family = told.hash if told is not None else 0
        self._families.put(family, (self._families.touch(family) or 0) + 1)
        if family != self._family:
            self._errors.end()
            self._family = family
        if self._errors.first is None:
            self._at_first_error = self._latest
        self._errors.add(reading.step, before)

    def _model(self, step: Step) -> Sequence[Finding]:
        """Compare the length of the context with what it was before a compaction, and before the errors."""
        tokens = step.usage.input_tokens
        if tokens is None:
            return ()
        found: Sequence[Finding] = ()
        model = step.model or ""
        before = self._before
        if before is not None and model == before[1]:
            self._before = None
            found = self._compare(step, tokens, before[0])
        if tokens > self._longest:
            self._longest, self._longest_model = tokens, model
        self._latest = tokens
        return found or self._grown(step, tokens)

    def _compare(self, step: Step, tokens: int, before: int) -> Sequence[Finding]:
        row, config = self._unshrunk, self._config
        if tokens < config.shrink * before:
            row.end()
            return ()
        row.add(step, self._spent)
        summary = f"the context is as long after a compaction as before, {row.count} times in a row"
        more: dict[str, Json] = {"tokens_before": before, "tokens_after": tokens}
        return self._say("unshrunk", row, step, config.unshrunk, (summary, more))

    def _grown(self, step: Step, tokens: int) -> Sequence[Finding]:
        row, config, start = self._errors, self._config, self._at_first_error
        if row.count < config.errors or not start or _is_side_call(tokens, self._longest):
            return ()
        if tokens < config.growth * start or tokens - start < config.growth_tokens:
            return ()
        summary = f"the context grew from {start} to {tokens} tokens while one error came {row.count} times"
        more: dict[str, Json] = {"tokens_before": start, "tokens_after": tokens}
        return self._say("errors", row, step, config.errors, (summary, more))

    def _compaction(self, step: Step) -> Sequence[Finding]:
        """Judge the stretch since the last compaction, and begin another."""
        config, spent = self._config, self._spent
        if self._longest:
            self._before = (self._longest, self._longest_model)
        self._longest, self._longest_model = 0, ""
        found = self._relapse(step)
        row = self._compactions
        if self._worked >= config.work:
            row.end()
        row.add(step, spent)
        self._calls = self._worked = 0
        self._families.clear()
        summary = f"{row.count} compactions with hardly anything done in between"
        return [*found, *self._say("compactions", row, step, config.compactions, (summary, {}))]

    def _relapse(self, step: Step) -> Sequence[Finding]:
        """Tell whether the stretch before this compaction was filled by the error of the stretch before."""
        row, config = self._relapses, self._config
        family, count = max(self._families.items(), key=lambda item: (item[1], -item[0]), default=(0, 0))
        if count < config.relapse_errors or count * 2 < self._calls:
            family = 0
        if not family or family != self._filled_by:
            row.end()
        self._filled_by = family
        if not family:
            return ()
        row.add(step, self._spent)
        summary = f"the context was filled by the same error before each of {row.count} compactions"
        more: dict[str, Json] = {"error_family": f"{family:016x}", "errors": count, "calls": self._calls}
        return self._say("relapses", row, step, config.relapses, (summary, more))

    def _say(self, rule: str, row: Row, step: Step, limit: int, what: _Told) -> Sequence[Finding]:
        summary, more = what
        missing = missing_of(step, arguments=False)
        rank = rank_of(row.count, limit, 2 * limit, missing)
        if not row.reported.due(rank, row.count):
            return ()
        resets: list[Json] = [_RESETS[rule], "a user turn"] if rule in _OF_TURN else [_RESETS[rule]]
        evidence: dict[str, Json] = {
            "rule": rule,
            "count": row.count,
            "threshold": limit if row.count < 2 * limit else 2 * limit,
            "missing": missing,
            "resets": resets,
            "since_onset": self._spent.since(row.onset),
            **more,
        }
        return [told(RULE, row, step, summary, evidence)]


_OF_TURN = frozenset({"compactions", "errors"})
_RESETS = {
    "compactions": "successful tool calls between two compactions",
    "unshrunk": "a compaction after which the context is shorter",
    "relapses": "a stretch that another error fills, or none",
    "errors": "a call that succeeds, another error",
}


def _is_side_call(tokens: int, longest: int) -> bool:
    """Tell whether a model call is a side call, which does not carry the context.

    >>> _is_side_call(300, 50_000), _is_side_call(49_000, 50_000)
    (True, False)
    """
    return tokens * 2 < longest
