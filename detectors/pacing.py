"""The pace of one scope: which calls are one attempt, how many turns there were, how long nothing ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from collector.step import Kind

if TYPE_CHECKING:
    from collector.step import Json, Step

SPOKEN_NS = 1_000_000_000


@dataclass(slots=True)
class Pacing:
    """Counts attempts and idle time.

    An attempt is the calls of one model message (equal `attempt_id`); when the message is not known, calls
    that overlap in time. A turn is an attempt that is no mere waiting or thinking. `idle_ns` is the time in
    which no step of the scope ran, explicit waiting included: the pause between two calls is the difference
    of two readings. `waited_attempt` is the attempt that was the latest when somebody waited explicitly.
    """

    attempt_id: str | None = None
    attempt_end_ns: int = 0
    attempt: int = 0
    turn: int = 0
    last_end_ns: int = 0
    idle_ns: int = 0
    idle_at_call_ns: int = 0
    after_call: bool = False
    waited_attempt: int = -1

    def pass_time(self, step: Step) -> None:
        """Account for the time up to the end of a step."""
        if self.last_end_ns and step.start_ns > self.last_end_ns:
            self.idle_ns += step.start_ns - self.last_end_ns
        self.last_end_ns = max(self.last_end_ns, step.end_ns)
        self.after_call = step.kind is Kind.TOOL_CALL

    def is_fed_back(self, step: Step) -> bool:
        """Tell whether a user's turn is only a tool's result, handed to the model in a user's message.

        A person speaks after the model has answered, and not within a second of a tool's end.
        """
        return self.after_call and step.start_ns - self.last_end_ns < SPOKEN_NS

    def call(self, step: Step, *, waits: bool) -> int:
        """Account for a tool call; return how long nothing ran since the call before, in nanoseconds."""
        if waits:
            self.idle_ns += max(0, step.end_ns - step.start_ns)
            self.waited_attempt = self.attempt
        pause = self.idle_ns - self.idle_at_call_ns
        self.idle_at_call_ns = self.idle_ns
        return pause

    def begins_attempt(self, step: Step, *, aside: bool) -> bool:
        """Tell whether a call opens a new attempt, and count it; what is done `aside` is no turn."""
        if step.attempt_id is not None or self.attempt_id is not None:
            same = step.attempt_id == self.attempt_id
        else:
            same = step.start_ns < self.attempt_end_ns
        if same:
            self.attempt_end_ns = max(self.attempt_end_ns, step.end_ns)
            return False
        self.attempt_id = step.attempt_id
        self.attempt_end_ns = step.end_ns
        self.attempt += 1
        self.turn += not aside
        return True

    def json(self) -> Json:
        """The pace for a checkpoint, in the order of the fields."""
        return [
            self.attempt_id,
            self.attempt_end_ns,
            self.attempt,
            self.turn,
            self.last_end_ns,
            self.idle_ns,
            self.idle_at_call_ns,
            self.after_call,
            self.waited_attempt,
        ]

    @staticmethod
    def load(state: Any) -> Pacing:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        return Pacing(*state)
