"""Known dead call: a call is made again although its failure, which cannot go away, was fed back (URE-1).

A failure kills a call when its nature is structural, environmental or semantic: the same call will fail the
same way until something is changed. Transient failures may go away, and of unknown ones nobody knows; neither
is remembered. The failure was fed back when the agent's model was called after it; where model calls are not
recorded, when the next attempt began after its end. A repeat is dead when it fails with the same error
(arguments' values taken out) and nothing effective happened since: no other call that was never made before
and may have changed something, no user's turn, no pause of `patience_s`.

Source: URE-1 of the field reports: the error was fed back, the next call fails the same way; the remedy is an
error memory keyed by tool and canonical arguments, trimmed by least recent use.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.bounds import is_unknown_session
from detectors.dead_calls import Dead, may_have_changed
from detectors.errors import Nature
from detectors.evidence import NO_ARGUMENTS
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.signature import named
from detectors.streaks import Mark, Reported, Spent
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.errors import Verdict
    from detectors.reading import Reading

KIND: Final = "known_dead_call"
RULE: Final = "known_dead_call/1"
_SEVERITIES: Final = tuple(Severity)
_DEADLY: Final = frozenset({Nature.STRUCTURAL, Nature.ENVIRONMENTAL, Nature.SEMANTIC})
_SPOKEN_NS: Final = 1_000_000_000
_EXCERPT_CHARS: Final = 80
_MASK: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeadCallConfig:
    """Thresholds of the detector, by the names that the configuration uses.

    `note`: repeats of one dead call that are a note. `alarm`: repeats that are a warning; never critical.
    `patience_s`: a pause in seconds after which somebody may have repaired what was wrong. `remembered`: dead
    calls of a scope. `seen_kept`: calls with their information that are known to have been made, by
    fingerprint: made again, they change nothing. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    note: int = 1
    alarm: int = 3
    patience_s: float = 240.0
    remembered: int = 32
    seen_kept: int = 128

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, float) and not value > 0:  # nan is not, either
                raise ValueError(f"{KIND}.{field.name} must be more than 0 seconds, not {value!r}")
            if isinstance(field.default, int) and not isinstance(field.default, bool) and value < 1:
                raise ValueError(f"{KIND}.{field.name} must be at least 1, not {value!r}")


_DEFAULTS = Tuned(KnownDeadCallConfig())


