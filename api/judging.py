"""Events through the engine, and what it says checked: no detector, of whatever origin, stops the stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import orjson

from collector.step import StepEvent
from control.findings import finding_from_json
from detectors.engine import Engine
from detectors.protocol import Finding

logger = logging.getLogger(__name__)

OnTrouble: TypeAlias = Callable[[str, Exception], None]
"""Told what could not be done (`event` or `finding`, or another word of the caller's) and why."""


def encode_finding(finding: Finding) -> str:
    """A finding as the JSON that control and the command line read."""
    return orjson.dumps(finding).decode()


class Judge:
    """The engine behind a guard: what cannot be judged or said is told to `on_trouble`, the rest goes on."""

    def __init__(self, engine: Engine, on_trouble: OnTrouble) -> None:
        self._engine = engine
        self._on_trouble = on_trouble

    def apply(self, event: StepEvent) -> list[tuple[Finding, str]]:
        """Take one event in; return what it completes, each finding with its JSON."""
        try:
            found = self._engine.apply(event)
        except Exception as error:  # noqa: BLE001 - one event must not keep all others from being judged
            self._on_trouble("event", error)
            return []
        said: list[tuple[Finding, str]] = []
        for finding in found:
            try:
                said.append(checked(finding))
            except Exception as error:  # noqa: BLE001 - evidence of any shape; see above
                self._on_trouble("finding", error)
        return said


def checked(finding: Finding) -> tuple[Finding, str]:
    """A finding as all others will read it, and its JSON.

    Raises `MalformedFinding` or `TypeError` for what is no finding.
    """
    payload = encode_finding(finding)
    return finding_from_json(payload), payload


class Troubles:
    """An `OnTrouble` that counts, and logs each kind of trouble with its trace once, not at every step."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._count = count
        self._told: set[str] = set()

    def __call__(self, what: str, error: Exception) -> None:
        """Count one; log it when nothing like it was logged before."""
        self._count(what)
        kind = f"{what} {type(error).__name__}"
        if kind not in self._told:
            self._told.add(kind)
            logger.error(
                "detection goes on without one %s (further ones are only counted)", what, exc_info=error
            )
