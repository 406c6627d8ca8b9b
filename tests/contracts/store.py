"""What every store must do, embedded or a server: rows come back as they went in, and once.

A test module runs it by deriving from `StoreContract`, with the fixtures of `tests/storage/conftest.py`.
"""

from __future__ import annotations

import dataclasses
import re
import threading
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.batch import SPAN_SCHEMA
from collector.consumer import Rejected, Unavailable
from collector.step import Json, Outcome, SessionsMerged, Step, ToolDefinition, ToolDefinitions
from control.audit import chain
from detectors.protocol import Severity
from detectors.recovery import Response
from storage.client import StoreClient, StoreTarget, connect
from storage.migrate import migrate
from storage.queries import Queries
from storage.retention import Retention, apply_retention
from storage.rows import AlertRow, AuditRow, BreakerEventRow, failure_rows, tool_definition_rows
from storage.writer import Writer
from tests.storage.rows_for_tests import (
    DAY_NS,
    START_NS,
    bare_step,
    definition_rows,
    full_finding,
    full_recovery,
    full_step,
    log_batch,
    span_batch,
    span_row,
    spans,
    trace_id,
)

SCHEMA_PAGE = Path(__file__).parents[2] / "docs" / "schema.md"
AUDIT_QUERY = re.compile(r"SELECT seq, lower.*?(?=```)", re.DOTALL)
# The collector's clickhouse exporter, templates traces_table.sql and logs_table.sql: name and type, in order.
EXPORTER_TRACES = """
Timestamp DateTime64(9)
TraceId String
SpanId String
ParentSpanId String
TraceState String
SpanName LowCardinality(String)
SpanKind LowCardinality(String)
ServiceName LowCardinality(String)
ResourceAttributes Map(LowCardinality(String), String)
ScopeName String
ScopeVersion String
SpanAttributes Map(LowCardinality(String), String)
Duration UInt64
StatusCode LowCardinality(String)
StatusMessage String
Events.Timestamp Array(DateTime64(9))
Events.Name Array(LowCardinality(String))
Events.Attributes Array(Map(LowCardinality(String), String))
Links.TraceId Array(String)
Links.SpanId Array(String)
Links.TraceState Array(String)
Links.Attributes Array(Map(LowCardinality(String), String))
ResourceAttributeItems Array(String)
SpanAttributeItems Array(String)
"""
EXPORTER_LOGS = """
Timestamp DateTime64(9)
TraceId String
SpanId String
TraceFlags UInt8
SeverityText LowCardinality(String)
SeverityNumber UInt8
ServiceName LowCardinality(String)
Body String
ResourceSchemaUrl LowCardinality(String)
ResourceAttributes Map(LowCardinality(String), String)
ScopeSchemaUrl LowCardinality(String)
ScopeName String
ScopeVersion LowCardinality(String)
ScopeAttributes Map(LowCardinality(String), String)
LogAttributes Map(LowCardinality(String), String)
EventName String
"""


def fresh(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}-{uuid.uuid4().hex[:12]}"


def audit_entry(subject: str, *, seq: int = 1, previous: str = "0" * 64) -> AuditRow:
    payload = f'{{"actor":{{"id":"r","type":"rule"}},"n":{seq},"subject":"{subject}"}}'
    return AuditRow(
        seq=seq,
        at=START_NS + seq,
        actor_type="rule",
        actor_id="r",
        verb="trip",
        subject=subject,
        reason="stuck",
        payload=payload,
        previous=previous,
        hash=chain(previous, payload),
    )


def count(store: StoreClient, name: str) -> int:
    rows = store.rows(
        "SELECT count() FROM otel_traces WHERE TraceId = {trace:String}", {"trace": trace_id(name)}
    )
    return int(rows[0][0])


def summary(store: StoreClient, name: str) -> tuple[Any, ...]:
    return store.rows(
        "SELECT sum(Spans), sum(Errors), sum(InputTokens), sum(OutputTokens), toString(sum(CostUsd))"
        " FROM otel_traces_trace_id_ts WHERE TraceId = {trace:String}",
        {"trace": trace_id(name)},
    )[0]


def columns_of(store: StoreClient, table: str) -> list[str]:
    rows = store.rows(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = {table:String}"
        " ORDER BY position",
        {"table": table},
    )
    return [f"{name} {type_}" for name, type_ in rows]


