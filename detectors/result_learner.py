"""Learns what the results of one tool look like, result by result; asks for a fit, takes it at a fixed one.

Whoever fits may take his time: the answer is only looked at `adopt_after` results after it was asked for, and
waited for if it has not come by then, so that findings are a function of the results and not of the time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from detectors.result_fit import Answer, Fitter, Normal, Samples
from detectors.result_shape import Form, Part, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collector.step import Json

SAMPLES: Final = 128
FORMS: Final = len(Form)

_PARTS: Final = 32
_MAGNITUDES: Final = 32
_NUMBERS: Final = 30
_TENTH_OF_NORMAL: Final = 1.282  # deviations from the middle of a normal distribution to its tenths
_SESSIONS: Final = 32
_FORGET_AT: Final = 2000
_REFIT_FACTOR: Final = 4
_REFIT_AFTER: Final = 1000
_RARE: Final = 100
_HARDLY: Final = 10
_UNTAUGHT: Final = 10  # results before which hardly any key is known
_FULL: Final = 100  # hundredths of a share


class Pace(NamedTuple):
    """When to fit: after `results` of `sessions` distinct ones; when to take the answer, results later."""

    results: int
    sessions: int
    adopt_after: int


@dataclass(slots=True)
class Known:
    """How often a part was there, filled, and opened; the latest magnitudes of its number."""

    parent: str | None
    seen: int
    filled: int
    opened: int
    magnitudes: deque[int]


class Range(NamedTuple):
    """Magnitudes of a number, in hundredths: second least, median, second greatest.

    `below` and `above` are robust deviations to either side: small numbers are more often much smaller than
    great ones are greater.
    """

    low: int
    median: int
    high: int
    below: float
    above: float

    @staticmethod
    def of(magnitudes: Iterable[int]) -> Range:
        """The range of a few magnitudes.

        >>> Range.of([100, 110, 120, 130, 140, 400])
        Range(low=110, median=130, high=140, below=23.4, above=210.6)
        """
        told = sorted(magnitudes)
        tenth, median = len(told) // 10, told[len(told) // 2]
        below, above = median - told[tenth], told[-1 - tenth] - median
        return Range(
            told[1],
            median,
            told[-2],
            round(below / _TENTH_OF_NORMAL, 1),
            round(above / _TENTH_OF_NORMAL, 1),
        )


class Learner:
    """What is known of one tool's results."""

    def __init__(self, pace: Pace, fitter: Fitter) -> None:
        self._pace = pace
        self._fitter = fitter
        self._answer: Answer | None = None
        self.normal: Normal | None = None
        self.ranges: dict[str, Range] = {}
        self.count = 0
        self._results = 0
        self._empty = 0
        self._forms = [0] * FORMS
        self._parts: dict[str, Known] = {}
        self._always: dict[str, frozenset[str]] = {}
        self._sessions: dict[int, int] = {}
        self._rows: deque[tuple[int, ...]] = deque(maxlen=SAMPLES + pace.adopt_after)
        self._fit_at = pace.results
        self._adopt_at = 0
        self._rows_since = 0

    @property
    def sessions(self) -> int:
        """Distinct sessions whose results were learned, as far as they are counted."""
        return len(self._sessions)

    def add(self, shape: Shape, session: int) -> None:
        """Learn one result; `session` is what `session_of` returns."""
        number = self._sessions.get(session)
        if number is None:
            number = len(self._sessions) if len(self._sessions) < _SESSIONS else session % _SESSIONS
            if len(self._sessions) < _SESSIONS:
                self._sessions[session] = number
        self.count += 1
        if self.count > _UNTAUGHT and shape.read:
            self._rows.append((number, *self.row(shape)))
            self._rows_since += 1
        self._results += 1
        self._forms[shape.form] += 1
        self._empty += shape.empty
        for part in shape.parts:
            self._learn(part)
        if self._results >= _FORGET_AT:
            self._forget()
        if self._answer is not None:
            if self.count >= self._adopt_at:
                self._adopt(self._answer)
        elif (
            self.count >= self._fit_at
            and len(self._sessions) >= self._pace.sessions
            and len(self._rows) >= self._pace.results // 2
        ):
            self._rows_since = 0
            self._adopt_at = self.count + self._pace.adopt_after
            self._answer = self._fitter(self._samples())

    def row(self, shape: Shape) -> tuple[int, ...]:
        """The features, and the share of parts that are known."""
        if shape.form is not Form.OBJECT and shape.form is not Form.LIST:
            return (*shape.features, _FULL)
        known, count = self._parts, len(shape.parts) or 1
        strange = sum([part.name not in known for part in shape.parts])
        return (*shape.features, _FULL - _FULL * strange // count)

    def form_is_odd(self, form: Form) -> Form | None:
        """The form that results have, where at most one in a hundred had this one; None: it is usual."""
        usual = max(self._forms)
        if self._forms[form] * _RARE > self._results or usual * _RARE < self._results * (_RARE - 1):
            return None
        return Form(self._forms.index(usual))

    def empty_is_odd(self) -> bool:
        """Whether at most one of a hundred results was empty."""
        return self._results >= _RARE and self._empty * _RARE <= self._results

    def part_is_never_empty(self, name: str) -> bool:
        """Whether a part was there in a hundred results at least, and empty in at most one of them."""
        known = self._parts.get(name)
        return known is not None and known.seen >= _RARE and (known.seen - known.filled) * _RARE <= known.seen

    def missing(self, shape: Shape) -> list[str]:
        """Names of the parts that are not there and always were, where what holds them is there."""
        if not shape.whole:
            return []
        names = {part.name for part in shape.parts}
        gone: list[str] = []
        for part in shape.parts:
            always = self._always.get(part.name) if part.opened else None
            if always is not None and not always <= names:
                gone += sorted(name for name in always - names if self._is_always(name))
        return gone

    def json(self) -> Json:
        """For a checkpoint; `load` reads it."""
        parts: list[Json] = [
            [name, known.parent, known.seen, known.filled, known.opened, list(known.magnitudes)]
            for name, known in self._parts.items()
        ]
        always: dict[str, Json] = {parent: [*sorted(names)] for parent, names in self._always.items()}
        sessions: list[Json] = list(self._sessions)
        rows: list[Json] = [list(row) for row in self._rows]
        ranges: dict[str, Json] = {
            name: [told.low, told.median, told.high, told.below, told.above]
            for name, told in self.ranges.items()
        }
        return {
            "pace": list(self._pace),
            "normal": None if self.normal is None else self.normal.json(),
            "counts": [self.count, self._results, self._empty],
            "next": [self._fit_at, self._adopt_at, self._rows_since],
            "forms": [*self._forms],
            "parts": parts,
            "always": always,
            "ranges": ranges,
            "sessions": sessions,
            "rows": rows,
            "asked": self._answer is not None,
        }

    @staticmethod
    def load(state: Any, fitter: Fitter) -> Learner:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote; a fit that was asked for is asked for again, from the same samples."""
        learner = Learner(Pace(*state["pace"]), fitter)
        learner.normal = None if state["normal"] is None else Normal.load(state["normal"])
        learner.count, learner._results, learner._empty = state["counts"]
        learner._fit_at, learner._adopt_at, learner._rows_since = state["next"]
        learner._forms = list(state["forms"])
        for name, parent, seen, filled, opened, magnitudes in state["parts"]:
            learner._parts[name] = Known(parent, seen, filled, opened, deque(magnitudes, _MAGNITUDES))
        learner._always = {parent: frozenset(names) for parent, names in state["always"].items()}
        learner.ranges = {name: Range(*told) for name, told in state["ranges"].items()}
        learner._sessions = {session: number for number, session in enumerate(state["sessions"])}
        learner._rows.extend(tuple(row) for row in state["rows"])
        if state["asked"]:
            learner._answer = fitter(learner._samples())
        return learner

    def _learn(self, part: Part) -> None:
        known = self._parts.get(part.name)
        if known is None:
            if part.parent is not None and part.parent not in self._parts:
                return
            if len(self._parts) >= _PARTS and not self._make_room(part):
                return
            known = self._parts[part.name] = Known(part.parent, 0, 0, 0, deque(maxlen=_MAGNITUDES))
        known.seen += 1
        known.filled += part.filled
        known.opened += part.opened
        if part.magnitude is not None:
            known.magnitudes.append(part.magnitude)

    def _make_room(self, part: Part) -> bool:
        """Let go of the part that was seen least, where that was hardly ever."""
        name, least = min(self._parts.items(), key=lambda item: item[1].seen)
        if least.seen * _HARDLY > self._results or name == part.parent:
            return False
        del self._parts[name]
        return True

    def _forget(self) -> None:
        """Halve what was counted, so that what was long ago weighs less."""
        self._results //= 2
        self._empty //= 2
        self._forms = [count // 2 for count in self._forms]
        for known in self._parts.values():
            known.seen, known.filled, known.opened = known.seen // 2, known.filled // 2, known.opened // 2

    def _samples(self) -> Samples:
        """What was learned when the fit was asked for."""
        end = len(self._rows) - self._rows_since
        rows = list(islice(self._rows, max(0, end - SAMPLES), end))
        return Samples(tuple(row[0] for row in rows), tuple(row[1:] for row in rows))

    def _adopt(self, answer: Answer) -> None:
        self.normal = answer()
        self._answer = None
        self._fit_at = min(_REFIT_FACTOR * self.count, self.count + _REFIT_AFTER)
        self.ranges = {
            name: Range.of(known.magnitudes)
            for name, known in self._parts.items()
            if len(known.magnitudes) >= _NUMBERS
        }
        by_parent: dict[str, set[str]] = {}
        for name, known in self._parts.items():
            if known.parent is not None and self._is_always(name):
                by_parent.setdefault(known.parent, set()).add(name)
        self._always = {parent: frozenset(names) for parent, names in by_parent.items()}

    def _is_always(self, name: str) -> bool:
        """Whether a part was there in 99 of 100 results that had what holds it, and in enough of them."""
        known = self._parts.get(name)
        parent = self._parts.get(known.parent) if known is not None and known.parent is not None else None
        if known is None or parent is None or parent.opened < self._pace.results:
            return False
        return (parent.opened - known.seen) * _RARE <= parent.opened


def session_of(session_id: str) -> int:
    """A small number for a session."""
    return crc32(session_id.encode("utf-8", "surrogatepass")) & 0xFFFF
