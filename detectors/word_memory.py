"""Which words a scope has seen: a bitmap of hashes that takes as much room for a long run as for a short one.

A Bloom filter of one hash (Bloom, 1970). At its fullest, 4,096 words in 65,536 bits, six words in a hundred
that are new are taken for old ones. Then one half of the bits is emptied, each time the other one: what is
forgotten is new again, which makes a detector quieter.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collector.step import Json

WORDS_KEPT: Final = 4096
_FEW: Final = 512
_BYTES: Final = 1 << 13
_HALF: Final = _BYTES >> 1
_MASK: Final = (_BYTES << 3) - 1
_BIT: Final = tuple(1 << n for n in range(8))


class WordMemory:
    """Remembers 32-bit hashes; 8 KiB as soon as it has seen one. `count` is how many it holds, roughly."""

    __slots__ = ("_bits", "_upper", "count")

    def __init__(self) -> None:
        self.count = 0
        self._bits = bytearray()
        self._upper = False

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
        """Remember hashes that were not seen; half of all others are forgotten first when there are many."""
        if not self._bits:
            self._bits = bytearray(_BYTES)
        elif self.count > WORDS_KEPT:
            self._forget_half()
        bits, bit = self._bits, _BIT
        for word in hashes:
            bits[(word & _MASK) >> 3] |= bit[word & 7]
            self.count += 1

    def _forget_half(self) -> None:
        start = _HALF if self._upper else 0
        self._bits[start : start + _HALF] = bytes(_HALF)
        self._upper = not self._upper
        self.count >>= 1

    def json(self) -> Json:
        """What was seen, for a checkpoint: at most 11 KB of text, less for a few words."""
        bits = bytes(self._bits)
        packed = zlib.compress(bits, 1) if self.count < _FEW else bits
        return [self.count, self._upper, b64encode(packed).decode("ascii")]

    @staticmethod
    def load(state: Any) -> WordMemory:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        memory = WordMemory()
        memory.count, memory._upper, text = state
        packed = b64decode(text)
        memory._bits = bytearray(zlib.decompress(packed) if memory.count < _FEW else packed)
        return memory
