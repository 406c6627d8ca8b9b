"""Text from strangers, made fit for a terminal and for one line of a log.

Names of tools and sessions come out of spans. Left as they are, a line break in one forges a log line, an
escape sequence takes over the terminal, and a megabyte fills the disk.
"""

from __future__ import annotations

import unicodedata
from typing import Final

MAX_TEXT: Final = 2000  # characters
_DANGEROUS: Final = frozenset(
    {"Cc", "Cf", "Zl", "Zp", "Cs"}
)  # control, format (bidi), line separators, surrogates


def printable(text: str, length: int = MAX_TEXT) -> str:
    r"""The text in one line without control characters, cut to `length` characters.

    >>> printable("fetch\x1b[2J\npage"), printable("abcdef", 4)
    ('fetch\\x1b[2J\\npage', 'abc…')
    """
    if len(text) > length:
        text = f"{text[: length - 1]}…"
    if text.isprintable():
        return text
    return "".join(repr(char)[1:-1] if unicodedata.category(char) in _DANGEROUS else char for char in text)
