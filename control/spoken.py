"""Under which kinds a finding speaks: its own, and those of the other detectors that see the same streak.

A finding's kind may rise while its streak goes on (`detectors.primary`); what was said of the streak before
stays in its evidence under `also`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from detectors.protocol import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from detectors.protocol import Finding


class Spoken(NamedTuple):
    """A kind under which something was said of a streak, and how severe that was."""

    kind: str
    severity: Severity


def also_of(finding: Finding) -> tuple[Spoken, ...]:
    """What other detectors say of the finding's streak. What cannot be read in its evidence is left out."""
    return tuple(_read(finding))


def _read(finding: Finding) -> Iterator[Spoken]:
    told = finding.evidence.get("also")
    for one in told if isinstance(told, (list, tuple)) else ():
        kind, severity = (one.get("kind"), one.get("severity")) if isinstance(one, dict) else (None, None)
        if isinstance(kind, str) and kind != finding.kind and severity in list(Severity):
            yield Spoken(kind, Severity(severity))
