"""Times of the week at which a rule holds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SPELLED: Final = "write days and times as in 'Mon-Fri 08:00-18:00', 'Sat,Sun 00:00-24:00' or '22:00-06:00'"
_TIMES: Final = re.compile(r"(\d{1,2}):(\d{2})-(\d{1,2}):(\d{2})")
_DAY_MINUTES: Final = 1440
_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Span:
    """On these days (0 is Monday), from a minute of the day until before another; may end on the next day."""

    days: frozenset[int]
    begin: int
    end: int

    def holds(self, day: int, minute: int) -> bool:
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        return (day in self.days and minute >= self.begin) or (
            (day - 1) % 7 in self.days and minute < self.end
        )


@dataclass(frozen=True, slots=True)
class Hours:
    """Times of the week by the clock on the wall of one time zone, daylight saving included.

    `spelled` is how they were written.
    """

    spans: tuple[_Span, ...]
    zone: ZoneInfo
    spelled: tuple[str, ...]

    @staticmethod
    def of(spelled: Iterable[str], timezone: str) -> Hours:
        """Read times of the week. Raises `ValueError` that says which text means nothing.

        >>> night = Hours.of(["Fri 22:00-06:00"], "Europe/Berlin")
        >>> night.hold(1_700_283_600 * 10**9)  # Saturday, 06:00 in Berlin
        False
        >>> night.hold(1_700_283_599 * 10**9)
        True
        """
        texts = tuple(spelled)
        return Hours(tuple(map(_span, texts)), zone_of(timezone), texts)

    def hold(self, at_ns: int) -> bool:
        """Tell whether a moment (unix ns) is within these times."""
        at = datetime.fromtimestamp(at_ns // _NS, tz=UTC).astimezone(self.zone)
        minute = at.hour * 60 + at.minute
        return any(span.holds(at.weekday(), minute) for span in self.spans)


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of an IANA name. Raises `ValueError`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name!r}; write a name such as Europe/Berlin") from error


def _span(text: str) -> _Span:
    days, _, times = text.strip().rpartition(" ")
    match = _TIMES.fullmatch(times)
    if match is None:
        raise ValueError(f"{text!r} tells no times; {_SPELLED}")
    begin_hour, begin_minute, end_hour, end_minute = map(int, match.groups())
    begin, end = begin_hour * 60 + begin_minute, end_hour * 60 + end_minute
    if begin >= _DAY_MINUTES or end > _DAY_MINUTES or max(begin_minute, end_minute) > 59:  # noqa: PLR2004 - minutes
        raise ValueError(f"{text!r} tells a time that is on no clock; {_SPELLED}")
    if begin == end:
        raise ValueError(f"{text!r} begins when it ends; the whole day is 00:00-24:00")
    return _Span(_days(days, text), begin, end)


def _days(spelled: str, text: str) -> frozenset[int]:
    if not spelled.strip():
        return frozenset(range(7))
    days: set[int] = set()
    for part in spelled.split(","):
        names = [name.strip().lower() for name in part.split("-")]
        if len(names) > 2 or any(name not in _DAYS for name in names):  # noqa: PLR2004 - from, to
            raise ValueError(f"{text!r} names a day that is none; {_SPELLED}")
        first, last = _DAYS.index(names[0]), _DAYS.index(names[-1])
        days.update((first + n) % 7 for n in range((last - first) % 7 + 1))
    return frozenset(days)
