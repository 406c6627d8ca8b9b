"""Which words a scope has seen: a bitmap of hashes that takes as much room for a short run as for a long one.

A Bloom filter of one hash (Bloom, 1970). At its fullest, 4,096 words in 131,072 bits, three words in a
hundred that are new are taken for old ones; then it is emptied, and everything is new again: what is
forgotten makes a detector quieter.
"""

from __future__ import annotations

import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collector.step import Json

WORDS_KEPT: Final = 4096
_BITS: Final = 1 << 17
_MASK: Final = _BITS - 1
_BIT: Final = tuple(1 << n for n in range(8))


class WordMemory:
    """Remembers 32-bit hashes. 16 KiB as soon as it has seen one."""

    __slots__ = ("_bits", "count")

    def __init__(self) -> None:
        self.count = 0
        self._bits = bytearray()

    def unseen(self, hashes: Iterable[int]) -> list[int]:
        """Return which of the hashes were never kept.

        >>> memory = WordMemory()
        >>> memory.keep([1, 2]); memory.unseen([1, 2, 3])
        [3]
        """
        bits, bit = self._bits, _BIT
        if not bits:
            return list(hashes)
        return [word for word in hashes if not bits[(word & _MASK) >> 3] & bit[word & 7]]

    def keep(self, hashes: Iterable[int]) -> None:
        """Remember hashes; all others are forgotten first when there are too many."""
        if self.count > WORDS_KEPT:
            self.count, self._bits = 0, bytearray()
        if not self._bits:
            self._bits = bytearray(_BITS >> 3)
        bits, bit = self._bits, _BIT
        for word in hashes:
            bits[(word & _MASK) >> 3] |= bit[word & 7]
            self.count += 1

    def json(self) -> Json:
        """What was seen, for a checkpoint: at most 5 KB of text."""
        if not self._bits:
            return [0, ""]
        return [self.count, b85encode(zlib.compress(bytes(self._bits), 1)).decode("ascii")]

    @staticmethod
    def load(state: Any) -> WordMemory:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        memory = WordMemory()
        memory.count, packed = state
        if packed:
            memory._bits = bytearray(zlib.decompress(b85decode(packed)))
        return memory
