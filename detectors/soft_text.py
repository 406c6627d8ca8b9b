"""What in a result that was reported as a success says that it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from detectors.result_text import is_error

if TYPE_CHECKING:
    from detectors.role import Role


@dataclass(frozen=True, slots=True)
class SoftFailure:
    """Why a success is none: the `rule` that says so, and the words that it rests on."""

    rule: str
    words: str


def soft_failure_in(result: str, tool: str | None, role: Role) -> SoftFailure | None:
    """Return what in a result says that the call failed.

    >>> from detectors.role import Role
    >>> soft_failure_in("Error: no such session", "run", Role.OTHER).rule
    'begins as an error'
    """
    del tool, role
    return SoftFailure("begins as an error", result[:80]) if is_error(result) else None
