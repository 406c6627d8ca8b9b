"""Windows of time as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGO: Final = re.compile(r"(\d{1,6})([mhdw])")


class WindowError(ValueError):
    """This is no window or time; the message says what would be."""


def moment(text: str, now: datetime) -> datetime:
    """A time: an age (`90m`, `12h`, `7d`, `2w`), a day or an ISO time; UTC unless it says otherwise.

    >>> now = datetime(2026, 11, 8, 12, tzinfo=UTC)
    >>> [moment(text, now).isoformat() for text in ("7d", "2026-11-01")]
    ['2026-11-01T12:00:00+00:00', '2026-11-01T00:00:00+00:00']
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        told = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise WindowError(
            f"{text!r} is no time: write an age such as 12h, 7d or 2w, or a day such as 2026-11-01"
        ) from error
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def window(text: str, now: datetime) -> tuple[datetime, datetime]:
    """Two times with `..` between, the second exclusive and `now` when it is left out.

    >>> now = datetime(2026, 11, 8, 12, tzinfo=UTC)
    >>> [each.day for each in window("2026-11-01..2026-11-08", now)]
    [1, 8]
    """
    begin, separator, end = text.partition("..")
    if not separator:
        raise WindowError(f"{text!r} is no window: write two times with .. between, 2026-11-01..2026-11-08")
    since, until = moment(begin, now), moment(end, now) if end else now
    if since >= until:
        raise WindowError(f"{text!r} is no window: it ends before it begins")
    return since, until


def to_ns(time: datetime) -> int:
    """Unix nanoseconds, 0 for what was before 1970."""
    return max(0, int(time.timestamp() * 1e6) * 1000)


def from_ns(ns: int) -> str:
    """An ISO time of whole seconds, UTC."""
    return datetime.fromtimestamp(ns // 10**9, UTC).isoformat().replace("+00:00", "Z")