@pytest.mark.store
class StoreContract:
    def test_migrating_again_changes_nothing(self, store: StoreClient) -> None:
        assert migrate(store) == []

    def test_traces_begin_with_the_exporters_columns(self, store: StoreClient) -> None:
        expected = EXPORTER_TRACES.split("\n")[1:-1]
        assert columns_of(store, "otel_traces")[: len(expected)] == expected

    def test_logs_begin_with_the_exporters_columns(self, store: StoreClient) -> None:
        expected = EXPORTER_LOGS.split("\n")[1:-1]
        assert columns_of(store, "otel_logs")[: len(expected)] == expected

    def test_the_companion_table_has_the_exporters_columns(self, store: StoreClient) -> None:
        assert columns_of(store, "otel_traces_trace_id_ts")[:3] == [
            "TraceId String",
            "Start SimpleAggregateFunction(min, DateTime)",
            "End SimpleAggregateFunction(max, DateTime)",
        ]

    def test_spans_come_back_as_they_went_in(self, writer: Writer, queries: Queries) -> None:
        name = fresh("round")
        batch = span_batch(name, 3)
        writer.insert_spans(batch, fresh("token"))
        assert queries.spans_of_trace(trace_id(name)).to_batches()[0].equals(batch)

    def test_a_trace_that_is_not_there_has_no_spans(self, queries: Queries) -> None:
        table = queries.spans_of_trace(trace_id(fresh("none")))
        assert table.num_rows == 0
        assert table.schema == SPAN_SCHEMA

    def test_nothing_is_written_for_an_empty_batch(self, writer: Writer, queries: Queries) -> None:
        before = queries.counts()
        writer.insert_spans(span_batch("empty", 0), fresh("token"))
        writer.insert_steps([], fresh("token"))
        assert queries.counts() == before

    def test_the_same_token_twice_changes_no_table_and_no_view(
        self, writer: Writer, store: StoreClient
    ) -> None:
        name, token = fresh("twice"), fresh("token")
        batch = span_batch(name, 100)
        for _ in range(3):
            writer.insert_spans(batch, token)
        assert count(store, name) == 100
        assert summary(store, name)[:2] == (100, 50)

    def test_a_large_batch_is_taken_whole_and_once(self, writer: Writer, store: StoreClient) -> None:
        name, token = fresh("large"), fresh("token")
        table = pa.Table.from_batches([span_batch(name, 1000)] * 150).combine_chunks()
        for _ in range(2):
            writer.insert_spans(table.to_batches()[0], token)
        assert count(store, name) == 150_000
        assert summary(store, name)[0] == 150_000

    def test_another_token_is_another_batch(self, writer: Writer, store: StoreClient) -> None:
        name = fresh("other")
        batch = span_batch(name, 10)
        writer.insert_spans(batch, fresh("token"))
        writer.insert_spans(batch, fresh("token"))
        assert count(store, name) == 20
        assert summary(store, name)[0] == 20

    def test_the_same_token_twice_changes_nothing_in_the_other_tables(
        self, writer: Writer, store: StoreClient
    ) -> None:
        name, token = fresh("tables"), fresh("token")
        for _ in range(2):
            writer.insert_logs(log_batch(name, 10), token)
            writer.insert_steps([full_step(name)], token)
            writer.insert_findings([full_finding(name)], token)
        for table, column, value, rows in (
            ("otel_logs", "TraceId", trace_id(name), 10),
            ("steps", "session_id", name, 1),
            ("findings", "id", name, 1),
        ):
            found = store.rows(
                f"SELECT count() FROM {table} WHERE {column} = {{value:String}}", {"value": value}
            )
            assert found == [(rows,)], table

    def test_foreign_writers_fill_the_extracted_columns(self, store: StoreClient) -> None:
        name = fresh("foreign")
        store.command(
            "INSERT INTO otel_traces (Timestamp, TraceId, SpanAttributes) SELECT now64(9), {trace:String},"
            " map('gen_ai.operation.name', 'chat', 'gen_ai.request.model', 'small',"
            " 'gen_ai.conversation.id', 'talk', 'gen_ai.usage.input_tokens', '12',"
            " 'gen_ai.usage.output_tokens', '3', 'gen_ai.usage.cost', '0.000015')",
            {"trace": trace_id(name)},
        )
        rows = store.rows(
            "SELECT GenAiOperation, GenAiModel, ConversationId, InputTokens, OutputTokens, toString(CostUsd),"
            " IngestedAt > toDateTime(0) FROM otel_traces WHERE TraceId = {trace:String}",
            {"trace": trace_id(name)},
        )
        assert rows == [("chat", "small", "talk", 12, 3, "0.000015", 1)]
        assert summary(store, name) == (1, 0, 12, 3, "0.000015")

    def test_strange_tokens_and_costs_are_nought(self, writer: Writer, store: StoreClient) -> None:
        name = fresh("strange")
        attributes = [
            ("gen_ai.usage.input_tokens", "many"),
            ("gen_ai.usage.cost", "1e-5"),
            ("gen_ai.usage.output_tokens", "-1"),
        ]
        writer.insert_spans(spans([span_row(name, SpanAttributes=attributes)]), fresh("token"))
        assert summary(store, name)[2:4] == (0, 0)

    def test_times_that_no_partition_holds_are_clamped(self, writer: Writer, store: StoreClient) -> None:
        name = fresh("clamped")
        rows = [span_row(name, 0, Timestamp=-5), span_row(name, 1, Timestamp=2**63 - 1)]
        writer.insert_spans(spans(rows), fresh("token"))
        years = store.rows(
            "SELECT toYear(Timestamp) FROM otel_traces WHERE TraceId = {trace:String} ORDER BY 1",
            {"trace": trace_id(name)},
        )
        assert years == [(1970,), (2106,)]

    def test_a_batch_may_span_more_days_than_an_insert(self, writer: Writer, store: StoreClient) -> None:
        name, token = fresh("days"), fresh("token")
        rows = [span_row(name, day, Timestamp=START_NS - day * DAY_NS) for day in range(130)]
        for _ in range(2):
            writer.insert_spans(spans(rows), token)
        assert count(store, name) == 130
        assert summary(store, name)[0] == 130

    def test_steps_come_back_as_they_went_in(self, writer: Writer, queries: Queries) -> None:
        session = fresh("steps")
        steps = [bare_step(session, 1), full_step(session, 2)]
        writer.insert_packed("tool_definitions", tool_definition_rows(definition_rows()), fresh("token"))
        writer.insert_steps(steps, fresh("token"))
        assert queries.steps_of_session(session) == steps

    def test_definitions_that_are_not_stored_are_not_known(self, writer: Writer, queries: Queries) -> None:
        session = fresh("undefined")
        gone = ToolDefinitions(fresh("hash"), {"search": ToolDefinition("search")}, 7)
        writer.insert_steps([dataclasses.replace(full_step(session), definitions=gone)], fresh("token"))
        assert [step.definitions for step in queries.steps_of_session(session)] == [None]

    def test_a_step_says_what_its_call_was_about(self, writer: Writer, store: StoreClient) -> None:
        session = fresh("about")
        shell = dataclasses.replace(
            full_step(session), tool="bash", arguments={"command": "cd x && git status"}
        )
        writer.insert_steps([shell, bare_step(session, 1)], fresh("token"))
        rows = store.rows(
            "SELECT operation, error_class, offered_count, definitions_chars, definitions_hash FROM steps"
            " WHERE session_id = {session:String} ORDER BY step_id",
            {"session": session},
        )
        assert rows == [("bash:git status", "unavailable", 2, 420, "00112233445566aa"), ("", "", 0, 0, "")]

    def test_a_failure_comes_back_as_it_went_in(self, writer: Writer, store: StoreClient) -> None:
        told = full_recovery(fresh("failure"))
        writer.insert_packed("failures", failure_rows([told]), fresh("token"))
        names = [field.name for field in dataclasses.fields(told) if field.name != "failed_ns"]
        [row] = store.rows(
            f"SELECT {', '.join(names)}, toUnixTimestamp64Nano(failed_at) FROM failures"
            " WHERE step_id = {step:String}",
            {"step": told.step_id},
        )
        assert row == (*(getattr(told, name) for name in names), told.failed_ns)

    def test_the_newest_revision_of_a_failure_wins(self, writer: Writer, store: StoreClient) -> None:
        first = full_recovery(fresh("failure"))
        second = dataclasses.replace(
            first, revision=1, error_class="timeout", failed_ns=START_NS + 40 * DAY_NS
        )
        for told in (second, first):
            writer.insert_packed("failures", failure_rows([told]), fresh("token"))
        rows = store.rows(
            "SELECT error_class FROM failures FINAL WHERE step_id = {step:String}", {"step": first.step_id}
        )
        assert rows == [("timeout",)]

    def test_the_views_count_each_failure_once_and_each_streak_once(
        self, writer: Writer, store: StoreClient
    ) -> None:
        service = fresh("service")
        one = dataclasses.replace(full_recovery(fresh("a")), service=service)
        again = dataclasses.replace(one, revision=1)
        second = dataclasses.replace(one, step_id=fresh("b"), earlier=1, calls_to_recovery=1)
        given_up = dataclasses.replace(
            one,
            step_id=fresh("c"),
            response=Response.ABANDONED,
            recovered=False,
            followed=None,
            calls_to_recovery=None,
            ns_to_recovery=None,
            tokens_spent=None,
            cost_usd=None,
        )
        for told in ([one], [again, second, given_up]):
            writer.insert_packed("failures", failure_rows(told), fresh("token"))
        for view in ("recovery_by_day", "recovery_by_tool", "recovery_by_class"):
            rows = store.rows(
                "SELECT failures, recoveries, abandonments, followed_failures, followed_recoveries,"
                " ignored_failures, mean_calls_to_recovery, mean_seconds_to_recovery, calls_lost,"
                f" tokens_lost, cost_usd_lost FROM {view} WHERE service = {{service:String}}",
                {"service": service},
            )
            assert rows == [(3, 2, 1, 2, 2, 0, 1.5, 5.0, 6, 120, 0.25)], view
        mix = store.rows(
            "SELECT first_response, response, failures FROM responses_by_day"
            " WHERE service = {service:String} ORDER BY response",
            {"service": service},
        )
        assert mix == [("retry", "abandoned", 1), ("retry", "recovered", 2)]

    def test_the_view_of_calls_counts_each_step_once(self, writer: Writer, store: StoreClient) -> None:
        service = fresh("service")
        bad = dataclasses.replace(full_step(fresh("calls")), service=service)
        good = dataclasses.replace(bad, step_id=fresh("good"), outcome=Outcome.OK, tool="search")
        later = dataclasses.replace(bad, revision=1, start_ns=bad.start_ns + 1)
        writer.insert_steps([bad, good, later], fresh("token"))
        rows = store.rows(
            "SELECT tool, calls, succeeded, failed, with_expectation, as_expected, sessions"
            " FROM tool_calls_by_day WHERE service = {service:String} ORDER BY tool",
            {"service": service},
        )
        assert rows == [("fetch_page", 1, 0, 1, 1, 0, 1), ("search", 1, 1, 0, 1, 1, 1)]

    def test_the_view_of_definitions_tells_since_when(self, writer: Writer, store: StoreClient) -> None:
        service = fresh("service")
        for seen_ns in (START_NS + DAY_NS, START_NS):
            rows = tool_definition_rows(definition_rows(service, seen_ns))
            writer.insert_packed("tool_definitions", rows, fresh("token"))
        told = store.rows(
            "SELECT tools, toUnixTimestamp64Nano(first_seen), toUnixTimestamp64Nano(last_seen)"
            " FROM definitions_by_version WHERE service = {service:String}",
            {"service": service},
        )
        assert told == [(2, START_NS, START_NS + DAY_NS)]

    def test_a_definition_keeps_when_it_was_seen_first(self, writer: Writer, store: StoreClient) -> None:
        service = fresh("service")
        for seen_ns in (START_NS + DAY_NS, START_NS, START_NS + 2 * DAY_NS):
            rows = tool_definition_rows(definition_rows(service, seen_ns))
            writer.insert_packed("tool_definitions", rows, fresh("token"))
        told = store.rows(
            "SELECT tool, toUnixTimestamp64Nano(min(first_seen)), toUnixTimestamp64Nano(max(last_seen))"
            " FROM tool_definitions WHERE service = {service:String} GROUP BY tool ORDER BY tool",
            {"service": service},
        )
        assert told == [(tool, START_NS, START_NS + 2 * DAY_NS) for tool in ("fetch_page", "search")]

    def test_the_newest_revision_of_a_step_wins(self, writer: Writer, queries: Queries) -> None:
        session = fresh("revised")
        first = full_step(session)
        second = dataclasses.replace(first, revision=1, start_ns=first.start_ns - DAY_NS, result="late")
        writer.insert_steps([second], fresh("token"))
        writer.insert_steps([first], fresh("token"))
        assert queries.steps_of_session(session) == [second]

    def test_a_step_that_changed_its_session_left_the_old_one(self, writer: Writer, queries: Queries) -> None:
        old, new = fresh("old"), fresh("new")
        step = full_step(old)
        moved = dataclasses.replace(step, revision=1, session_id=new)
        writer.insert_steps([step, moved], fresh("token"))
        assert queries.steps_of_session(old) == []
        assert queries.steps_of_session(new) == [moved]

    def test_merged_sessions_are_read_as_one(self, writer: Writer, queries: Queries) -> None:
        first, second, last = fresh("a"), fresh("b"), fresh("c")
        step = full_step(first)
        writer.insert_steps([step], fresh("token"))
        merges = [SessionsMerged(first, second), SessionsMerged(second, last)]
        writer.insert_session_merges(merges, fresh("token"))
        assert queries.steps_of_session(last) == [dataclasses.replace(step, session_id=last)]

    def test_unknown_arguments_are_not_no_arguments(self, writer: Writer, queries: Queries) -> None:
        session = fresh("arguments")
        arguments: list[Json] = [None, {}, []]
        told = [dataclasses.replace(bare_step(session, n), arguments=a) for n, a in enumerate(arguments)]
        writer.insert_steps(told, fresh("token"))
        assert [step.arguments for step in queries.steps_of_session(session)] == arguments

    def test_findings_come_back_in_their_newest_revision(self, writer: Writer, queries: Queries) -> None:
        first = full_finding(fresh("finding"))
        second = dataclasses.replace(first, revision=1, severity=Severity.WARNING, evidence={})
        writer.insert_findings([first, second], fresh("token"))
        found = [f for f in queries.newest_findings(limit=1000) if f.id == first.id]
        assert found == [second]

    def test_what_control_decided_is_counted_once(self, writer: Writer, queries: Queries) -> None:
        before = queries.counts()
        name = fresh("alert")
        alert = AlertRow(
            id=name, seq=1, event="fired", state="firing", opened_at=START_NS, updated_at=START_NS
        )
        resolved = dataclasses.replace(alert, seq=2, event="resolved", state="resolved")
        event = BreakerEventRow(breaker_id=name, seq=1, at=START_NS, event="tripped", state="open")
        entry = audit_entry(name)
        for _ in range(2):
            writer.insert_alerts([alert, resolved], fresh("token"))
            writer.insert_breaker_events([event], fresh("token"))
            writer.insert_audit([entry], fresh("token"))
        after = queries.counts()
        assert after["alerts"] - before["alerts"] == 1
        assert after["breaker_events"] - before["breaker_events"] == 1
        assert after["audit"] - before["audit"] == 1

    def test_the_audit_comes_back_as_it_was_chained(self, writer: Writer, store: StoreClient) -> None:
        first = audit_entry(fresh("breaker"))
        second = audit_entry(first.subject, seq=2, previous=first.hash)
        token = fresh("token")
        for _ in range(2):
            writer.insert_audit([first, second], token)
        rows = store.rows(
            "SELECT seq, toUnixTimestamp64Nano(at), actor_type, actor_id, verb, subject, reason, payload,"
            " previous, hash, lower(hex(SHA256(concat(previous, '\n', payload)))) FROM audit"
            " WHERE subject = {subject:String} ORDER BY seq",
            {"subject": first.subject},
        )
        assert rows == [(*dataclasses.astuple(entry), entry.hash) for entry in (first, second)]
        writer.insert_audit([dataclasses.replace(second, hash="f" * 64)], fresh("token"))
        assert store.rows(
            "SELECT count() FROM audit FINAL WHERE subject = {subject:String}", {"subject": first.subject}
        ) == [(3,)], "an entry in the place of another one does not replace it"

    def test_the_documented_query_finds_where_the_audit_is_broken(
        self, writer: Writer, store: StoreClient
    ) -> None:
        first = audit_entry(fresh("breaker"))
        second = audit_entry(first.subject, seq=2, previous=first.hash)
        third = audit_entry(first.subject, seq=3, previous=second.hash)
        writer.insert_audit([first, second, third], fresh("token"))
        sql = AUDIT_QUERY.search(SCHEMA_PAGE.read_text(encoding="utf-8"))
        assert sql is not None
        ours = sql[0].replace("audit FINAL", "audit FINAL WHERE subject = {subject:String}")
        assert store.rows(ours, {"subject": first.subject}) == []
        writer.insert_audit([dataclasses.replace(second, seq=4, payload="{}")], fresh("token"))
        assert store.rows(ours, {"subject": first.subject}) == [(4, False, False)]

    def test_existing_spans_are_told_from_others(self, writer: Writer, queries: Queries) -> None:
        name = fresh("existing")
        writer.insert_spans(span_batch(name, 5), fresh("token"))
        known = [(trace_id(name), f"{number:016x}") for number in range(5)]
        unknown = [(trace_id(name), "f" * 16)] + [(f"{n:032x}", f"{n:016x}") for n in range(2500)]
        assert queries.existing_spans(known + unknown) == set(known)

    def test_a_trace_list_tells_what_a_trace_amounts_to(self, writer: Writer, queries: Queries) -> None:
        name = fresh("listed")
        writer.insert_spans(span_batch(name, 4), fresh("token"))
        [told] = [t for t in queries.traces(limit=10_000) if t.trace_id == trace_id(name)]
        assert (told.spans, told.errors, told.service) == (4, 2, "crawler")
        assert told.root_name == "execute_tool fetch_page"
        assert told.start_s == START_NS // 10**9

    def test_parameters_are_values_never_sql(self, store: StoreClient) -> None:
        text = "'; DROP TABLE steps -- \\ \t\n 漢"
        assert store.rows("SELECT {text:String}", {"text": text}) == [(text,)]
        assert store.rows("SELECT {texts:Array(String)}", {"texts": [text, ""]}) == [([text, ""],)]

    def test_data_that_fits_no_column_is_rejected(self, store: StoreClient) -> None:
        with pytest.raises(Rejected):
            store.insert("otel_traces", ["Timestamp"], memoryview(b"this is no Arrow"), {})

    def test_a_wrong_query_is_rejected(self, store: StoreClient) -> None:
        with pytest.raises(Rejected):
            store.rows("SELEKT 1")

    def test_a_table_that_is_not_there_yet_is_waited_for(self, store: StoreClient) -> None:
        with pytest.raises(Unavailable):
            store.insert("nowhere", ["Timestamp"], memoryview(b""), {})

    def test_a_wrong_secret_is_refused(self, store_target: StoreTarget) -> None:
        stranger = connect(dataclasses.replace(store_target, user="nobody", password="wrong"))
        assert not stranger.ping()
        with pytest.raises(Unavailable) as refused:
            stranger.rows("SELECT 1")
        assert refused.value.retry_after > 1

    def test_nobody_at_home_is_unavailable(self) -> None:
        with pytest.raises(Unavailable):
            connect(StoreTarget(url="http://127.0.0.1:9")).rows("SELECT 1")

    def test_readers_and_writers_do_not_disturb_each_other(
        self, store: StoreClient, writer: Writer, queries: Queries
    ) -> None:
        name = fresh("parallel")
        failures: list[BaseException] = []

        def work(first: int) -> None:
            try:
                for number in range(5):
                    writer.insert_spans(span_batch(name, 20, (first + number) * 20), fresh("token"))
                    queries.counts()
            except BaseException as error:
                failures.append(error)
                raise

        threads = [threading.Thread(target=work, args=(k * 5,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert count(store, name) == 400
        assert summary(store, name)[0] == 400

    def test_retention_is_changed_only_when_it_differs(self, store: StoreClient) -> None:
        apply_retention(store, Retention(spans_days=0, steps_days=0, findings_days=0))
        wanted = Retention(spans_days=36_500, steps_days=36_500, findings_days=36_500)
        assert "otel_traces" in apply_retention(store, wanted)
        assert apply_retention(store, wanted) == []
        assert len(apply_retention(store, Retention(spans_days=0, steps_days=0, findings_days=0))) == 10

    def test_a_step_keeps_every_field(self, store: StoreClient) -> None:
        names = {line.split()[0] for line in columns_of(store, "steps")}
        told = {field.name for field in dataclasses.fields(Step)} - {"usage", "definitions", "evaluations"}
        usage = {"input_tokens", "output_tokens", "cached_tokens"}
        assert told | usage | {"definitions_hash", "evaluations.name"} <= names
