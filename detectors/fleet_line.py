"""What many sessions get from one target: calls and failures by time, and which sessions keep failing."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from detectors.streaks import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collector.step import Json

BUCKET_NS: Final = 10_000_000_000
_BUCKETS_KEPT: Final = 64
_NAMED: Final = 32
_SECONDS_KEPT: Final = 120
_LEARNED_CALLS: Final = 20_000
# Field reports: 12 to 18 % of tool calls fail in production. It counts as fifty calls that were seen.
_PRIOR_SHARE: Final = 0.15
_PRIOR_CALLS: Final = 50


@dataclass(slots=True)
class Bucket:
    """Ten seconds: calls, those that failed, and the first of these."""

    calls: int = 0
    failed: int = 0
    first: Mark | None = None


@dataclass(slots=True)
class Failing:
    """A session that fails: how often in a row, how often in all, when last (in buckets), and how.

    `name` is its id, kept for the first ones only.
    """

    in_a_row: int = 0
    failures: int = 0
    bucket: int = 0
    family: int = 0
    name: str = ""


@dataclass(slots=True)
class FleetLine:
    """One target, or one step of it. Sessions are known by 64-bit hash.

    When more than `limit` sessions fail, every second one is left out, by hash, so that those who stay are
    still followed call by call (adaptive sampling, Wegman 1984): `weight` sessions stand behind each one that
    is kept.
    """

    limit: int
    buckets: OrderedDict[int, Bucket] = field(default_factory=OrderedDict)
    sessions: dict[int, Failing] = field(default_factory=dict)
    level: int = 0
    named: int = 0
    newest: int = 0
    learned_calls: int = 0
    learned_failed: int = 0
    seconds: OrderedDict[int, int] = field(default_factory=OrderedDict)

    @property
    def weight(self) -> int:
        """How many sessions stand behind each one that is followed."""
        return 1 << self.level

    def bucket(self, number: int) -> tuple[Bucket, bool]:
        """The bucket of a time, and whether it is a new one."""
        found = self.buckets.get(number)
        if found is not None:
            return found, False
        found = self.buckets[number] = Bucket()
        if len(self.buckets) > _BUCKETS_KEPT:
            self.buckets.popitem(last=False)
        return found, True

    def worked(self, session: int) -> None:
        """A session got what it wanted: it fails no more in a row."""
        failing = self.sessions.get(session)
        if failing is not None:
            failing.in_a_row = 0

    def failed(self, session: int, number: int, family: int, name: str) -> Failing | None:
        """Note a session's failure; None when the session is not among those that are followed."""
        failing = self.sessions.get(session)
        if failing is None:
            if session & (self.weight - 1):
                return None
            kept = name if self.named < _NAMED else ""
            self.named += bool(kept)
            failing = self.sessions[session] = Failing(name=kept)
        failing.in_a_row += 1
        failing.failures += 1
        failing.bucket, failing.family = number, family
        while len(self.sessions) > self.limit:
            self._leave_out_half()
        return failing

    def retried(self, second: int) -> None:
        """Note the time (unix seconds) at which a session that had failed tried again."""
        self.seconds[second] = self.seconds.get(second, 0) + 1
        if len(self.seconds) > _SECONDS_KEPT:
            self.seconds.popitem(last=False)

    def forget_before(self, number: int) -> None:
        """Let go of sessions whose latest failure lies before a bucket."""
        for session in [session for session, one in self.sessions.items() if one.bucket < number]:
            self.named -= bool(self.sessions.pop(session).name)
        if not self.sessions:
            self.level = 0

    def learn(self, bucket: Bucket) -> None:
        """Take ten seconds without a storm into the usual share of failures."""
        self.learned_calls += bucket.calls
        self.learned_failed += bucket.failed
        if self.learned_calls > _LEARNED_CALLS:
            self.learned_calls //= 2
            self.learned_failed //= 2

    def usual_share(self) -> float:
        """Which share of the calls fails when there is no storm.

        >>> round(FleetLine(8).usual_share(), 2), round(FleetLine(8, learned_calls=950).usual_share(), 4)
        (0.15, 0.0075)
        """
        return (self.learned_failed + _PRIOR_SHARE * _PRIOR_CALLS) / (self.learned_calls + _PRIOR_CALLS)

    def within(self, number: int, span: int) -> tuple[int, int]:
        """Calls and failures of the `span` buckets that end with `number`."""
        calls = failed = 0
        for one in self._between(number - span + 1, number):
            calls += one.calls
            failed += one.failed
        return calls, failed

    def first_failure(self, number: int, span: int) -> Mark | None:
        """The first failure of the `span` buckets that end with `number`."""
        return next((one.first for one in self._between(number - span + 1, number) if one.first), None)

    def failing_since(self, number: int) -> int:
        """How many sessions failed since a bucket."""
        return self.weight * sum(one.bucket >= number for one in self.sessions.values())

    def stuck_alike(self, in_a_row: int, since: int) -> int:
        """How many sessions fail `in_a_row` times or more, all in the same way."""
        stuck = Counter(
            one.family for one in self.sessions.values() if one.in_a_row >= in_a_row and one.bucket >= since
        )
        return self.weight * max(stuck.values(), default=0)

    def names(self) -> list[str]:
        """Ids of sessions that fail, some of them."""
        return [one.name for one in self.sessions.values() if one.name]

    def busiest_second(self) -> tuple[int, float]:
        """Retries in the busiest second, and the share of them in the busiest tenth of the seconds."""
        counts = sorted(self.seconds.values(), reverse=True)
        if not counts:
            return 0, 0.0
        span = max(self.seconds) - min(self.seconds) + 1
        return counts[0], sum(counts[: max(1, span // 10)]) / sum(counts)

    def json(self) -> Json:
        """The line for a checkpoint; `load` reads it."""
        return [
            [
                [n, b.calls, b.failed, None if b.first is None else list(b.first)]
                for n, b in self.buckets.items()
            ],
            [[s, f.in_a_row, f.failures, f.bucket, f.family, f.name] for s, f in self.sessions.items()],
            [self.level, self.named, self.newest, self.learned_calls, self.learned_failed],
            [[second, count] for second, count in self.seconds.items()],
        ]

    @staticmethod
    def load(state: Any, limit: int) -> FleetLine:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        line = FleetLine(limit)
        for number, calls, failed, first in state[0]:
            line.buckets[number] = Bucket(calls, failed, None if first is None else Mark(*first))
        for session, *rest in state[1]:
            line.sessions[session] = Failing(*rest)
        line.level, line.named, line.newest, line.learned_calls, line.learned_failed = state[2]
        line.seconds.update((second, count) for second, count in state[3])
        return line

    def _between(self, first: int, last: int) -> Iterator[Bucket]:
        return (self.buckets[number] for number in range(first, last + 1) if number in self.buckets)

    def _leave_out_half(self) -> None:
        self.level += 1
        mask = self.weight - 1
        for session in [session for session in self.sessions if session & mask]:
            self.named -= bool(self.sessions.pop(session).name)
