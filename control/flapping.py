"""Flapping: alerts of one key that fire again and again become one alert that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from control.alerts import memory

if TYPE_CHECKING:
    import sqlite3

    from control.alerts.settings import AlertSettings
    from control.db import Transaction

KIND: Final = "flapping"
_NS: Final = 1_000_000_000
_KEPT: Final = 64


def count_episode(tx: Transaction, key: str, now_ns: int, settings: AlertSettings) -> int:
    """Remember that an episode of a key begins; return how many began within the window, this one too."""
    if not settings.flap_threshold:
        return 0
    begun = [*_recent(tx, key, now_ns, settings), now_ns][-max(_KEPT, settings.flap_threshold) :]
    memory.remember(tx, _name(key), list(begun), now_ns)
    return len(begun)


def is_calm(source: sqlite3.Connection | Transaction, key: str, now_ns: int, settings: AlertSettings) -> bool:
    """Tell whether so few episodes began within the window that the key flaps no more.

    That is fewer than half of what made it flap: an alert at the limit must not flap in its turn.
    """
    return 2 * len(_recent(source, key, now_ns, settings)) < settings.flap_threshold


def forget(tx: Transaction, key: str) -> None:
    """Count anew."""
    memory.forget(tx, _name(key))


def _recent(
    source: sqlite3.Connection | Transaction, key: str, now_ns: int, settings: AlertSettings
) -> list[int]:
    since = now_ns - int(settings.flap_window_s * _NS)
    return [at_ns for at_ns in memory.recall(source, _name(key)) or () if at_ns > since]


def _name(key: str) -> str:
    return f"flap:{key}"
