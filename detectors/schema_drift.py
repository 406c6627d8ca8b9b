"""Schema drift: arguments that break the tool's definition but fit an earlier one.

The definition changed under the agent (a deployment, a new server version), and the calls are still made as
before: the schema's fault, not the model's. Watched for each agent of a service over all its sessions,
because a definition rarely changes within one. The first such call is a note, `calls` of them of one tool
that went wrong are a `warning`. Runs in shadow unless told otherwise: there is no labelled data to measure
it with.

>>> from collector.step import Kind, Step, ToolDefinition, ToolDefinitions
>>> from detectors.reading import Reading
>>> def offer(n, name):
...     schema = {"type": "object", "properties": {name: {"type": "string"}}}
...     tools = ToolDefinitions(f"h{n}", {"get": ToolDefinition("get", parameters=schema)}, 9)
...     return step(n, Kind.MODEL_CALL, definitions=tools)
>>> def step(n, kind, **more):
...     return Step(step_id=f"{n}", kind=kind, session_id="s", start_ns=n, end_ns=n, **more)
>>> asked = {"tool": "get", "arguments": {"city": "Bonn"}}
>>> judge = SchemaDrift()
>>> calls = [step(n, Kind.TOOL_CALL, **asked) for n in (2, 4)]
>>> steps = [offer(1, "city"), calls[0], offer(3, "place"), calls[1]]
>>> [(f.step_id, f.evidence["what"]) for one in steps for f in judge.observe(Reading(one))]
[('4', 'city: unknown parameter city')]

Source: mission facts ("schemas drift: arguments valid under the previous definition are the schema's fault").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.offers import Misfit, Offer, misfit, offer_of, tool_in
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.streaks import Mark, Reported
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "schema_drift"
RULE: Final = "schema_drift/1"

_SPANS_KEPT = 6
_SCHEMA_CHARS = 4096
_NOTE, _ALARM = 0, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDriftConfig:
    """Settings.

    `calls`: calls of one tool that went wrong over it, for an alarm. `tools_kept`: tools whose definitions
    are remembered for an agent. `versions_kept`: definitions remembered of one tool. `sessions_kept`:
    sessions whose current offer is remembered. `shadow`: findings are recorded only.
    """

    shadow: bool = True
    calls: int = 3
    tools_kept: int = 24
    versions_kept: int = 3
    sessions_kept: int = 64

    def __post_init__(self) -> None:
        for name in ("calls", "tools_kept", "sessions_kept"):
            if getattr(self, name) < 1:
                raise ValueError(f"{KIND}.{name} must be at least 1, not {getattr(self, name)!r}")
        if self.versions_kept < 2:  # noqa: PLR2004 - one definition cannot have changed
            raise ValueError(f"{KIND}.versions_kept must be at least 2, not {self.versions_kept!r}")


_DEFAULTS = Tuned(SchemaDriftConfig())


@dataclass(slots=True)
class _Drift:
    """Calls of one tool that are made as an earlier definition says."""

    first: Mark
    reported: Reported
    count: int = 0
    wrong: int = 0
    spans: tuple[str, ...] = ()


class SchemaDrift:
    """Watches one agent of a service, over all its sessions."""

    def __init__(self, tuned: Tuned[SchemaDriftConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear()

    def _clear(self) -> None:
        config = self._tuned.base
        self._schemas = Recent[str, list[str]](config.tools_kept)
        self._current = Recent[str, str](config.sessions_kept)
        self._offers = Recent[str, Offer](config.versions_kept)
        self._drifts = Recent[str, _Drift](config.tools_kept)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the call that is made as an earlier definition says."""
        step = reading.step
        if step.kind is not Kind.TOOL_CALL:
            if step.definitions is not None and self._current.touch(step.session_id) != step.definitions.hash:
                self._learn(step)
            return ()
        if step.tool is None or step.arguments is None or step.outcome is Outcome.DENIED:
            return ()
        broken = self._broken(step, step.tool)
        return self._say(reading, f"{broken.path}: {broken.what}") if broken is not None else ()

    def _broken(self, step: Step, tool: str) -> Misfit | None:
        """How a call breaks the current definition although it fits an earlier one."""
        versions = self._schemas.get(tool) or []
        offer = self._offers.get(self._current.get(step.session_id) or "")
        if len(versions) < 2 or offer is None:  # noqa: PLR2004 - one definition has not changed
            return None
        current = offer.schemas.get(tool_in(offer, tool) or "")
        broken = misfit(current, step.arguments) if current else None
        if broken is None:
            return None
        fits = any(misfit(schema, step.arguments) is None for schema in versions if schema != current)
        return broken if fits else None

    def snapshot(self) -> Json:
        """All state, as JSON: definitions (bounded), hashes, counters."""
        return {
            "schemas": [[tool, list(versions)] for tool, versions in self._schemas.items()],
            "current": [[session, known] for session, known in self._current.items()],
            "offers": [[known, offer.json()] for known, offer in self._offers.items()],
            "drifts": [
                [tool, [list(d.first), d.reported.json(), d.count, d.wrong, list(d.spans)]]
                for tool, d in self._drifts.items()
            ],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear()
        saved: Any = state
        for tool, versions in saved["schemas"]:
            self._schemas.put(tool, list(versions))
        for session, known in saved["current"]:
            self._current.put(session, known)
        for known, offer in saved["offers"]:
            self._offers.put(known, Offer.load(offer))
        for tool, (first, reported, count, wrong, spans) in saved["drifts"]:
            self._drifts.put(tool, _Drift(Mark(*first), Reported(*reported), count, wrong, tuple(spans)))

    def _learn(self, step: Step) -> None:
        """A session's offer is another one than before."""
        offer = offer_of(step)
        if offer is None:
            return
        self._current.put(step.session_id, offer.hash)
        if self._offers.touch(offer.hash) is not None:
            return
        small = {tool: text if len(text) <= _SCHEMA_CHARS else "" for tool, text in offer.schemas.items()}
        self._offers.put(offer.hash, Offer(offer.hash, small))
        for tool, schema in small.items():
            versions = self._schemas.touch(tool) or []
            if schema and schema not in versions:
                self._schemas.put(tool, [*versions, schema][-self._tuned.base.versions_kept :])

    def _say(self, reading: Reading, what: str) -> Sequence[Finding]:
        step, config = reading.step, self._tuned.of(reading.step.tool)
        drift = self._drifts.touch(step.tool or "")
        if drift is None:
            drift = _Drift(Mark.of(step), Reported())
            self._drifts.put(step.tool or "", drift)
        drift.count += 1
        drift.wrong += 1 if reading.went_wrong else 0
        drift.spans = (*drift.spans, step.span_id)[-_SPANS_KEPT:]
        rank = _ALARM if drift.wrong >= config.calls and not is_unknown_session(step.session_id) else _NOTE
        if not drift.reported.due(rank, drift.count):
            return ()
        missing: list[Json] = ["session"] if is_unknown_session(step.session_id) else []
        return [
            Finding(
                id=finding_id(RULE, drift.first.step_id),
                kind=KIND,
                severity=Severity.WARNING if drift.reported.rank == _ALARM else Severity.INFO,
                revision=drift.reported.revision,
                session_id=step.session_id,
                session_ids=(step.session_id,),
                run_id=step.run_id,
                service=step.service,
                agent=step.agent,
                tool=step.tool,
                trace_id=step.trace_id,
                span_id=step.span_id,
                first_span_id=drift.first.span_id,
                step_id=step.step_id,
                started_at=min(drift.first.start_ns, step.end_ns),
                detected_at=step.end_ns,
                occurrences=drift.count,
                summary=f"{step.tool}: called as an earlier definition says ({what})",
                detector=KIND,
                evidence={
                    "rule": "earlier_definition",
                    "count": drift.count,
                    "went_wrong": drift.wrong,
                    "threshold": config.calls,
                    "what": what,
                    "span_ids": list(drift.spans),
                    "missing": missing,
                    "resets": ["a call that fits the current definition"],
                    "since_onset": {"calls": drift.count},
                },
            )
        ]
