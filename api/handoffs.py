"""Hand-off reports for the command line: by the running sidecar, of recorded traces, of what is stored."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx

from api.analyze import Analysis, Problems
from api.build import build_engine
from api.config import ConfigError, Settings
from api.judging import Judge
from api.storeaccess import StoreAccessError, opened
from api.talking import address
from api.window import WindowError, moment, to_ns
from collector.consumer import Rejected, Unavailable
from collector.receivers.files import read_files
from collector.step import RunEnded, StepEvent
from control.handoff import build
from control.handoff.forms import to_dict
from detectors.notes import Notes
from detectors.notes_book import NotesBook, NotesLimits
from detectors.protocol import Finding
from storage.history import History

LIMITS: Final = NotesLimits(max_sessions=200_000, max_bytes=512 * 1024 * 1024)
_TIMEOUT_S: Final = 10.0
_DENIED: Final = frozenset({401, 403})


class HandoffError(Exception):
    """There is no report; the message says why."""


def asked(session_id: str, settings: Settings, url: str | None, token: str | None) -> dict[str, Any]:
    """The report that the running sidecar makes. Raises `HandoffError`."""
    base = address(settings, url)
    headers = {"authorization": f"Bearer {token}"} if token else {}
    place = f"{base}/v1/runs/{quote(session_id, safe='')}/handoff"
    try:
        answer = httpx.get(place, headers=headers, timeout=_TIMEOUT_S, trust_env=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        hint = "--url or --config say where it is, --from and --since need none"
        raise HandoffError(f"{base} does not answer: {error}; {hint}") from error
    try:
        told = answer.json()
    except ValueError as error:
        raise HandoffError(f"{base} answers with something else than JSON") from error
    if answer.is_success and isinstance(told, dict):
        return told
    hint = "; give a token as RECLOSER_TOKEN" if answer.status_code in _DENIED else ""
    detail = told.get("detail") if isinstance(told, dict) else None
    raise HandoffError(f"{base}: {detail or f'HTTP {answer.status_code}'}{hint}")


def recorded(session_id: str, paths: Sequence[Path], settings: Settings) -> dict[str, Any]:
    """The report of a session in recorded traces, judged as `analyze` does. Raises `HandoffError`."""
    problems = Problems(sys.stderr)
    try:
        analysis = Analysis(settings, problems, notes=lambda lens: NotesBook(LIMITS, lens))
    except ConfigError as error:
        raise HandoffError(str(error)) from error
    for _ in analysis.feed(read_files(paths, problems)):
        pass
    if analysis.notes is None:
        raise RuntimeError("the analysis keeps notes when it is told to")
    where = ", ".join(map(str, paths))
    return _report(session_id, analysis.notes.notes(session_id), analysis.latest.values(), where)


def stored(session_id: str, since: str, settings: Settings) -> dict[str, Any]:
    """The report of a session in the stored history since `since`. Raises `HandoffError`."""
    now = datetime.now(UTC)
    try:
        since_ns = to_ns(moment(since, now))
        engine = build_engine(settings)
    except (WindowError, ConfigError) as error:
        raise HandoffError(str(error)) from error
    book, troubles = NotesBook(LIMITS, engine.lens), Problems(sys.stderr)

    def trouble(what: str, error: Exception) -> None:
        troubles.about(f"one {what}", f"could not be judged: {error!r}")

    judge = Judge(engine, trouble)
    latest: dict[str, Finding] = {}
    try:
        with opened(settings) as client:
            for event in History(client, since_ns, to_ns(now)).events():
                if _session_of(event) != session_id:
                    continue
                book.apply(event)
                for finding, _ in judge.apply(event):
                    book.found(finding)
                    latest[finding.id] = finding
    except (StoreAccessError, Unavailable, Rejected) as error:
        raise HandoffError(f"the stored history cannot be read: {error}") from error
    return _report(session_id, book.notes(session_id), latest.values(), f"the history since {since}")


def _session_of(event: StepEvent) -> str | None:
    if isinstance(event, RunEnded):
        return event.session_id
    step = getattr(event, "step", None)
    return None if step is None else str(step.session_id)


def _report(session_id: str, notes: Notes | None, latest: Iterable[Finding], where: str) -> dict[str, Any]:
    findings = [one for one in latest if session_id in (one.session_id, *one.session_ids)]
    if notes is None and not findings:
        raise HandoffError(f"{where}: no session {session_id!r}")
    last_ns = max((one.detected_at for one in findings), default=0)
    return to_dict(build(notes, findings, (), max(last_ns, 0 if notes is None else notes.last_ns)))
