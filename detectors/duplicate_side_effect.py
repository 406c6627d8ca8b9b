"""Duplicate side effect: a call that changes the world outside is done twice.

A write or critical call (`detectors.side_effects` says which) is seen again with the same arguments, in the
same session, by any of its agents, before the user's next turn and within `window_s`, and both succeeded.
Three rules:

- `repeated`: done, and done again. With the same idempotency key, or when the second answer says that it was
  done already, it is safe and not counted; a new key with the same arguments is a new effect.
- `after_timeout`: the first attempt failed in a way that leaves open whether it took effect (timeout, lost
  connection), the second succeeded, and no key made that safe.
- `do_undo_do`: done, undone by its counterpart (order, cancel, order), and done again.

A first attempt that was refused or failed for a reason had no effect. `critical` tools give a critical
finding at the second effect, `write` tools a warning; what only a name suggests gives a note, and a warning
from `inferred_count` effects on. Without recorded arguments nothing is said: two calls of one tool are no
duplicate.

>>> from collector.step import Kind, Outcome, Step
>>> from detectors.reading import Lens
>>> from detectors.tool_policy import ToolPolicy
>>> lens, judge = Lens(ToolPolicy(critical=("pay",))), DuplicateSideEffect()
>>> def pay(n):
...     who = {"step_id": str(n), "session_id": "s", "start_ns": n, "end_ns": n}
...     what = {"tool": "pay", "arguments": {"invoice": 7}, "result": "paid", "outcome": Outcome.OK}
...     return lens.read(Step(kind=Kind.TOOL_CALL, **who, **what))
>>> [finding.severity.value for n in (1, 2) for finding in judge.observe(pay(n))]
['critical']

Source: mission facts, "Tools at scale" (READ / WRITE / CRITICAL, idempotency keys; order, cancel, order).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome, ToolDefinition, ToolDefinitions
from detectors.bounds import is_unknown_session
from detectors.errors import ErrorClass
from detectors.protocol import Finding, Severity, finding_id
from detectors.scope import Recent
from detectors.side_effects import Effect, Level, effect_of, idempotency_key, undoes
from detectors.signature import hash64, named
from detectors.streaks import Mark
from detectors.tuning import Tuned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collector.step import Json, Step
    from detectors.reading import Reading

KIND: Final = "duplicate_side_effect"
RULE: Final = "duplicate_side_effect/1"

_SPANS_KEPT = 6
_KEYS_KEPT = 8
_ANSWER_CHARS = 400
_UNCERTAIN = frozenset({ErrorClass.TIMEOUT, ErrorClass.NETWORK, ErrorClass.UNAVAILABLE})
_DONE_BEFORE = re.compile(r"\balready\b|\bduplicate\b|\bidempotent|\bno changes?\b|\bexists\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateSideEffectConfig:
    """Settings.

    `inferred_count`: effects from which on a tool that is a write by its name only is alarmed. `window_s`:
    seconds after which the same call is a new intention. `calls_kept`: different effects remembered in a
    session. `shadow`: findings are recorded only.
    """

    shadow: bool = False
    inferred_count: int = 3
    window_s: float = 3600.0
    calls_kept: int = 128

    def __post_init__(self) -> None:
        if self.inferred_count < 2:  # noqa: PLR2004 - one effect repeats nothing
            raise ValueError(f"{KIND}.inferred_count must be at least 2, not {self.inferred_count!r}")
        if not self.window_s > 0:
            raise ValueError(f"{KIND}.window_s must be more than 0 seconds, not {self.window_s!r}")
        if self.calls_kept < 1:
            raise ValueError(f"{KIND}.calls_kept must be at least 1, not {self.calls_kept!r}")


_DEFAULTS = Tuned(DuplicateSideEffectConfig())


@dataclass(slots=True)
class _Done:
    """One effect: how often it was done, and what is known of the attempts."""

    tool: str
    first: Mark
    last_ns: int
    count: int = 0
    uncertain: int = 0
    undone: int = 0
    standing: bool = False
    keys: list[int] = field(default_factory=list)
    spans: list[str] = field(default_factory=list)
    revision: int = -1

    def json(self) -> Json:
        return [
            self.tool,
            list(self.first),
            self.last_ns,
            self.count,
            self.uncertain,
            self.undone,
            self.standing,
            list(self.keys),
            list(self.spans),
            self.revision,
        ]

    @staticmethod
    def load(state: Any) -> _Done:  # noqa: ANN401 - JSON that `json` wrote
        done = _Done(state[0], Mark(*state[1]), *state[2:7])
        done.keys, done.spans, done.revision = list(state[7]), list(state[8]), state[9]
        return done


class DuplicateSideEffect:
    """Watches one session, all its agents."""

    def __init__(self, tuned: Tuned[DuplicateSideEffectConfig] = _DEFAULTS) -> None:
        self._tuned = tuned
        self._clear()

    def _clear(self) -> None:
        self._done = Recent[int, _Done](self._tuned.base.calls_kept)
        self._offered = ""
        self._hints = Recent[str, list[bool | None]](self._tuned.base.calls_kept)

    def observe(self, reading: Reading) -> Sequence[Finding]:
        """Take one step in; return the effect that it doubles."""
        step = reading.step
        if step.kind is Kind.USER_TURN and not step.late:
            self._done.clear()
        elif step.definitions is not None and step.definitions.hash != self._offered:
            self._learn(step.definitions)
        if step.kind is not Kind.TOOL_CALL or step.tool is None or step.arguments is None:
            return ()
        effect = self._effect(reading, step.tool)
        self._take_back(reading, step.tool)
        if effect.level is Level.READ or step.outcome is Outcome.DENIED:
            return ()
        return self._act(reading, effect)

    def snapshot(self) -> Json:
        """All state, as JSON: hashes, names of tools, counters, span ids."""
        return {
            "done": [[signature, done.json()] for signature, done in self._done.items()],
            "offered": self._offered,
            "hints": [[tool, list(hints)] for tool, hints in self._hints.items()],
        }

    def restore(self, state: Json) -> None:
        """Take over a state that `snapshot` returned."""
        self._clear()
        saved: Any = state
        for signature, done in saved["done"]:
            self._done.put(signature, _Done.load(done))
        self._offered = saved["offered"]
        for tool, hints in saved["hints"]:
            self._hints.put(tool, list(hints))

    def _learn(self, definitions: ToolDefinitions) -> None:
        """Keep what the offered tools say of themselves."""
        self._offered = definitions.hash
        for name, tool in definitions.tools.items():
            hints = [tool.read_only, tool.destructive, tool.idempotent]
            if hints != [None, None, None]:
                self._hints.put(name, hints)

    def _effect(self, reading: Reading, tool: str) -> Effect:
        hints = self._hints.get(tool)
        if hints is None:
            return effect_of(tool, reading.policy)
        read_only, destructive, idempotent = hints
        annotated = ToolDefinition(tool, read_only=read_only, destructive=destructive, idempotent=idempotent)
        return effect_of(tool, reading.policy, annotated)

    def _take_back(self, reading: Reading, tool: str) -> None:
        """A call that undoes an earlier one: what it undid does not stand any more."""
        if reading.went_wrong or not self._done:
            return
        for done in self._done.values():
            if done.standing and undoes(tool, done.tool):
                done.standing = False
                done.undone += 1

    def _act(self, reading: Reading, effect: Effect) -> Sequence[Finding]:
        step, config = reading.step, self._tuned.of(reading.step.tool)
        signature = reading.call.signature
        done = self._done.touch(signature)
        if done is None or step.start_ns - done.last_ns > config.window_s * 1e9:
            done = _Done(step.tool or "", Mark.of(step), step.end_ns)
            self._done.put(signature, done)
        verdict = reading.verdict
        if verdict is not None:
            if verdict.error_class in _UNCERTAIN:
                done.uncertain += 1
                self._remember(done, step)
            return ()
        if self._is_safe(done, step):
            return ()
        rule = "do_undo_do" if done.undone else "repeated" if done.count else "after_timeout"
        before = done.count + (done.uncertain if not done.count else 0)
        done.count += 1
        done.standing = True
        self._remember(done, step)
        return [self._finding(reading, done, effect, rule, config)] if before else ()

    def _is_safe(self, done: _Done, step: Step) -> bool:
        """Whether the tool made the repeat harmless: by its key, or because it says so."""
        key = idempotency_key(step.arguments)
        if key is not None:
            known = hash64(key)
            if known in done.keys:
                return True
            done.keys = [*done.keys, known][-_KEYS_KEPT:]
        repeats = done.count or done.uncertain
        return bool(repeats and step.result and _DONE_BEFORE.search(step.result[:_ANSWER_CHARS]))

    def _remember(self, done: _Done, step: Step) -> None:
        done.last_ns = max(done.last_ns, step.end_ns)
        done.spans.append(step.span_id)
        if len(done.spans) > _SPANS_KEPT:
            del done.spans[_SPANS_KEPT // 2]

    def _finding(
        self, reading: Reading, done: _Done, effect: Effect, rule: str, config: DuplicateSideEffectConfig
    ) -> Finding:
        step = reading.step
        done.revision += 1
        severity = _severity(effect, rule, done.count, config)
        missing: list[Json] = []
        if is_unknown_session(step.session_id):
            missing.append("session")
            severity = Severity.INFO
        elif step.outcome is Outcome.UNKNOWN:
            missing.append("outcome")
            severity = Severity.INFO if severity is Severity.INFO else Severity.WARNING
        count = done.count + done.uncertain
        threshold = config.inferred_count if effect.source == "inferred" and severity.rank else 2
        return Finding(
            id=finding_id(RULE, done.first.step_id),
            kind=KIND,
            severity=severity,
            revision=done.revision,
            session_id=step.session_id,
            session_ids=(step.session_id,),
            run_id=step.run_id,
            service=step.service,
            agent=step.agent,
            tool=step.tool,
            trace_id=step.trace_id,
            span_id=step.span_id,
            first_span_id=done.first.span_id,
            step_id=step.step_id,
            started_at=done.first.start_ns,
            detected_at=max(step.end_ns, done.first.start_ns),
            occurrences=max(2, count),
            summary=f"{step.tool}: {_SAYS[rule]} (a {effect.level.value} call, {effect.source})",
            detector=KIND,
            evidence={
                "rule": rule,
                "count": count,
                "threshold": threshold,
                "level": effect.level.value,
                "level_source": effect.source,
                **named(reading.call),
                "undone": done.undone,
                "attempts_of_unknown_effect": done.uncertain,
                "span_ids": list(done.spans),
                "missing": missing,
                "resets": ["a user turn", f"a pause of {config.window_s:g} s", "the same idempotency key"],
                "since_onset": {"calls": count},
            },
        )


_SAYS = {
    "repeated": "the same effect was caused more than once",
    "after_timeout": "done again after an attempt that may have taken effect",
    "do_undo_do": "done, undone and done again",
}


def _severity(effect: Effect, rule: str, count: int, config: DuplicateSideEffectConfig) -> Severity:
    if effect.source == "inferred":
        alarmed = rule == "repeated" and count >= config.inferred_count
        return Severity.WARNING if alarmed else Severity.INFO
    if rule == "after_timeout":
        return Severity.WARNING if effect.level is Level.CRITICAL else Severity.INFO
    return Severity.CRITICAL if effect.level is Level.CRITICAL else Severity.WARNING
