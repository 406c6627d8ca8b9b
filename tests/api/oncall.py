"""A running control plane for the commands of on-call, with findings of now."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from api.cli import app
from detectors.protocol import Finding
from tests.api.serving import Served
from tests.control.support import STUCK, Spool

NOW_NS = time.time_ns()
EVIL = "\x1b[2J\u202eevil [red]"
"""Clears the screen, turns text around, and looks like markup."""


def found(number: int, **changes: Any) -> Finding:  # noqa: ANN401 - any fields
    """A finding of twelve minutes ago."""
    times = {"started_at": NOW_NS - 720 * 10**9, "detected_at": NOW_NS - 720 * 10**9}
    session = changes.get("session_id", f"chat-{number}")
    fields = {"session_id": session, "session_ids": (session,), **times, **changes}
    return replace(STUCK, id=f"{number:016x}", **fields)


def alerted(plane: Served, folder: Path, *findings: Finding) -> None:
    """Let alerts fire of findings, and wait until they do."""
    Spool(folder / "spool.db").add(*findings)
    while len(plane.ask("GET", "/v1/alerts?state=firing").json()["alerts"]) < len(findings):
        time.sleep(0.005)


def run(plane: Served, *words: str, token: str | None = None) -> Result:
    """Call the command line as a person does who was paged."""
    environment = {"RECLOSER_URL": str(plane.client.base_url), "RECLOSER_TOKEN": token}
    return CliRunner().invoke(app, list(words), env=environment)
