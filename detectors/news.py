"""The words of a result as numbers, to tell whether it says anything that was not said before."""

from __future__ import annotations

from typing import Final
from zlib import crc32

HEAD_CHARS: Final = 4096
TAIL_CHARS: Final = 1024

_LONGEST = 40
# Bytes of words stay, in lower case; all other ASCII parts them. Bytes above ASCII belong to words.
_APART: Final = bytes(
    code + 32 if 65 <= code <= 90 else code if code >= 128 or chr(code).isalnum() else 32  # noqa: PLR2004 - ASCII
    for code in range(256)
)


def words_in(text: str) -> frozenset[int]:
    """32-bit hashes of the distinct words of two bytes or more in a text's beginning and end.

    The case of ASCII letters does not matter. CRC-32, because it is equal on every machine and the cheapest
    there is.

    >>> words_in("No such file: a.py") == words_in("no SUCH file a_py"), len(words_in("x = 12, y = 12"))
    (True, 1)
    """
    if len(text) > HEAD_CHARS + TAIL_CHARS:
        text = f"{text[:HEAD_CHARS]} {text[-TAIL_CHARS:]}"
    words = set(text.encode("utf-8", "surrogatepass").translate(_APART).split())
    return frozenset([crc32(word) for word in words if 1 < len(word) <= _LONGEST])
