"""Times on the wire."""

from __future__ import annotations

import re
from datetime import datetime

_FORM = re.compile(r"(\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


def unix_seconds(moment: str | None) -> float | None:
    """Read an RFC 3339 time; None stays None. Raises `ValueError`.

    >>> unix_seconds("1970-01-01T00:01:00.250000000Z"), unix_seconds("1970-01-01T01:01:00+01:00")
    (60.25, 60.0)
    """
    if moment is None:
        return None
    found = _FORM.fullmatch(moment)
    if found is None:
        raise ValueError(f"not an RFC 3339 time: {moment!r}")
    whole, fraction, zone = found.groups()
    zone = "+00:00" if zone in "Zz" else zone
    return datetime.fromisoformat(whole.replace(" ", "T").upper() + zone).timestamp() + float(fraction or 0)
