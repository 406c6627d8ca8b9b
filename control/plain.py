"""Text from strangers without what takes over a terminal or begins a line of its own."""

from __future__ import annotations

from typing import Final

_CONTROL: Final[dict[int, str | None]] = {
    **dict.fromkeys((*range(32), *range(0x7F, 0xA0))),
    **dict.fromkeys((0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))),
    **dict.fromkeys((ord("\n"), ord("\t"), 0x0B, 0x0C, 0x85, 0x2028, 0x2029), " "),
}
"""Control characters, those that turn the direction of what follows, and those that begin a line."""


def plain(text: str) -> str:
    r"""Take control characters and new lines out, so that nothing looks like a line of ours.

    >>> plain("a\x1b[31mb\nRun: here")
    'a[31mb Run: here'
    """
    return text.translate(_CONTROL)
