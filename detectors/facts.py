"""Facts for whoever decides by more than findings: a tool failed, works again, a session changed something.

A fact has a key that is equal whenever the same step says it again, after a crash as well as by a later span:
who keeps facts keeps one of a key. Kinds and payloads:

- `failed`: a tool call that was recorded as failed and that no brake refused. `service`, `agent`, `tool`,
  `signature` (16 hex digits; None when the arguments were not recorded), `error_class`, `nature`,
  `prescription`, `error` (at most 200 characters), `step_id`, `end_ns`, `engine_seq`.
- `worked`: a tool call that went well within 2 hours after a failure: the first one after a failure of that
  tool of its service and then one a second, the first one of a session after a failure of the session, and
  after one of that tool in the session. `service`, `agent`, `tool`, `step_id`, `start_ns`, `end_ns`.
- `changed`: something in the session may have changed what its failed calls find, or its user spoke. `why`
  (`call`, `user_turn`), `step_id`, `at_ns`.
- `ended`: a run has ended. `run_id`, `at_ns`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from collector.step import Outcome
from detectors.bounds import is_unknown_session
from detectors.excerpts import error_of
from detectors.scope import Recent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from collector.step import Json, RunEnded, Step
    from detectors.reading import Reading

FAILED: Final = "failed"
WORKED: Final = "worked"
CHANGED: Final = "changed"
ENDED: Final = "ended"
ERROR_CHARS: Final = 200
WITHIN_NS: Final = 7200 * 10**9
"""Longer than a breaker is open (`breaker.cap_open_s`, 1 hour), so that a probe after it is seen to work."""
TOOLS_KEPT: Final = 1024
SESSIONS_KEPT: Final = 1024
TOOLS_OF_A_SESSION: Final = 32
_ANY: Final = ""  # stands for a session's tools all together
_SECOND_NS: Final = 10**9


@dataclass(frozen=True, slots=True)
class Fact:
    """See the module. `session_id` is empty when the session is not known."""

    key: str
    kind: str
    session_id: str
    payload: Mapping[str, Json]


def ended(event: RunEnded) -> Fact:
    """A run has ended."""
    key = f"{ENDED}:{event.session_id}:{event.run_id}:{event.at_ns}"
    return Fact(key, ENDED, _session(event.session_id), {"run_id": event.run_id, "at_ns": event.at_ns})


def changed(step: Step, why: str) -> Fact:
    """A session may have changed what its failed calls find."""
    told: dict[str, Json] = {"why": why, "step_id": step.step_id, "at_ns": step.end_ns}
    return Fact(f"{CHANGED}:{step.step_id}", CHANGED, _session(step.session_id), told)


class ToolFacts:
    """Which tools of which services and sessions fail and work again; pure, bounded, restorable."""

    def __init__(self) -> None:
        # When each failed last, and when a `worked` was told last since then (0: not since).
        self._failing = Recent[str, list[int]](TOOLS_KEPT)
        # By session, what failed in it, and when last; until a `worked` of it was told.
        self._stuck = Recent[str, dict[str, int]](SESSIONS_KEPT)
        self.dirty = False

    def observe(self, reading: Reading) -> Fact | None:
        """Take a tool call in; return the fact that it is, most often none."""
        step = reading.step
        if reading.failed:
            self._failing.put(_name(step), [step.end_ns, 0])
            self._session_failed(step)
            self.dirty = True
            return _failed(reading)
        if step.outcome is not Outcome.OK or not len(self._failing):
            return None
        stuck = self._stuck.get(step.session_id)
        if (stuck is None and _name(step) not in self._failing) or reading.went_wrong:
            return None
        if not (self._tool_worked(step) | (stuck is not None and self._session_worked(step, stuck))):
            return None
        self.dirty = True
        return _worked(step)

    def state(self) -> Json:
        """All state, as JSON."""
        tools: list[Json] = [[name, *known] for name, known in self._failing.items()]
        return tools + [[session, dict(stuck)] for session, stuck in self._stuck.items()]

    def restore(self, state: Any) -> None:  # noqa: ANN401 - JSON that `state` wrote
        """Go on from a `state`. Raises `TypeError` or `ValueError` for what is none."""
        for name, failed, *worked_ns in state:
            if worked_ns:
                self._failing.put(str(name), [int(failed), int(worked_ns[0])])
            else:
                self._stuck.put(str(name), {str(tool): int(at_ns) for tool, at_ns in dict(failed).items()})

    def _session_failed(self, step: Step) -> None:
        if is_unknown_session(step.session_id):
            return
        stuck = self._stuck.get(step.session_id) or {}
        stuck[_ANY] = stuck[_name(step)] = step.end_ns
        if len(stuck) > TOOLS_OF_A_SESSION:
            del stuck[next(tool for tool in stuck if tool != _ANY)]
        self._stuck.put(step.session_id, stuck)

    def _tool_worked(self, step: Step) -> bool:
        """Whether that a tool worked is news to all who wait for it."""
        known = self._failing.get(_name(step))
        if known is None or step.end_ns - known[0] > WITHIN_NS:
            return False
        if known[1] and step.end_ns - known[1] < _SECOND_NS:
            return False
        known[1] = max(step.end_ns, 1)
        return True

    def _session_worked(self, step: Step, stuck: dict[str, int]) -> bool:
        """Whether it is news in its session: the first success after a failure, of that tool or at all."""
        failed = [at_ns for name in (_ANY, _name(step)) if (at_ns := stuck.pop(name, None)) is not None]
        if failed:
            self.dirty = True
        if not stuck:
            self._stuck.pop(step.session_id)
        return any(step.end_ns - at_ns <= WITHIN_NS for at_ns in failed)


def _failed(reading: Reading) -> Fact | None:
    step, verdict, call = reading.step, reading.verdict, reading.call
    if verdict is None:
        return None
    told: dict[str, Json] = {
        "service": step.service,
        "agent": step.agent,
        "tool": step.tool,
        "signature": f"{call.signature:016x}" if call.known else None,
        "error_class": verdict.error_class.value,
        "nature": verdict.nature.value,
        "prescription": verdict.prescription.value,
        "error": error_of(reading.error_text, ERROR_CHARS),
        "step_id": step.step_id,
        "end_ns": step.end_ns,
        "engine_seq": step.engine_seq,
    }
    return Fact(f"{FAILED}:{step.step_id}", FAILED, _session(step.session_id), told)


def _worked(step: Step) -> Fact:
    told: dict[str, Json] = {
        "service": step.service,
        "agent": step.agent,
        "tool": step.tool,
        "step_id": step.step_id,
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
    }
    return Fact(f"{WORKED}:{step.step_id}", WORKED, _session(step.session_id), told)


def _name(step: Step) -> str:
    return f"{step.service}\x1f{step.tool}"


def _session(session_id: str) -> str:
    return "" if is_unknown_session(session_id) else session_id
