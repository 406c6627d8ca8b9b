"""The baseline rules that the labelled data came with, and what they can be joined to."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Final

from evaluation.calls import Call, Entry, Rule

_QUOTED: Final = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_PATH: Final = re.compile(r"(?:[\w.-]*/)+[\w.-]+")
_NUMBER: Final = re.compile(r"\b[0-9a-f]{8,}\b|\d+")
_CHANGING_TOOL: Final = re.compile(
    r"(?:^|[_.\W])(?:write|edit|create|update|delete|remove|insert|replace|patch|apply|book|cancel|modify|send"
    r"|exchange|return|set|add|save|move|rename|upload|put|post|commit|str_replace\w*)(?:$|[_.\W])",
    re.IGNORECASE,
)
_CHANGING_SHELL: Final = re.compile(
    r"\bsed\s+(?:-\w+\s+)*-i|(?<![\d&<>-])>{1,2}(?!\s*/dev/null|&)|\btee\b|\b(?:mv|cp|rm|mkdir|touch|chmod|patch|ln)\s"
    r"|\bgit\s+(?:apply|checkout|commit|stash|reset|revert|add|mv|rm)\b"
    r"|\b(?:pip3?|apt(?:-get)?|npm|yarn)\s+(?:install|i)\b|\.write\(|write_text\(|\bINSERT\b|\bUPDATE\s+\w+\s+SET\b|\bDELETE\s+FROM\b"
)
TEMPLATE_CHARS: Final = 200


def template(error: str) -> str:
    """An error without its values: quoted texts, paths and numbers masked, the first 200 characters."""
    masked = _NUMBER.sub("#", _PATH.sub("/", _QUOTED.sub("''", error[:2000].lower())))
    return " ".join(masked.split())[:TEMPLATE_CHARS]


def changes_state(call: Call) -> bool:
    """Tell by its words whether a call succeeded in changing something: an edit, a write, a booking."""
    if call.failed:
        return False
    return bool(_CHANGING_TOOL.search(call.tool) or _CHANGING_SHELL.search(call.arguments))


class InARow:
    """A key `times` calls in a row; a call whose key is None ends the row."""

    def __init__(self, times: int, key: Callable[[Call], object]) -> None:
        self._times, self._key = times, key
        self._before: object = None
        self._count = 0

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        now = self._key(call)
        self._count = self._count + 1 if now == self._before else 1
        self._before = now
        return now is not None and self._count >= self._times


class Within:
    """A key `times` times within the last `window` calls (0: of the whole run); None is no key."""

    def __init__(self, times: int, window: int, key: Callable[[Call], object]) -> None:
        self._times, self._window, self._key = times, window, key
        self._keys: deque[object] = deque()
        self._counts: Counter[object] = Counter()

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        now = self._key(call)
        self._keys.append(now)
        self._counts[now] += 1
        if self._window and len(self._keys) > self._window:
            self._counts[self._keys.popleft()] -= 1
        return now is not None and self._counts[now] >= self._times


class SameResult:
    """C10m: same call and result 3 times with no state-changing call between, else 5; within the last 20."""

    def __init__(self, still: int = 3, changed: int = 5, window: int = 20) -> None:
        self._still, self._changed = still, changed
        self._seen: deque[tuple[tuple[str, str], bool]] = deque(maxlen=window)

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        now = (call.loose, call.back)
        self._seen.append((now, changes_state(call)))
        still = total = 0
        between = False
        for key, changing in reversed(self._seen):
            if key == now:
                total += 1
                still += not between
            elif changing:
                between = True
        return still >= self._still or total >= self._changed


class AnyOf:
    """Alarms when one of its rules does."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    def call(self, call: Call) -> bool:
        """See `Rule`."""
        alarms = [rule.call(call) for rule in self._rules]  # every rule has to see every call
        return any(alarms)


def _loose(call: Call) -> str:
    return call.loose


def _failing_tool(call: Call) -> str | None:
    return call.tool if call.failed else None


def _failing_template(call: Call) -> tuple[str, str] | None:
    return (call.tool, template(call.back)) if call.failed else None


def _call_and_result(call: Call) -> tuple[str, str]:
    return call.loose, call.back


def _c10() -> Rule:
    return Within(3, 10, _call_and_result)


def _e10(times: int) -> Rule:
    return Within(times, 10, _failing_template)


BASELINES: Final[Mapping[str, Entry]] = {
    "A: 3 identical in a row": Entry(lambda: InARow(3, _loose)),
    "B: 5 identical in total": Entry(lambda: Within(5, 0, _loose)),
    "C10: same call and result, 3 in 10": Entry(_c10),
    "D: same tool failing 3 in a row": Entry(lambda: InARow(3, _failing_tool)),
    "E10: same tool and error template, 3 in 10": Entry(lambda: _e10(3)),
    "E10x4: the same, 4 in 10": Entry(lambda: _e10(4)),
    "C10 or E10": Entry(lambda: AnyOf(_c10(), _e10(3))),
    "C10 or E10x4": Entry(lambda: AnyOf(_c10(), _e10(4))),
    "C10m: 3 without a change between, else 5, in 20": Entry(SameResult),
    "C10m or E10x4": Entry(lambda: AnyOf(SameResult(), _e10(4))),
}
