"""Rules of other systems, written anew from the descriptions of what they do (loop_detectors.md §2 and §3).

Only what acts on calls is here: no model judges, no rules on text alone. A notice to the model counts as an
alarm. Where the description leaves something open, `Entry.note` says how it was settled.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

from evaluation.baselines import AnyOf, InARow, Within, template
from evaluation.calls import Call, Entry, Rule

_SHELL: Final = frozenset(
    {"bash", "shell", "run", "execute", "execute_bash", "terminal", "run_shell_command", "exec"}
)
_READS: Final = re.compile(
    r"(?:^|[_.\W])(?:read|list|ls|glob|grep|search|find|view|open|get|cat|fetch)", re.IGNORECASE
)
_GIT_OVERVIEW: Final = re.compile(r"\bgit\s+(?:status|log|diff|branch|show)\b")


class Alternation:
    """The last `2 * laps` calls are two keys that take turns."""

    def __init__(self, laps: int, key: Callable[[Call], object]) -> None:
        self._length, self._key = 2 * laps, key
        self._keys: deque[object] = deque(maxlen=self._length)

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        self._keys.append(self._key(call))
        keys = list(self._keys)
        return len(keys) == self._length and keys[2:] == keys[:-2] and keys[0] != keys[1]


class Cycle:
    """A cycle of 1 to `longest` calls, `laps` times at the end of the last calls."""

    def __init__(self, longest: int, laps: int, key: Callable[[Call], object]) -> None:
        self._longest, self._laps, self._key = longest, laps, key
        self._keys: deque[object] = deque(maxlen=longest * laps)

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        self._keys.append(self._key(call))
        keys = list(self._keys)
        for period in range(1, self._longest + 1):
            tail = keys[-period * self._laps :]
            if len(tail) == period * self._laps and tail[period:] == tail[:-period]:
                return True
        return False


class EqualSteps:
    """Crush: more than 5 equal steps in the last 10, 10 being there; a step is a model message's calls."""

    EQUAL: Final = 5

    def __init__(self) -> None:
        self._steps: deque[tuple[str, ...]] = deque(maxlen=10)
        self._open: list[str] = []

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        self._open.append(f"{call.typed}\x1f{call.back}")
        if not call.ends_batch:
            return False
        self._steps.append(tuple(self._open))
        self._open = []
        return len(self._steps) == self._steps.maxlen and max(Counter(self._steps).values()) > self.EQUAL


class InOneMessage:
    """Opencode: the last 3 calls of one model message are equal."""

    def __init__(self, times: int = 3) -> None:
        self._row = InARow(times, lambda call: (call.batch, call.typed))

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        return self._row.call(call)


class RepeatedError:
    """Loopguardian: the same error text twice within 10 minutes."""

    def __init__(self, within_s: float = 600.0) -> None:
        self._within = within_s
        self._now = 0.0
        self._last: dict[str, float] = {}

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        self._now += call.gap_s
        if not call.failed:
            return False
        before = self._last.get(call.back)
        self._last[call.back] = self._now
        return before is not None and self._now - before <= self._within


class ReadLike:
    """Qwen-code: 8 reading calls among the last 15, after the first that does not read."""

    def __init__(self) -> None:
        self._reads: deque[bool] = deque(maxlen=15)
        self._worked = False

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        reads = bool(_READS.search(call.tool))
        self._worked = self._worked or not reads
        self._reads.append(reads)
        return self._worked and sum(self._reads) >= 8  # noqa: PLR2004 - their number


class SoftCap:
    """Qwen-code: 100 calls of a turn when one of them was made 6 times."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        self._counts[call.sorted] += 1
        return self._counts.total() >= 100 and max(self._counts.values()) >= 6  # noqa: PLR2004 - their numbers


def _typed(call: Call) -> str:
    return call.typed


def _sorted(call: Call) -> str:
    return call.sorted


def _thinking(call: Call) -> tuple[str, str]:
    return call.text, call.sorted


def _v0_pair(call: Call) -> tuple[str, ...]:
    """Action with its thought, and the observation: of shells only the command and whether it failed."""
    seen = str(call.failed) if call.tool.lower() in _SHELL else call.back
    return call.text, call.sorted, seen


def _pair(call: Call) -> tuple[str, ...]:
    return call.text, call.sorted, str(call.failed), call.back


def _failing(call: Call) -> tuple[str, str] | None:
    return _thinking(call) if call.failed else None


def _goose_error(call: Call) -> tuple[str, str] | None:
    return (call.tool, call.back[:100]) if call.failed else None


def _git_overview(call: Call) -> str | None:
    return "git" if _GIT_OVERVIEW.search(call.arguments) else None


def _thought(call: Call) -> str | None:
    return call.text or None


def _call_and_result(call: Call) -> tuple[str, str]:
    return call.sorted, call.back


def _openhands(pair: Callable[[Call], object]) -> Rule:
    return AnyOf(InARow(4, pair), InARow(3, _failing), Alternation(3, pair))


def _qwen() -> Rule:
    return AnyOf(InARow(5, _sorted), InARow(8, _git_overview), SoftCap())


def _qwen_all() -> Rule:
    return AnyOf(
        _qwen(),
        Within(6, 0, _sorted),
        Alternation(3, _sorted),
        ReadLike(),
        InARow(8, lambda call: call.tool),
        InARow(3, _thought),
    )


def _openclaw() -> Rule:
    return AnyOf(Within(10, 30, _call_and_result), Alternation(5, _sorted))


def _agentlens() -> Rule:
    return Within(3, 0, lambda call: template(call.back) if call.failed else None)


PEERS: Final[Mapping[str, Entry]] = {
    "OpenHands V0": Entry(lambda: _openhands(_v0_pair), by_turn=True),
    "OpenHands SDK": Entry(lambda: _openhands(_pair), by_turn=True),
    "gemini-cli": Entry(lambda: Cycle(5, 5, _typed), by_turn=True, note="rule on calls only"),
    "opencode, kilocode": Entry(InOneMessage, by_turn=True),
    "cline SDK": Entry(lambda: InARow(3, _sorted), by_turn=True, note="soft notice at 3"),
    "Roo-Code": Entry(lambda: InARow(4, _sorted), by_turn=True),
    "goose": Entry(lambda: InARow(3, _goose_error)),
    "crush": Entry(EqualSteps, by_turn=True),
    "qwen-code default": Entry(_qwen, by_turn=True, note="git overview: status, log, diff, branch, show"),
    "qwen-code all": Entry(_qwen_all, by_turn=True, note="calls of one tool name are counted in a row"),
    "openclaw": Entry(_openclaw, by_turn=True, note="enabled; it is off by default"),
    "browser-use": Entry(lambda: Within(5, 20, _sorted), note="nudge at 5; page fingerprints left out"),
    "crewAI": Entry(lambda: InARow(2, _sorted), by_turn=True),
    "loopguardian": Entry(
        lambda: AnyOf(InARow(3, _sorted), RepeatedError()),
        note="the time without a change of a file left out",
    ),
    "snagtrace": Entry(lambda: Within(3, 6, _sorted)),
    "agentlens-cli": Entry(_agentlens, note="judged while the run goes on; it waits for the end"),
}
