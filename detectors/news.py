"""The words of a result as numbers, to tell whether it says anything that was not said before."""

from __future__ import annotations

import re
from zlib import crc32

HEAD_CHARS = 4096
TAIL_CHARS = 1024

_WORD = re.compile(r"[^\W_]{2,40}")


def words_in(text: str) -> frozenset[int]:
    """32-bit hashes of the distinct words of two characters or more in a text's beginning and end.

    Case does not matter. CRC-32, because it is equal on every machine and the cheapest there is.

    >>> words_in("No such file: a.py") == words_in("no SUCH file a py"), len(words_in("x = 12, y = 12"))
    (True, 1)
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]} {text[-TAIL_CHARS:]}"
    return frozenset(
        [crc32(word.encode("utf-8", "surrogatepass")) for word in set(_WORD.findall(text.lower()))]
    )
