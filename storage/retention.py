"""How long rows are kept: a TTL on each table, changed when the setting changed.

Whole parts are dropped when all their rows have expired (`ttl_only_drop_parts`); what is stored is never
rewritten for it. The engine looks for expired parts every few hours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from storage.client import StoreClient

_TTL: Final = re.compile(r"\bTTL (?P<expression>.+?) \+ (?:toIntervalDay\((?P<days>\d+)\))", re.DOTALL)
_A_WEEK: Final = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days to keep spans and logs, steps, and what was found and decided; 0 keeps them for ever.

    The audit is kept for ever.
    """

    spans_days: int = 14
    steps_days: int = 60
    findings_days: int = 365


def apply_retention(client: StoreClient, retention: Retention) -> list[str]:
    """Make the tables keep what `retention` says; return the names of those that were changed.

    Raises `Unavailable` when the store is away, `ValueError` for a negative number of days.
    """
    changed = []
    for table, column, days in _wanted(retention):
        if days < 0:
            raise ValueError(f"{table} cannot be kept for {days} days")
        rows = client.rows(
            "SELECT create_table_query FROM system.tables WHERE database = currentDatabase()"
            " AND name = {table:String}",
            {"table": table},
        )
        if days == ttl_days(str(rows[0][0])):
            continue
        client.command(_statement(table, column, days))
        changed.append(table)
    return changed


def ttl_days(create_query: str) -> int:
    """The days of a table's TTL, 0 when it has none.

    >>> ttl_days("CREATE TABLE t ... TTL toDate(at) + toIntervalDay(14) SETTINGS ...")
    14
    """
    told = _TTL.search(create_query)
    return int(told["days"]) if told else 0


def _wanted(retention: Retention) -> list[tuple[str, str, int]]:
    spans = retention.spans_days
    return [
        ("otel_traces", "Timestamp", spans),
        ("otel_logs", "Timestamp", spans),
        # Its parts hold a week each; a row must outlive the last span that it tells of.
        ("otel_traces_trace_id_ts", "Start", spans + _A_WEEK if spans else 0),
        ("steps", "start_time", retention.steps_days),
        ("session_merges", "merged_at", retention.steps_days),
        ("findings", "detected_at", retention.findings_days),
        ("failures", "failed_at", retention.findings_days),
        ("tool_definitions", "last_seen", retention.findings_days),
        ("alerts", "updated_at", retention.findings_days),
        ("breaker_events", "at", retention.findings_days),
    ]


def _statement(table: str, column: str, days: int) -> str:
    if days == 0:
        return f"ALTER TABLE {table} REMOVE TTL"
    return (
        f"ALTER TABLE {table} MODIFY TTL toDate({column}) + toIntervalDay({days})"
        " SETTINGS materialize_ttl_after_modify = 0"
    )
