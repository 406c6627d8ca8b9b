"""What others do when breakers need attention: nothing, until they are set by who puts the parts together."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from control.breakers.record import Breaker
    from control.breakers.states import Event
    from control.db import Transaction
    from control.scope import Scope
    from detectors.notes import Notes

_log = logging.getLogger(__name__)

InTransaction: TypeAlias = "Callable[[Transaction, Breaker], None]"


def _nothing(*_: object) -> None:
    return None


@dataclass(slots=True)
class Hooks:
    """Called in the transaction of what they tell of, so that both are on disk or neither.

    `on_flapping`: a breaker went to and fro and is latched. `on_capped`: one would have opened, but too much
    was opened by itself lately. `on_still_running`: a run that was halted goes on; `on_run_ended`: it has
    ended after all, or nobody holds it any more. `on_refused` (scope, rule, why): an automatic trip that is
    never done. `on_write` is told every change; `on_change`, too, but after its commit.
    """

    on_flapping: InTransaction = _nothing
    on_capped: InTransaction = _nothing
    on_still_running: Callable[[Transaction, Breaker, Notes], None] = _nothing
    on_run_ended: InTransaction = _nothing
    on_refused: Callable[[Scope, str, str], None] = _nothing
    on_write: Callable[[Transaction, Event, Breaker], None] = _nothing
    on_change: Callable[[Event, Breaker], None] = _nothing


def tell(tx: Transaction, hook: Callable[..., None], *what: object) -> None:
    """Call a hook; one that fails is undone and logged, and keeps no breaker from changing."""
    try:
        with tx.savepoint():
            hook(tx, *what)
    except sqlite3.Error:
        raise
    except Exception:  # noqa: BLE001 - an alert that cannot be made must not let a stuck run go on
        _log.exception("what a breaker has to tell could not be told")
