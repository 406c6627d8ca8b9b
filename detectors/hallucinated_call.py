"""Hallucinated call: a tool, a parameter or an id that the agent was never given.

Four rules, about single calls:

- `unknown_tool`: the tool is not among those that the agent's latest model call offered, whatever the
  spelling, and the call did not succeed (what succeeds exists, only the offer was recorded incompletely).
- `unknown_parameter`, `schema`: the arguments break the offered JSON Schema.
- `unseen_id`: an argument that is called an id and looks like one was in nothing that the session has seen (a
  user's turn, a result, an argument of a call that worked), and the call went wrong. Said only when every
  result and the user's turns were recorded and none had to be forgotten.

A call that went wrong over it is a `warning` from `calls` of one tool on, everything else a note. Runs in
shadow unless told otherwise: there is no labelled data to measure it with.

>>> from collector.step import Kind, Outcome, Step, ToolDefinition, ToolDefinitions
>>> from detectors.reading import Reading
>>> judge, times = HallucinatedCall(), {"session_id": "s", "start_ns": 1, "end_ns": 2}
>>> offered = ToolDefinitions("h", {"search": ToolDefinition("search")}, 60)
>>> judge.observe(Reading(Step(step_id="1", kind=Kind.MODEL_CALL, definitions=offered, **times)))
()
>>> call = Step(step_id="2", kind=Kind.TOOL_CALL, tool="find", arguments={}, outcome=Outcome.ERROR, **times)
>>> [(found.evidence["rule"], found.severity.value) for found in judge.observe(Reading(call))]
[('unknown_tool', 'info')]

Source: mission facts (hallucinated calls stay at 3-7 % whatever the model: tools that do not exist, invented
parameter names, stale ids); JSON Schema as its specification says, by `jsonschema-rs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.ids import asked_ids, id_hash, ids_in
from detectors.offers import Offer, misfit, offer_of, tool_in
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "hallucinated_call"
RULE: Final = "hallucinated_call/1"

_AGENTS_KEPT = 8
_SPANS_KEPT = 6
_SHOWN_CHARS = 80
_NOTE, _ALARM = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class HallucinatedCallConfig:
    """Settings.

    `calls`: calls of one tool that went wrong over it, for an alarm. `ids_kept`: ids remembered in a session.
    `tools_kept`: tools followed in a session. `shadow`: findings are recorded only.
    """

    shadow: bool = True
    calls: int = 2
    ids_kept: int = 1024
    tools_kept: int = 64

    def __post_init__(self) -> None:
        for name in ("calls", "ids_kept", "tools_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{KIND}.{name} must be at least 1, not {getattr(self, name)!r}")


_DEFAULTS = Tuned(HallucinatedCallConfig())


@dataclass(slots=True)
class _Seen:
    """What one tool was called with that was never given, by one rule."""

    first: Mark
    reported: Reported
    count: int = 0
    wrong: int = 0
    spans: tuple[str, ...] = ()


class HallucinatedCall:
    """Watches one session, all its agents: ids travel between them."""

    def __init__(self, tuned: Tuned[HallucinatedCallConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear()

    def _clear(self) -> None:
        config = self._tuned.base
        self._offers = Recent[str, Offer](_AGENTS_KEPT)
        self._ids = Recent[int, bool](config.ids_kept)
        self._told = Recent[str, _Seen](config.tools_kept)
        self._heard_user = self._blind = False

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return what it was called with and had never been given."""
        step = reading.step
        if step.kind is Kind.TOOL_CALL:
            if step.tool is None or step.outcome is Outcome.DENIED:
                return ()
            findings = [
                finding
                for rule, what in self._wrongs(reading, step.tool)
                for finding in self._say(reading, rule, what)
            ]
            self._remember(reading)
            return findings
        if step.kind is Kind.USER_TURN:
            self._heard_user = self._heard_user or bool(step.text)
            if not step.text:
                self._go_blind()
            self._learn(ids_in(step.text or ""))
            return ()
        offer = self._offers.touch(step.agent or "")
        definitions = step.definitions
        if definitions is None or offer is None or offer.hash != definitions.hash:
            offered = offer_of(step)
            if offered is not None:
                self._offers.put(step.agent or "", offered)
        return ()

    def snapshot(self) -> Json:
        """All state, as JSON: the offered tools with their schemas (bounded), hashes of ids, counters."""
        return {
            "offers": [[agent, offer.json()] for agent, offer in self._offers.items()],
            "ids": list(self._ids),
            "told": [
                [key, [list(s.first), list(s.reported.json()), s.count, s.wrong, list(s.spans)]]
                for key, s in self._told.items()
            ],
            "heard_user": self._heard_user,
            "blind": self._blind,
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear()
        saved: Any = state
        for agent, offer in saved["offers"]:
            self._offers.put(agent, Offer.load(offer))
        self._learn(saved["ids"])
        for key, (first, reported, count, wrong, spans) in saved["told"]:
            self._told.put(key, _Seen(Mark(*first), Reported(*reported), count, wrong, tuple(spans)))
        self._heard_user, self._blind = saved["heard_user"], saved["blind"]

    def _learn(self, ids: Sequence[int]) -> None:
        if self._blind:
            return
        for known in ids:
            self._ids.put(known, value=True)
        if len(self._ids) >= self._ids.limit:
            self._go_blind()

    def _go_blind(self) -> None:
        """Something was not recorded, or there is no room: of no id can be said that it was never seen."""
        self._blind = True
        self._ids.clear()

    def _remember(self, reading: Reading) -> None:
        """What a call brought back, and what it worked with, has been seen from now on."""
        step = reading.step
        if self._blind:
            return
        if not self._heard_user or (step.result is None and step.error is None):
            self._go_blind()
            return
        self._learn(ids_in(step.result or ""))
        if not reading.went_wrong:
            self._learn([id_hash(value) for _, value in asked_ids(step.arguments)])

    def _wrongs(self, reading: Reading, tool: str) -> list[tuple[str, str]]:
        """The rules that a call breaks, each with what is wrong."""
        step, arguments = reading.step, reading.step.arguments
        wrongs: list[tuple[str, str]] = []
        offer = self._offers.get(step.agent or "")
        if offer is not None:
            offered = tool_in(offer, tool)
            if offered is None:
                if reading.went_wrong:
                    wrongs.append(("unknown_tool", tool))
                return wrongs
            schema = offer.schemas[offered]
            found = misfit(schema, arguments) if schema and arguments is not None else None
            if found is not None:
                unknown = found.what.startswith("unknown parameter")
                wrongs.append(("unknown_parameter" if unknown else "schema", f"{found.path}: {found.what}"))
        if reading.went_wrong and self._heard_user and not self._blind and arguments is not None:
            unseen = [
                f"{name} {value}" for name, value in asked_ids(arguments) if id_hash(value) not in self._ids
            ]
            wrongs += [("unseen_id", what) for what in unseen[:1]]
        return wrongs

    def _say(self, reading: Reading, rule: str, what: str) -> Sequence[Finding]:
        step, config = reading.step, self._tuned.of(reading.step.tool)
        key = f"{rule}\x1f{step.tool}"
        seen = self._told.touch(key)
        if seen is None:
            seen = _Seen(Mark.of(step), Reported())
            self._told.put(key, seen)
        seen.count += 1
        seen.wrong += 1 if reading.went_wrong else 0
        seen.spans = (*seen.spans, step.span_id)[-_SPANS_KEPT:]
        rank = _ALARM if seen.wrong >= config.calls and not is_unknown_session(step.session_id) else _NOTE
        if not seen.reported.due(rank, seen.count):
            return ()
        return [_finding(step, rule, what, seen, config.calls)]


_SAYS = {
    "unknown_tool": "this tool was not offered",
    "unknown_parameter": "a parameter that the tool does not have",
    "schema": "arguments break the tool's schema",
    "unseen_id": "an id that appears in nothing the session has seen",
}


def _finding(step: Step, rule: str, what: str, seen: _Seen, threshold: int) -> Finding:
    missing: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
    return Finding(
        id=finding_id(RULE, f"{seen.first.step_id}{rule}"),
        kind=KIND,
        severity=Severity.WARNING if seen.reported.rank == _ALARM else Severity.INFO,
        revision=seen.reported.revision,
        session_id=step.session_id,
        session_ids=(step.session_id,),
        run_id=step.run_id,
        service=step.service,
        agent=step.agent,
        tool=step.tool,
        trace_id=step.trace_id,
        span_id=step.span_id,
        first_span_id=seen.first.span_id,
        step_id=step.step_id,
        started_at=min(seen.first.start_ns, step.end_ns),
        detected_at=step.end_ns,
        occurrences=seen.count,
        summary=f"{step.tool}: {_SAYS[rule]} ({what[:_SHOWN_CHARS]})",
        detector=KIND,
        evidence={
            "rule": rule,
            "count": seen.count,
            "went_wrong": seen.wrong,
            "threshold": threshold,
            "what": what[:_SHOWN_CHARS],
            "span_ids": list(seen.spans),
            "missing": missing,
            "resets": ["a model call that offers the tool", "a result or a user's turn that names the id"],
            "since_onset": {"calls": seen.count},
        },
    )