class KnownDeadCall:
    """Watches one scope, one (session, agent)."""

    def __init__(self, tuned: Tuned[KnownDeadCallConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._dead = Recent[int, Dead](tuned.base.remembered)
        self._seen = Recent[int, bool](tuned.base.seen_kept)
        self._spent = Spent()
        self._epoch = 0
        self._turn = 0
        self._models = False
        self._last_end_ns = 0
        self._after_call = False

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the dead call that it is."""
        step = reading.step
        if step.kind is Kind.TOOL_CALL:
            return self._call(reading) if step.tool is not None else ()
        if step.kind is Kind.MODEL_CALL or step.kind is Kind.COMPACTION:
            self._spent = self._spent.plus_model(step)
            self._turn += 1
            self._models = True
            self._after_call = False
        elif step.kind is Kind.USER_TURN and not step.late and not self._is_fed_back(step):
            self._dead.clear()
            self._seen.clear()
        return ()

    def absorb(self, state: Json) -> None:
        """Take over what another instance knew of the same scope under another session id."""
        past = KnownDeadCall(self._tuned)
        past.restore(state)
        for signature, dead in past._dead.items():
            if signature not in self._dead:
                dead.epoch, dead.turn = self._epoch, -1
                self._dead.put(signature, dead)
        for key in past._seen:
            self._seen.put(key, value=True)
        self._models = self._models or past._models

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, counters, step and span ids."""
        return {
            "dead": [[signature, dead.json()] for signature, dead in self._dead.items()],
            "seen": list(self._seen),
            "spent": list(self._spent),
            "at": [self._epoch, self._turn, self._models, self._last_end_ns, self._after_call],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        saved: Any = state
        self._dead.clear()
        self._seen.clear()
        for signature, dead in saved["dead"]:
            self._dead.put(signature, Dead.load(dead))
        for key in saved["seen"]:
            self._seen.put(key, value=True)
        self._spent = Spent(*saved["spent"])
        self._epoch, self._turn, self._models, self._last_end_ns, self._after_call = saved["at"]

    def _is_fed_back(self, step: Step) -> bool:
        """Some frameworks hand results to the model in a user's message."""
        return self._after_call and step.start_ns - self._last_end_ns < _SPOKEN_NS

    def _call(self, reading: Reading) -> Sequence[Finding]:
        step = reading.step
        self._spent = self._spent.plus_call()
        if step.outcome is Outcome.DENIED:
            return ()
        config = self._tuned.of(step.tool)
        if self._last_end_ns and step.start_ns - self._last_end_ns >= config.patience_s * 1e9:
            self._epoch += 1
        if not step.late:
            self._account(reading)
            self._last_end_ns, self._after_call = max(self._last_end_ns, step.end_ns), True
        found: Sequence[Finding] = ()
        call = reading.call
        known = self._dead.touch(call.signature)
        if reading.went_wrong and not call.noop:
            found = self._failed(reading, known, config)
        elif known is not None and not step.late:
            self._dead.pop(call.signature)
        return found

    def _account(self, reading: Reading) -> None:
        """Count what is new as a change, if it may be one: the calls before it may not be dead any more."""
        if not may_have_changed(reading):
            return
        key = (reading.call.signature * 31 + reading.information) & _MASK
        if self._seen.touch(key) is None:
            self._seen.put(key, value=True)
            self._epoch += 1

    def _failed(self, reading: Reading, known: Dead | None, config: KnownDeadCallConfig) -> Sequence[Finding]:
        """Remember a call that failed for good, or say that it was known to."""
        verdict, family, step = reading.verdict, reading.family, reading.step
        if verdict is None or family is None:
            return ()
        if verdict.nature not in _DEADLY:
            self._dead.pop(reading.call.signature)
            return ()
        if known is None or known.family != family.hash or known.epoch != self._epoch:
            if not step.late:
                self._dead.put(reading.call.signature, self._killed(step, family.hash))
            return ()
        if not self._was_fed_back(known, step):
            return ()
        told = self._finding(reading, known, verdict, config)
        known.turn, known.last_spent = self._turn, self._spent
        return told

    def _killed(self, step: Step, family: int) -> Dead:
        return Dead(
            family,
            Mark.of(step),
            self._spent,
            self._epoch,
            self._turn,
            step.attempt_id or "",
            step.end_ns,
            self._spent,
            0,
            [step.span_id],
            Reported(),
        )

    def _was_fed_back(self, known: Dead, step: Step) -> bool:
        """The model was called since, or, where its calls are not recorded, a new attempt began since."""
        if self._models:
            return self._turn > known.turn
        if known.attempt and step.attempt_id:
            return known.attempt != step.attempt_id
        return step.start_ns >= known.end_ns

    def _finding(
        self, reading: Reading, known: Dead, verdict: Verdict, config: KnownDeadCallConfig
    ) -> Sequence[Finding]:
        step = reading.step
        between = self._spent.since(known.last_spent)
        known.again(step.attempt_id or "", step.span_id, step.end_ns)
        missing = _missing(reading)
        rank = 1 if known.repeats >= config.alarm and "arguments" not in missing else 0
        if known.repeats < config.note or not known.said.due(rank, known.repeats + 1):
            return ()
        times = "again" if known.repeats == 1 else f"{known.repeats} times"
        evidence: dict[str, Json] = {
            "rule": "fed_back" if self._models else "next_attempt",
            "count": known.repeats,
            "threshold": config.alarm if rank else config.note,
            "missing": missing,
            "call": f"{reading.call.signature:016x}",
            **named(reading.call),
            "signature": f"{reading.call.signature:016x}" if reading.call.known else None,
            "error_class": verdict.error_class.value,
            "nature": verdict.nature.value,
            "prescription": verdict.prescription.value,
            "error": " ".join(reading.error_text[:400].split())[:_EXCERPT_CHARS],
            "first_step_id": known.first.step_id,
            "span_ids": list(known.spans),
            "between": between,
            "resets": [
                "a change by another call",
                "another error",
                "a user turn",
                f"a pause of {config.patience_s:g} s",
            ],
            "since_onset": self._spent.since(known.onset),
        }
        return [
            Finding(
                id=finding_id(RULE, known.first.step_id),
                kind=KIND,
                severity=_SEVERITIES[rank],
                revision=known.said.revision,
                session_id=step.session_id,
                session_ids=(step.session_id,),
                run_id=step.run_id,
                service=step.service,
                agent=step.agent,
                tool=step.tool,
                trace_id=step.trace_id,
                span_id=step.span_id,
                first_span_id=known.first.span_id,
                step_id=step.step_id,
                started_at=min(known.first.start_ns, step.end_ns),
                detected_at=step.end_ns,
                occurrences=known.repeats + 1,
                summary=(
                    f"{step.tool}: made {times} although it is known to fail ({verdict.error_class.value}), "
                    f"and nothing was changed; what helps: {verdict.prescription.value.replace('_', ' ')}"
                ),
                detector=KIND,
                evidence=evidence,
            )
        ]


def _missing(reading: Reading) -> list[Json]:
    missing: list[Json] = []
    if reading.flags & NO_ARGUMENTS:
        missing.append("arguments")
    if is_unknown_session(reading.step.session_id):
        missing.append("session")
    return missing
