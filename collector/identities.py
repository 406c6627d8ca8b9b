"""Which spans were seen before: a bounded set of 64-bit identities.

An LSM in memory: sorted NumPy segments, merged when one is as large as its neighbour, so that a look-up
of a whole batch is a few binary searches and an identity costs 8 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Identities = npt.NDArray[np.uint64]

DEFAULT_CAPACITY: Final = 16_000_000  # identities; 128 MB


@dataclass(frozen=True, slots=True)
class _Segment:
    ids: Identities
    newest_ns: int


class SeenIdentities:
    """Remembers identities until they are older than `horizon_ns` or `capacity` is exceeded.

    Forgetting goes by whole segments, oldest first, so the real horizon is at least half of what the
    capacity allows. Not thread-safe: the spool's one writer owns it.

    >>> seen = SeenIdentities(horizon_ns=100, capacity=1000)
    >>> seen.add(np.array([1, 2, 2], dtype=np.uint64), now_ns=0)
    >>> seen.fresh(np.array([2, 3, 3], dtype=np.uint64)).tolist()
    [False, True, False]
    """

    def __init__(self, horizon_ns: int, capacity: int = DEFAULT_CAPACITY) -> None:
        self._horizon_ns = horizon_ns
        self._capacity = capacity
        self._segments: list[_Segment] = []

    def __len__(self) -> int:
        return sum(segment.ids.size for segment in self._segments)

    def fresh(self, ids: Identities) -> npt.NDArray[np.bool_]:
        """For each identity, whether this is the first time: neither remembered nor earlier in `ids`."""
        first = np.zeros(ids.size, dtype=np.bool_)
        first[np.unique(ids, return_index=True)[1]] = True
        for segment in self._segments:
            if not first.any():
                break
            at = np.searchsorted(segment.ids, ids)
            at[at == segment.ids.size] = 0
            first &= segment.ids[at] != ids
        return first

    def add(self, ids: Identities, now_ns: int) -> None:
        """Remember `ids` as of `now_ns`."""
        if not ids.size:
            return
        self._segments.append(_Segment(_distinct(ids), now_ns))
        while len(self._segments) > 1 and self._segments[-2].ids.size <= 2 * self._segments[-1].ids.size:
            newer, older = self._segments.pop(), self._segments.pop()
            if newer.ids.size + older.ids.size > self._capacity // 4:
                self._segments += [older, newer]
                break
            merged = _distinct(np.concatenate((older.ids, newer.ids)))
            self._segments.append(_Segment(merged, newer.newest_ns))
        self.forget(now_ns)

    def forget(self, now_ns: int) -> None:
        """Drop what is past the horizon or over the capacity."""
        while self._segments and (
            self._segments[0].newest_ns < now_ns - self._horizon_ns or len(self) > self._capacity
        ):
            if len(self._segments) == 1 and self._segments[0].newest_ns >= now_ns - self._horizon_ns:
                break
            self._segments.pop(0)


def _distinct(ids: Identities) -> Identities:
    """The identities in order, each once. `np.unique` would hash them, at a hundred times the cost."""
    ordered = np.sort(ids)
    first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]
