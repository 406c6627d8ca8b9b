"""Spans, logs, steps and findings to write, every field of them told."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from collector.batch import LOG_SCHEMA, SPAN_SCHEMA
from collector.step import Evaluation, Kind, Outcome, Step, ToolDefinition, ToolDefinitions, Usage
from detectors.protocol import Finding, Severity
from detectors.recovery import Recovery, Response
from storage.rows import DefinitionRow

START_NS = 1_750_000_000_123_456_789
DAY_NS = 86_400 * 10**9


def trace_id(name: str) -> str:
    return name.encode().hex().ljust(32, "0")[:32]


def span_row(name: str, number: int = 0, **told: object) -> dict[str, Any]:
    row: dict[str, Any] = {
        "Timestamp": START_NS + number,
        "TraceId": trace_id(name),
        "SpanId": f"{number:016x}",
        "ParentSpanId": f"{number - 1:016x}" if number else "",
        "TraceState": "vendor=1",
        "SpanName": "execute_tool fetch_page",
        "SpanKind": "Internal",
        "ServiceName": "crawler",
        "ResourceAttributes": [("service.name", "crawler"), ("host.name", "höst")],
        "ScopeName": "scope",
        "ScopeVersion": "1.2",
        "SpanAttributes": [("gen_ai.operation.name", "execute_tool"), ("text", "naïve 漢字 🦉 \t\n'\\")],
        "Duration": 2**40 + number,
        "StatusCode": "Error" if number % 2 else "Ok",
        "StatusMessage": "",
        "Events.Timestamp": [START_NS + 1, START_NS + 2],
        "Events.Name": ["first", "second"],
        "Events.Attributes": [[("k", "v")], []],
        "Links.TraceId": [trace_id("other")],
        "Links.SpanId": ["00000000000000aa"],
        "Links.TraceState": [""],
        "Links.Attributes": [[("why", "because")]],
    }
    return row | told


def spans(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SPAN_SCHEMA)


def span_batch(name: str, count: int, first: int = 0) -> pa.RecordBatch:
    return spans([span_row(name, number) for number in range(first, first + count)])


def log_batch(name: str, count: int) -> pa.RecordBatch:
    rows = [
        {
            "Timestamp": START_NS + number,
            "TraceId": trace_id(name),
            "SpanId": f"{number:016x}",
            "TraceFlags": 1,
            "SeverityText": "INFO",
            "SeverityNumber": 9,
            "ServiceName": "cli",
            "Body": "ran a tool",
            "ResourceSchemaUrl": "",
            "ResourceAttributes": [("service.name", "cli")],
            "ScopeSchemaUrl": "",
            "ScopeName": "scope",
            "ScopeVersion": "",
            "ScopeAttributes": [],
            "LogAttributes": [("session.id", f"session of {name}")],
            "EventName": "tool_result",
        }
        for number in range(count)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=LOG_SCHEMA)


DEFINITIONS = ToolDefinitions(
    "00112233445566aa",
    {
        "fetch_page": ToolDefinition(
            "fetch_page",
            "gets a page",
            {"type": "object"},
            read_only=True,
            destructive=False,
            hash="aa00000000000000",
        ),
        "search": ToolDefinition("search", "looks for pages", hash="bb00000000000000"),
    },
    chars=420,
)


def full_recovery(step_id: str) -> Recovery:
    return Recovery(
        step_id=step_id,
        engine_seq=7,
        failed_ns=START_NS,
        session_id="s",
        run_id="run",
        service="crawler",
        service_version="1.2.3",
        agent="reader",
        tool="fetch_page",
        operation="fetch_page",
        target="pages.example.org:443",
        model="model-1",
        error_class="unavailable",
        nature="transient",
        source="rule",
        prescription="backoff_retry",
        response=Response.RECOVERED,
        first_response=Response.RETRY,
        followed=True,
        recovered=True,
        fed_back=True,
        ure=False,
        earlier=0,
        retries=2,
        perturbations=0,
        calls_to_recovery=2,
        ns_to_recovery=5 * 10**9,
        calls_spent=3,
        tokens_spent=120,
        cost_usd=0.25,
    )


def definition_rows(service: str = "crawler", seen_ns: int = START_NS) -> list[DefinitionRow]:
    return [
        DefinitionRow(service, "1.2.3", DEFINITIONS.hash, tool, seen_ns)
        for tool in DEFINITIONS.tools.values()
    ]


def full_step(session_id: str, number: int = 0) -> Step:
    return Step(
        step_id=f"{session_id}/{number}",
        kind=Kind.TOOL_CALL,
        session_id=session_id,
        start_ns=START_NS + number,
        end_ns=START_NS + number + 7,
        run_id="run",
        service="crawler",
        agent="reader",
        parent_agent="lead",
        user="u-1",
        tool="fetch_page",
        arguments={"url": "https://example.org/ä", "depth": 2, "tags": [None, True, 1.5]},
        result="503 Service Unavailable",
        call_id="call_1",
        attempt_id="attempt_1",
        outcome=Outcome.SOFT_ERROR,
        error="unavailable",
        model="model-1",
        provider="provider-1",
        usage=Usage(input_tokens=10, output_tokens=5, cached_tokens=0),
        cost_usd=0.0125,
        offered_tools=("fetch_page", "search"),
        finish_reason="tool_calls",
        text="let me see",
        trace_id=trace_id(session_id),
        span_id=f"{number:016x}",
        parent_span_id="00000000000000ff",
        convention="otel_genai",
        late=True,
        engine_seq=100 + number,
        service_version="1.2.3",
        target="pages.example.org:443",
        definitions=DEFINITIONS,
        expected_tool="search",
        task_id="task-1",
        task_success=False,
        evaluations=(Evaluation("correctness", 0.5, None), Evaluation("tone", None, "fine")),
    )


def bare_step(session_id: str, number: int = 0) -> Step:
    return Step(
        step_id=f"{session_id}/{number}",
        kind=Kind.MODEL_CALL,
        session_id=session_id,
        start_ns=START_NS,
        end_ns=START_NS,
        engine_seq=number,
    )


def full_finding(finding_id: str) -> Finding:
    return Finding(
        id=finding_id,
        kind="doom_loop",
        severity=Severity.CRITICAL,
        session_id="s",
        started_at=START_NS,
        detected_at=START_NS + 5,
        occurrences=6,
        summary="fetch_page failed 6 times in the same way",
        session_ids=("s", "t"),
        run_id="run",
        service="crawler",
        agent="reader",
        tool="fetch_page",
        trace_id=trace_id("t"),
        span_id="00000000000000aa",
        first_span_id="00000000000000ab",
        step_id="step",
        detector="doom_loop/1",
        evidence={"threshold": 6, "spans": ["a", "b"], "missing": []},
    )
