"""Obeys Recloser's breakers inside an agent's process."""

from recloser_guard.context import Current
from recloser_guard.decision import Decision
from recloser_guard.errors import BudgetExceeded, CallDenied, GuardError, Refused, RunHalted
from recloser_guard.guard import Guard
from recloser_guard.health import Status
from recloser_guard.version import __version__
from recloser_guard.watcher import Pace

__all__ = [
    "BudgetExceeded",
    "CallDenied",
    "Current",
    "Decision",
    "Guard",
    "GuardError",
    "Pace",
    "Refused",
    "RunHalted",
    "Status",
    "__version__",
]
