"""What becomes of guards when their process forks or ends."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recloser_guard.guard import Guard

_AT_EXIT_S = 0.5
_ALL: weakref.WeakSet[Guard] = weakref.WeakSet()


def look_after(guard: Guard) -> None:
    """Let a guard begin anew in a forked child, and tell what is untold at the end of the process."""
    _ALL.add(guard)


def _after_fork() -> None:
    for guard in list(_ALL):
        guard.forked()


def _at_exit() -> None:
    for guard in list(_ALL):
        guard.close(_AT_EXIT_S)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
