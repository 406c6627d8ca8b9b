"""Small requests joined into larger ones: decoding costs a millisecond a request, whatever is in it.

Some exporters write one span a line. Their files are read fifty times as fast when a few hundred lines are
decoded together, and tell the same: a request is a list of resources, and lists can be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from collector.batch import Signal
from collector.receivers.files import Body

GROUP_BYTES: Final = 2 * 1024 * 1024
GROUP_BODIES: Final = 512
_KEYS: Final = {
    Signal.TRACES: ("resourceSpans", "resource_spans"),
    Signal.LOGS: ("resourceLogs", "resource_logs"),
    Signal.METRICS: ("resourceMetrics", "resource_metrics"),
}


def groups(bodies: Iterable[Body]) -> Iterator[list[Body]]:
    """Put neighbours together that can be joined, at most `GROUP_BYTES` and `GROUP_BODIES`, in order."""
    group: list[Body] = []
    size = 0
    for body in bodies:
        signal, encoding, data, _ = body
        size += len(data)
        fits = group and encoding == "json" and group[0][:2] == (signal, encoding)
        if group and not (fits and size <= GROUP_BYTES and len(group) < GROUP_BODIES):
            yield group
            group, size = [], len(data)
        group.append(body)
    if group:
        yield group


def joined(group: Sequence[Body]) -> bytes | None:
    """One request with what is in all of a group; None when one of them holds anything else."""
    keys = _KEYS[group[0][0]]
    resources: list[Any] = []
    for _, _, data, _ in group:
        try:
            request = orjson.loads(data)
        except ValueError:
            return None
        if not isinstance(request, dict) or len(request) != 1:
            return None
        key, part = next(iter(request.items()))
        if key not in keys or not isinstance(part, list):
            return None
        resources += part
    return orjson.dumps({keys[0]: resources})
