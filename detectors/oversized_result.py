"""Oversized result: what a tool brings back, or the list of the tools itself, fills the model's context.

Each tool's results are a row of their own. A result is oversized above `tokens`, and above `share` of the
input of the model call that reads it; a set of definitions likewise. Tokens are estimated, four characters
each, which is right to a quarter for English and code. A note; a warning when one tool does it `repeats`
times and its oversized results are `cost_tokens` or more in sum. Definitions are a note always: they are a
matter of configuration, and no run is ill from them.

Sources: the issue ("tool results are the second token sink: trim, cap, summarize"; a declaration costs 200 to
400 tokens, so that 100 tools eat 20,000 to 40,000).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from collector.step import Kind
from detectors.protocol import Severity
from detectors.rows import Row, missing_of, told
from detectors.scope import Recent
from detectors.streaks import Mark, Spent
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.protocol import Finding
    from detectors.reading import Reading

KIND = "oversized_result"
RULE = "oversized_result/1"
CHARS_A_TOKEN = 4
_TOOLS_KEPT = 32
_WAITING_KEPT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class OversizedResultConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    `tokens`: estimated tokens of one result or set of definitions above which it is oversized. `share`: of
    the input tokens of the model call that reads it, 0 to 1, above which it is so too, from `least_tokens`
    on. `repeats` and `cost_tokens`: a warning when one tool's oversized results are that many and that
    large in sum. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    tokens: int = 8_000
    share: float = 0.25
    least_tokens: int = 2_000
    repeats: int = 5
    cost_tokens: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"{KIND}.share must be more than 0 and at most 1, not {self.share!r}")
        for config_field in dataclasses.fields(self):
            value = getattr(self, config_field.name)
            if type(config_field.default) is int and value < 1:
                raise ValueError(f"{KIND}.{config_field.name} must be at least 1, not {value!r}")


_DEFAULTS = Tuned(OversizedResultConfig())


@dataclass(slots=True)
class _Tool:
    """The oversized results of one tool (or sets of definitions): how many, and how many tokens in sum."""

    row: Row = field(default_factory=Row)
    tokens: int = 0
    largest: int = 0


class OversizedResult:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[OversizedResultConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._spent = Spent()
        self._tools = Recent[str, _Tool](_TOOLS_KEPT)
        self._unread: list[tuple[Mark, int]] = []
        self._results = 0
        self._definitions = 0
        self._input = 0

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return what it shows to be oversized."""
        step = reading.step
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            return self._call(reading) if step.tool is not None else ()
        if kind is Kind.MODEL_CALL or kind is Kind.COMPACTION:
            return self._model(step)
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: counters, names of tools, step and span ids."""
        return {
            "spent": list(self._spent),
            "tools": [
                [name, tool.row.json(), tool.tokens, tool.largest] for name, tool in self._tools.items()
            ],
            "unread": [[list(mark), tokens] for mark, tokens in self._unread],
            "sums": [self._results, self._definitions, self._input],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        saved: Any = state
        self._spent = Spent(*saved["spent"])
        self._tools.clear()
        for name, row, tokens, largest in saved["tools"]:
            self._tools.put(name, _Tool(Row.load(row), tokens, largest))
        self._unread = [(Mark(*mark), tokens) for mark, tokens in saved["unread"]]
        self._results, self._definitions, self._input = saved["sums"]

    def _call(self, reading: Reading) -> Sequence[Finding]:
        """Measure a result; what is not oversized by itself is kept until a model call reads it."""
        step = reading.step
        before = self._spent
        self._spent = before.plus_call()
        tokens = len(step.result or step.error or "") // CHARS_A_TOKEN
        self._results += tokens
        config = self._tuned.of(step.tool)
        if tokens < config.least_tokens or step.late:
            return ()
        if tokens >= config.tokens:
            return self._result(step, Mark.of(step), tokens, None, before)
        self._unread = [*self._unread, (Mark.of(step), tokens)][-_WAITING_KEPT:]
        return ()

    def _model(self, step: Step) -> Sequence[Finding]:
        """Compare what a model call had to read with all of its input."""
        self._spent = self._spent.plus_model(step)
        given = step.usage.input_tokens
        if step.late:
            return ()
        found: list[Finding] = []
        unread, self._unread = self._unread, []
        if given:
            self._input += given
            for mark, tokens in unread:
                if tokens > self._tuned.of(mark.tool).share * given:
                    found += self._result(step, mark, tokens, given, self._spent)
        definitions = step.definitions
        if definitions is not None:
            tokens = definitions.chars // CHARS_A_TOKEN
            self._definitions += tokens if given else 0
            found += self._defined(step, tokens, given)
        return found

    def _result(
        self, step: Step, mark: Mark, tokens: int, given: int | None, before: Spent
    ) -> Sequence[Finding]:
        """Count an oversized result, which was found out at `step`."""
        config, tool = self._tuned.of(mark.tool), self._of(mark.tool)
        row = tool.row
        row.add_mark(mark, before)
        tool.tokens += tokens
        tool.largest = max(tool.largest, tokens)
        often = row.count >= config.repeats and tool.tokens >= config.cost_tokens
        if not row.reported.due(Severity.WARNING.rank if often else Severity.INFO.rank, row.count):
            return ()
        times = f"{row.count} results" if row.count > 1 else "a result"
        summary = f"{mark.tool}: {times} of about {tool.largest} tokens at most, {tool.tokens} in sum"
        evidence: dict[str, Json] = {
            "rule": "result",
            "count": row.count,
            "threshold": config.repeats if often else 1,
            "limit_tokens": config.tokens,
            "tokens": tokens,
            "tokens_of_tool": tool.tokens,
            "tokens_of_all_results": self._results,
            "share_of_input": round(tokens / given, 3) if given else None,
        }
        return [self._told(row, step, mark.tool, summary, evidence)]

    def _defined(self, step: Step, tokens: int, given: int | None) -> Sequence[Finding]:
        """Judge the definitions that a model call carried."""
        config, definitions = self._tuned.base, step.definitions
        large = tokens >= config.tokens or (
            given is not None and tokens >= config.least_tokens and tokens > config.share * given
        )
        if definitions is None or not large:
            return ()
        tool = self._of(f"\x1f{definitions.hash}")
        tool.row.add(step, self._spent)
        tool.tokens += tokens
        if not tool.row.reported.due(Severity.INFO.rank, tool.row.count):
            return ()
        offered = len(definitions.tools)
        summary = f"definitions of {offered} tools take about {tokens} tokens of every model call"
        evidence: dict[str, Json] = {
            "rule": "definitions",
            "count": tool.row.count,
            "threshold": 1,
            "limit_tokens": config.tokens,
            "tokens": tokens,
            "tools": offered,
            "definitions": definitions.hash,
            "share_of_input": round(tokens / given, 3) if given else None,
            "share_of_all_input": round(self._definitions / self._input, 3) if self._input else None,
        }
        return [self._told(tool.row, step, None, summary, evidence)]

    def _of(self, name: str) -> _Tool:
        tool = self._tools.touch(name)
        if tool is None:
            tool = _Tool()
            self._tools.put(name, tool)
        return tool

    def _told(
        self, row: Row, step: Step, tool: str | None, summary: str, evidence: dict[str, Json]
    ) -> Finding:
        evidence["missing"] = missing_of(step, arguments=False)
        evidence["resets"] = []
        evidence["since_onset"] = self._spent.since(row.onset)
        return dataclasses.replace(told(RULE, row, step, summary, evidence), tool=tool)
