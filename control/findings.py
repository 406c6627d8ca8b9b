"""What the detectors found: read out of the spool in order, and kept for those who ask.

The spool's table is `findings(seq INTEGER PRIMARY KEY AUTOINCREMENT, id, revision, payload, created_ns,
UNIQUE (id, revision))`; `payload` is a `detectors.protocol.Finding` as JSON, field by field.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import orjson

from detectors.protocol import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from collector.step import Json
    from control.db import Transaction

CURSOR: Final = "findings"
_TEXT: Final = ("id", "kind", "session_id", "summary")
_WHOLE: Final = ("started_at", "detected_at", "occurrences")
_TOO_LARGE: Final = 2**63
_OPTIONAL_TEXT: Final = ("run_id", "service", "trace_id", "span_id", "first_span_id", "step_id", "detector")


class MalformedFinding(Exception):  # noqa: N818 - says what is wrong with the row, as the rest of the tree does
    """A row of the spool is no finding that this version can read; reading it again would fail again."""


@dataclass(frozen=True, slots=True)
class SpoolRow:
    """One row of the spool: its position, when ingest wrote it (unix ns), and the finding as JSON."""

    seq: int
    created_ns: int
    payload: str


class SpoolFindings:
    """Follows the findings in `spool.db` without ever writing to it.

    The file may not exist yet, and may be replaced by a new one while we read: both are seen at the next
    `poll`, and `generation` counts how often a file was opened. One thread at a time.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._inode = (0, 0)
        self._data_version = -1
        self._read_to = -1
        self.waiting_for: str | None = "the spool to be created"
        self.generation = 0

    def poll(self, after: int, limit: int = 256) -> list[SpoolRow]:
        """Return up to `limit` rows behind position `after`, in order; nothing when nothing is new.

        Costs two system calls and a few microseconds when the spool has not changed.
        """
        if not self._attached():
            return []
        assert self._connection is not None  # noqa: S101 - narrows the type that _attached established
        try:
            return self._read(self._connection, after, limit)
        except sqlite3.Error as error:
            self._detach(f"the spool to be readable ({error})")
            return []

    def last_position(self) -> int | None:
        """Return the highest position the spool ever gave out, None when it cannot be told now.

        A cursor above it belongs to a spool that no longer exists.
        """
        if not self._attached():
            return None
        assert self._connection is not None  # noqa: S101 - narrows the type that _attached established
        try:
            row = self._connection.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'findings'"
            ).fetchone()
        except sqlite3.Error:
            return None
        return 0 if row is None else int(row[0])

    def identity(self) -> str | None:
        """Return the spool's random id, empty when it has none yet; None when it cannot be told now."""
        if not self._attached():
            return None
        assert self._connection is not None  # noqa: S101 - narrows the type that _attached established
        try:
            row = self._connection.execute("SELECT value FROM state WHERE key = 'name'").fetchone()
        except sqlite3.Error:
            return None
        return "" if row is None else str(row[0].decode())

    def close(self) -> None:
        """Let go of the file."""
        self._detach("nothing: closed")

    def _read(self, connection: sqlite3.Connection, after: int, limit: int) -> list[SpoolRow]:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._data_version and after == self._read_to:
            return []
        rows = [
            SpoolRow(seq, created_ns, payload)
            for seq, created_ns, payload in connection.execute(
                "SELECT seq, created_ns, payload FROM findings WHERE seq > ? ORDER BY seq LIMIT ?",
                (after, limit),
            )
        ]
        self.waiting_for = None
        if not rows:
            self._data_version, self._read_to = version, after
        return rows

    def _attached(self) -> bool:
        try:
            status = self._path.stat()
        except OSError:
            self._detach("the spool to be created")
            return False
        if self._connection is not None and self._inode == (status.st_dev, status.st_ino):
            return True
        self._detach("the spool to be readable")
        try:
            uri = f"{self._path.resolve().as_uri()}?mode=ro"
            # whoever stops the following thread may close the file for it
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, timeout=1.0, check_same_thread=False
            )
        except sqlite3.Error as error:
            self._detach(f"the spool to be readable ({error})")
            return False
        self._inode = (status.st_dev, status.st_ino)
        self.generation += 1
        return True

    def _detach(self, waiting_for: str) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._data_version = self._read_to = -1
        self.waiting_for = waiting_for


