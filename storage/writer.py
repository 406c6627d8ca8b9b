"""Rows into the store, exactly once: the same token twice changes nothing, in no table and no view.

A batch is one Arrow record batch, one INSERT, one block and one token. The engine remembers the tokens of
the last 1000 blocks of every table (`non_replicated_deduplication_window`), views included, over restarts
too, so whoever is not sure that a batch was taken sends it again with its token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

import numpy as np
import pyarrow as pa

from collector.batch import TIMESTAMP
from collector.consumer import Rejected
from collector.step import SessionsMerged, Step
from detectors.protocol import Finding
from storage.client import StoreClient, Value
from storage.rows import (
    AlertRow,
    AuditRow,
    BreakerEventRow,
    alert_rows,
    audit_rows,
    breaker_event_rows,
    finding_rows,
    session_merge_rows,
    step_rows,
)

T = TypeVar("T")

MAX_ROWS: Final = 1_000_000
"""Rows of one batch; more would be more than one block. 10,000 is a good size."""

_TIMES: Final = {"steps": "start_time", "failures": "failed_at", "tool_definitions": "last_seen"}
_DAY_NS: Final = 86_400 * 10**9
_LAST_NS: Final = 4_291_747_200 * 10**9  # 2106-01-01: ClickHouse's DateTime ends in that year
_MAX_DAYS: Final = 90  # an INSERT may touch 100 partitions; a day more at each end by time zone


class Writer:
    """Writes batches through one client.

    Every method returns when the store has the rows and raises `Unavailable` (send it again, with the
    same token) or `Rejected` (these rows can never be stored). Empty batches cost nothing.
    """

    def __init__(self, client: StoreClient) -> None:
        self._client = client

    def insert_spans(self, columns: pa.RecordBatch, token: str) -> None:
        """Write spans; `columns` has SPAN_SCHEMA."""
        self._insert("otel_traces", columns, token, time="Timestamp")

    def insert_logs(self, columns: pa.RecordBatch, token: str) -> None:
        """Write logs; `columns` has LOG_SCHEMA."""
        self._insert("otel_logs", columns, token, time="Timestamp")

    def insert_steps(self, steps: Sequence[Step], token: str) -> None:
        """Write steps; a step that is known already is written again with its higher revision."""
        self._insert("steps", _as_rows(step_rows, steps), token, time="start_time")

    def insert_session_merges(self, merges: Sequence[SessionsMerged], token: str) -> None:
        """Write which sessions turned out to be one; steps keep the session that they were stored under."""
        self._insert("session_merges", _as_rows(session_merge_rows, merges), token, time=None)

    def insert_packed(self, table: str, columns: pa.RecordBatch, token: str) -> None:
        """Write rows of any derived table, which `storage.rows` has made columns of before."""
        self._insert(table, columns, token, time=_TIMES.get(table))

    def insert_findings(self, findings: Sequence[Finding], token: str) -> None:
        """Write findings, one row a revision."""
        self._insert("findings", _as_rows(finding_rows, findings), token, time="started_at")

    def insert_alerts(self, rows: Sequence[AlertRow], token: str) -> None:
        """Write what became of alerts, one row an event."""
        self._insert("alerts", _as_rows(alert_rows, rows), token, time="opened_at")

    def insert_breaker_events(self, rows: Sequence[BreakerEventRow], token: str) -> None:
        """Write what breakers did, one row an event."""
        self._insert("breaker_events", _as_rows(breaker_event_rows, rows), token, time="at")

    def insert_audit(self, rows: Sequence[AuditRow], token: str) -> None:
        """Write entries of control's audit."""
        self._insert("audit", _as_rows(audit_rows, rows), token, time="at")

    def _insert(self, table: str, rows: pa.RecordBatch, token: str, *, time: str | None) -> None:
        if rows.num_rows > MAX_ROWS:
            raise Rejected(f"{rows.num_rows} rows are too many for one batch")
        for suffix, part in _within_partitions(rows, time):
            self._client.insert(table, part.schema.names, _stream(part), _settings(token + suffix))


def _as_rows(make: Callable[[Sequence[T]], pa.RecordBatch], objects: Sequence[T]) -> pa.RecordBatch:
    try:
        return make(objects)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise Rejected(f"these rows fit no column: {error}") from error


def _within_partitions(rows: pa.RecordBatch, time: str | None) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Bring times into what ClickHouse can hold, and cut a batch that spans too many days into parts.

    Partitions are days or months, and an INSERT may touch 100. Which rows go into which part depends on
    the batch alone, so the parts of a batch that is sent again have the same tokens.
    """
    if rows.num_rows == 0:
        return
    if time is None:
        yield "", rows
        return
    ns = rows.column(time).cast(pa.int64()).to_numpy(zero_copy_only=False)
    if ns.min() < 0 or ns.max() > _LAST_NS:
        ns = ns.clip(0, _LAST_NS)
        field = rows.schema.get_field_index(time)
        rows = rows.set_column(field, rows.schema.field(field), pa.array(ns).cast(TIMESTAMP))
    if ns.max() - ns.min() < _MAX_DAYS * _DAY_NS:
        yield "", rows
        return
    days, day_of_row = np.unique(ns // _DAY_NS, return_inverse=True)
    if days.size <= _MAX_DAYS:
        yield "", rows
        return
    for start in range(0, days.size, _MAX_DAYS):
        inside = (day_of_row >= start) & (day_of_row < start + _MAX_DAYS)
        yield f"/{start // _MAX_DAYS}", rows.filter(pa.array(inside))


def _settings(token: str) -> dict[str, Value]:
    return {
        "async_insert": 0,
        "deduplicate_blocks_in_dependent_materialized_views": 1,
        "insert_deduplicate": 1,
        "insert_deduplication_token": token,
        "max_insert_block_size": MAX_ROWS,
    }


def _stream(rows: pa.RecordBatch) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return memoryview(cast("Any", sink.getvalue()))
