"""How often Python looks for garbage in the ingest process."""

from __future__ import annotations

import gc
from typing import Final

YOUNG: Final = 50_000  # objects that were made and not freed since the last look
MIDDLE: Final = 20  # looks at the youngest
OLD: Final = 50  # looks at the middle


def look_for_garbage_rarely() -> None:
    """Leave what is there out of every search for garbage, and search less often.

    Nothing here makes garbage that reference counts do not free, apart from a connection's or an exception's
    odd cycle; but tens of thousands of calls are remembered, and by default they are walked through again and
    again: 80 of 170 µs CPU a step were spent so. Memory that cycles hold comes back later, nothing else.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