def finding_from_json(payload: str | bytes) -> Finding:
    """Read a finding from its JSON form; fields of newer versions are ignored.

    Raises `MalformedFinding` naming the field that is missing or of the wrong type.

    >>> finding_from_json('{"id": "ab"}')
    Traceback (most recent call last):
    control.findings.MalformedFinding: kind: expected text, got null
    """
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise MalformedFinding(f"no JSON: {error}") from error
    if not _is_object(fields):
        raise MalformedFinding("no JSON object")
    values: dict[str, Any] = {name: _text(fields, name) for name in _TEXT}
    values |= {name: _whole(fields, name) for name in _WHOLE}
    values |= {name: _text(fields, name) for name in _OPTIONAL_TEXT if fields.get(name) is not None}
    for name in ("agent", "tool"):
        values[name] = _text(fields, name) if fields.get(name) is not None else None
    return Finding(
        **values,
        severity=_severity(fields),
        revision=_whole(fields, "revision") if "revision" in fields else 0,
        session_ids=_texts(fields, "session_ids"),
        evidence=_object(fields, "evidence"),
    )


def remember_finding(tx: Transaction, finding: Finding, payload: str, now_ns: int) -> bool:
    """Keep the newest revision of a finding; False when this revision (or a newer one) was seen before."""
    changed = tx.execute(
        "INSERT INTO findings (id, revision, session_id, kind, severity, payload, updated_ns) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET revision = excluded.revision, "
        "session_id = excluded.session_id, kind = excluded.kind, severity = excluded.severity, "
        "payload = excluded.payload, updated_ns = excluded.updated_ns "
        "WHERE excluded.revision > findings.revision",
        (
            finding.id,
            finding.revision,
            finding.session_id,
            finding.kind,
            finding.severity.value,
            payload,
            now_ns,
        ),
    )
    return changed.rowcount > 0


def list_findings(
    connection: sqlite3.Connection,
    *,
    session_id: str | None,
    kind: str | None,
    before: int | None,
    limit: int,
) -> list[tuple[int, str]]:
    """Return (position, JSON) of the newest findings first, at their latest revision."""
    rows = connection.execute(
        "SELECT seq, payload FROM findings "
        "WHERE (?1 IS NULL OR session_id = ?1) AND (?2 IS NULL OR kind = ?2) "
        "AND (?3 IS NULL OR seq < ?3) ORDER BY seq DESC LIMIT ?4",
        (session_id, kind, before, limit),
    )
    return [(row["seq"], row["payload"]) for row in rows]


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _type_name(value: object) -> str:
    return "null" if value is None else type(value).__name__


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise MalformedFinding(f"{name}: expected text, got {_type_name(value)}")
    return value


def _whole(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise MalformedFinding(f"{name}: expected a whole number, got {_type_name(value)}")
    if not 0 <= value < _TOO_LARGE:
        raise MalformedFinding(f"{name}: {value} is out of range")
    return value


def _severity(fields: Mapping[str, Any]) -> Severity:
    value = _text(fields, "severity")
    try:
        return Severity(value)
    except ValueError as error:
        raise MalformedFinding(f"severity: {value!r} is none of info, warning, critical") from error


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MalformedFinding(f"{name}: expected a list of texts")
    return tuple(value)


def _object(fields: Mapping[str, Any], name: str) -> Mapping[str, Json]:
    value = fields.get(name) or {}
    if not _is_object(value):
        raise MalformedFinding(f"{name}: expected an object, got {_type_name(value)}")
    return value
