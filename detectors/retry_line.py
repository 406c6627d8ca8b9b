"""One endpoint's attempts by one agent: how many went wrong, how fast, and whether anybody waited."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.streaks import SPANS_KEPT, Mark, Reported, Spent

if TYPE_CHECKING:
    from collector.step import Json, Step

ATTEMPTS_KEPT: Final = 64
_GAPS_KEPT: Final = 8
_OPERATIONS_KEPT: Final = 16
_JITTER_NS: Final = 2_000_000_000
_GROWTH: Final = 1.25
_HELD: Final = 0.75
_HELD_NS: Final = 10_000_000_000
_HONOURED: Final = 0.9
_PATIENT_NS: Final = 30_000_000_000
_GROWN_BEFORE_HELD: Final = 2


@dataclass(slots=True)
class Line:
    """Attempts at one endpoint since the first that went wrong.

    `attempts` holds (start in unix ns, what it was) of the latest: 0 worked, 1 failed, 2 failed after waiting
    as asked or longer than before, which counts as patience and not as a retry. `longest_ns` is the longest
    pause, `grown` counts pauses that were clearly longer than all before, `asked_ns` what the latest failure
    asked to wait, `ignored` how often less than that was waited. `call` is the signature of the first call
    that failed, `alike` tells that all that failed were that one. `local`: the endpoint is a shell's program.
    """

    first: Mark
    onset: Spent
    attempt_id: str | None = None
    end_ns: int = 0
    turn: int = 0
    longest_ns: int = 0
    grown: int = 0
    asked_ns: int = 0
    ignored: int = 0
    worked: int = 0
    local: bool = False
    attempts: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=ATTEMPTS_KEPT))
    gaps_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_GAPS_KEPT))
    operations: list[int] = field(default_factory=list)
    call: int = 0
    alike: bool = True
    classes: dict[str, int] = field(default_factory=dict)
    spans: list[str] = field(default_factory=list)
    said: Reported = field(default_factory=Reported)

    def is_same_attempt(self, step: Step) -> bool:
        """Tell whether a call belongs to the latest attempt: the same model message, or at the same time."""
        if step.attempt_id is not None or self.attempt_id is not None:
            return step.attempt_id == self.attempt_id
        return step.start_ns < self.end_ns

    def pause_before(self, step: Step) -> int:
        """Nanoseconds between the end of the latest attempt and the start of a step."""
        return max(0, step.start_ns - self.end_ns)

    def waited(self, gap_ns: int, *, busy: bool) -> bool:
        """Tell whether a pause is patience, and remember it.

        It is when it is as long as the failure before asked for, clearly longer than all pauses before, or a
        long one after pauses that grew: back-off has a ceiling. Somebody who did other things meanwhile
        (`busy`) has not waited, unless for long.
        """
        if self.asked_ns:
            honoured = gap_ns >= _HONOURED * self.asked_ns
            self.ignored += not honoured
            if honoured:
                self.longest_ns = max(self.longest_ns, gap_ns)
                return True
        longest = self.longest_ns
        if busy and gap_ns < _PATIENT_NS:
            self.longest_ns = max(longest, gap_ns)
            return False
        grew = longest > 0 and gap_ns >= max(_JITTER_NS, _GROWTH * longest, longest + _JITTER_NS // 2)
        held = self.grown >= _GROWN_BEFORE_HELD and gap_ns >= max(_HELD_NS, _HELD * longest)
        self.grown += grew
        self.longest_ns = max(longest, gap_ns)
        return grew or held

    def forget_before(self, limit_ns: int) -> None:
        """Let go of attempts that started before a time."""
        attempts = self.attempts
        while attempts and attempts[0][0] < limit_ns:
            attempts.popleft()

    def failures(self) -> int:
        """How many attempts went wrong without anybody having waited."""
        return sum(what == 1 for _, what in self.attempts)

    def share(self) -> float:
        """Which share of the attempts went wrong.

        >>> line = Line(Mark("", "", 0, ""), Spent())
        >>> line.attempts.extend([(0, 1), (1, 1), (2, 1), (3, 0)])
        >>> line.share()
        0.75
        """
        return sum(what > 0 for _, what in self.attempts) / len(self.attempts) if self.attempts else 0.0

    def keep(self, span_id: str, operation: int, error_class: str) -> None:
        """Add a failure to the evidence."""
        self.spans.append(span_id)
        if len(self.spans) > SPANS_KEPT:
            del self.spans[SPANS_KEPT // 2]
        if operation not in self.operations and len(self.operations) < _OPERATIONS_KEPT:
            self.operations.append(operation)
        self.classes[error_class] = self.classes.get(error_class, 0) + 1

    def amplification(self) -> float:
        """Attempts per operation that was attempted."""
        return len(self.attempts) / max(1, len(self.operations))

    def root(self) -> str:
        """The class of most failures; the earlier one of equals."""
        return max(self.classes, key=lambda name: self.classes[name], default="unknown")

    def json(self) -> Json:
        """The line for a checkpoint; `load` reads it."""
        return [
            list(self.first),
            list(self.onset),
            self.attempt_id,
            self.end_ns,
            self.turn,
            self.longest_ns,
            self.grown,
            self.asked_ns,
            self.ignored,
            self.worked,
            self.local,
            [list(attempt) for attempt in self.attempts],
            list(self.gaps_ns),
            list(self.operations),
            dict(self.classes),
            list(self.spans),
            [self.call, self.alike],
            [self.said.rank, self.said.next_count, self.said.revision],
        ]

    @staticmethod
    def load(state: Any) -> Line:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        line = Line(Mark(*state[0]), Spent(*state[1]), *state[2:11])
        line.attempts.extend((start, what) for start, what in state[11])
        line.gaps_ns.extend(state[12])
        line.operations, line.classes, line.spans = list(state[13]), dict(state[14]), list(state[15])
        line.call, line.alike = state[16]
        line.said = Reported(*state[17])
        return line
