from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDED, batches

from collector.batch import Signal
from collector.conventions import catalog, spellings
from collector.conventions.definitions import offered_by
from collector.conventions.generic import finish_of, usage_in
from collector.conventions.messages import output_of, read_message, tail_of, tail_of_text
from collector.conventions.observation import Observation, Telling
from collector.conventions.values import arguments_of, parse, result_of, told_by_text
from collector.record import Event, Record, records
from collector.step import Json


def span(name: str = "", attributes: Mapping[str, str] | None = None, **fields: object) -> Record:
    known: dict[str, object] = {
        "signal": Signal.TRACES,
        "identity": 1,
        "trace_id": "t" * 32,
        "span_id": "s" * 16,
        "parent_span_id": "p" * 16,
        "name": name,
        "service": "",
        "process": "p",
        "scope": "",
        "start_ns": 1,
        "end_ns": 2,
        "attributes": attributes or {},
        "resource": {},
    }
    return Record(**cast("dict[str, Any]", {**known, **fields}))


def read(record: Record) -> Observation:
    observation = catalog.read(record)
    assert observation is not None
    return observation


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"city": "Paris"}', {"city": "Paris"}),
        ("{'city': 'Paris', 'n': None}", {"city": "Paris", "n": None}),
        ('"{\\"city\\": \\"Paris\\"}"', {"city": "Paris"}),
        ('{"args": [], "kwargs": {"city": "Paris"}}', {"city": "Paris"}),
        ('{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"a": 1}}', {"a": 1}),
        ('{"kwargs": {"a": 1}}', {"a": 1}),
        ('{"args": ["Paris"], "kwargs": {}}', {"$value": "Paris"}),
        ('{"args": [], "kwargs": {}}', {}),
        ('{"args": {"a": 1}, "cancellation_token": "<x object at 0x7f>"}', {"a": 1}),
        (
            '{"input_str": "{\'a\': 1}", "tags": [], "metadata": {"langgraph_step": 3}, "inputs": {"a": 1}}',
            {"a": 1},
        ),
        ('{"input_str": "{\'a\': 1}", "tags": []}', {"a": 1}),
        ('{"tool_name": "f", "arguments": {"a": 1}}', {"a": 1}),
        ('{"method": "tools/call", "params": {"name": "f", "arguments": {"a": 1}}}', {"a": 1}),
        ('{"name": "f", "args": {"a": 1}, "id": "c", "type": "tool_call"}', {"a": 1}),
        ('{"name": "somebody", "args": {"a": 1}}', {"name": "somebody", "args": {"a": 1}}),
        ('{"ctx": "RunContext(deps=1)", "a": 1}', {"a": 1}),
        ("Paris", {"$value": "Paris"}),
        ("{ broken", {"$value": "{ broken"}),
        ("7", {"$value": 7}),
        ("", None),
        ("N/A", None),
        ("null", None),
        ("{}", {}),
    ],
)
def test_arguments_are_taken_out_of_their_envelopes(raw: str, expected: Json) -> None:
    assert arguments_of(raw, "f") == expected


@pytest.mark.parametrize(
    ("raw", "text", "failed"),
    [
        ("sunny", "sunny", None),
        ('{"type": "tool", "data": {"content": "x", "tool_call_id": "c", "status": "success"}}', "x", False),
        (
            '{"output": {"lc": 1, "kwargs": {"content": "x", "tool_call_id": "c", "status": "error"}}}',
            "x",
            True,
        ),
        ('{"id": "c", "name": "f", "response": {"error": "HTTP 503"}}', '{"error":"HTTP 503"}', True),
        ('[{"text": "Error: no"}]', "Error: no", True),
        ('{"content": [{"type": "text", "text": "no"}], "isError": true}', "no", True),
        ('{"result": "fine", "is_error": false}', "fine", False),
        ('{"title": "cat", "metadata": {"exit": 1}, "output": "cat: none"}', None, True),
        ('{"title": "cat", "metadata": {"exit": 0}, "output": "text"}', None, None),
        ('{"status": "error", "message": "no"}', None, True),
        ('{"error": null, "rows": []}', None, None),
        ("content='a \\'quoted\\' x' name='f' tool_call_id='c' status='error'", "a 'quoted' x", True),
        ("Chunk ID: 1\nProcess exited with code 2\nOutput:\n", None, True),
        ("Chunk ID: 1\nProcess exited with code 0\nOutput:\n", None, None),
        ("21C\n<shellId: 0 completed with exit code 1>", None, True),
        ("An error occurred while running the tool. Please try again.", None, True),
        ("The word error: is only in the middle", None, None),
    ],
)
def test_results_are_opened_and_failures_that_only_the_content_tells_are_seen(
    raw: str,
    text: str | None,
    failed: bool | None,  # noqa: FBT001 - a table's column
) -> None:
    seen = result_of(raw)
    assert seen.failed is failed
    assert seen.text == (text if text is not None else seen.text)


def test_a_refusal_is_no_failure() -> None:
    assert told_by_text("Command blocked by PreToolUse hook: not now").denied


@pytest.mark.parametrize(
    "raw",
    [
        "Stopped by Recloser: the tool 'x' was called 6 times",
        '{"content": "Stopped by Recloser: so", "status": "error", "type": "tool", "tool_call_id": "c"}',
        '{"isError": true, "content": [{"type": "text", "text": "Stopped by Recloser: so"}]}',
        "recloser_guard.errors.CallDenied: Stopped by Recloser: so",
        "Error running tool fetch_page: Stopped by Recloser: so",
    ],
)
def test_our_own_refusals_are_known_wherever_they_turn_up(raw: str) -> None:
    assert result_of(raw).denied


def test_a_page_that_tells_of_our_refusals_is_no_refusal() -> None:
    assert not result_of("x" * 200 + " Stopped by Recloser: the tool").denied


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers(raw: str) -> None:
    parse(raw)
    arguments_of(raw, "f")
    result_of(raw)
    tail_of_text(raw)
    output_of(parse(raw))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "parts",
                    "tool_calls",
                    "type",
                    "function",
                    "name",
                    "arguments",
                    "kwargs",
                    "data",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_no_message_breaks_the_readers(value: Json) -> None:
    read_message(value)
    tail_of([value])
    output_of(value)
    result_of(json.dumps(value))
    arguments_of(json.dumps(value), "f")


SPELLED = sorted(
    key for ladder in vars(spellings).values() if isinstance(ladder, spellings.Ladder) for key in ladder.keys
)


@given(
    st.dictionaries(st.sampled_from(SPELLED), JSON.map(json.dumps) | st.text(max_size=9), max_size=9),
    st.sampled_from(
        [
            "",
            "ai",
            "langsmith",
            "mcp",
            "logfire.x",
            "haystack",
            "gemini-cli",
            "qwen-code",
            "opencode",
            "llama-index",
        ]
    ),
    st.sampled_from(["execute_tool f", "chat m", "invoke_agent a", "Tool.execute", "FunctionTool.task", "x"]),
)
def test_no_attributes_break_a_convention(attributes: dict[str, str], scope: str, name: str) -> None:
    catalog.read(span(name, attributes, scope=scope))
    catalog.read(span(name, {"openinference.span.kind": "LLM", **attributes}, scope=scope))
    catalog.read(span(attributes={"event.name": "tool_call", **attributes}, scope=scope, signal=Signal.LOGS))


DIALECTS: list[list[Json]] = [
    [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}}],
        },
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "Error: x"}]},
    ],
    [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "Error: x"},
    ],
    [
        {"type": "function_call", "call_id": "c", "id": "fc", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "Error: x"},
    ],
    [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x", "is_error": True}],
        },
    ],
    [
        {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {"a": 1}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"id": "c", "name": "f", "response": {"error": "x"}}}],
        },
    ],
    [
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": {"a": 1}}}]},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c", "status": "error", "content": [{"text": "x"}]}}],
        },
    ],
    [
        {
            "role": "assistant",
            "content": [{"type": "tool-call", "toolCallId": "c", "toolName": "f", "input": {"a": 1}}],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c",
                    "toolName": "f",
                    "output": {"type": "error-text", "value": "x"},
                }
            ],
        },
    ],
    [
        {
            "type": "ai",
            "data": {"content": "", "type": "ai", "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c"}]},
        },
        {"type": "tool", "data": {"content": "x", "type": "tool", "tool_call_id": "c", "status": "error"}},
    ],
    [
        {
            "lc": 1,
            "kwargs": {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "f", "args": {"a": 1}, "id": "c"}],
            },
        },
        {"lc": 1, "kwargs": {"type": "tool", "content": "x", "tool_call_id": "c", "status": "error"}},
    ],
    [
        {
            "role": "assistant",
            "blocks": [
                {"block_type": "tool_call", "tool_call_id": "c", "tool_name": "f", "tool_kwargs": {"a": 1}}
            ],
        },
        {
            "role": "tool",
            "additional_kwargs": {"tool_call_id": "c"},
            "blocks": [{"block_type": "text", "text": "Error: x"}],
        },
    ],
    [
        {
            "_role": "assistant",
            "_content": [{"tool_call": {"tool_name": "f", "arguments": {"a": 1}, "id": "c"}}],
        },
        {
            "_role": "tool",
            "_content": [
                {"tool_call_result": {"result": "x", "error": True, "origin": {"tool_name": "f", "id": "c"}}}
            ],
        },
    ],
]


@pytest.mark.parametrize("history", DIALECTS)
def test_calls_and_what_they_brought_back_are_read_in_every_dialect(history: list[Json]) -> None:
    tail = tail_of([{"role": "user", "content": "please"}, *history])
    assert [(ask.call_id, ask.name, ask.arguments) for ask in tail.told] == [("c", "f", {"a": 1})]
    assert [(answer.call_id, answer.failed) for answer in tail.answers] == [("c", True)]
    assert tail.user_text is None
    asks, _ = output_of([history[0]])
    assert [(ask.call_id, ask.name, ask.arguments) for ask in asks] == [("c", "f", {"a": 1})]


@pytest.mark.parametrize("history", DIALECTS)
def test_the_tail_of_a_text_is_the_tail_of_its_messages(history: list[Json]) -> None:
    whole: list[Json] = [{"role": "user", "content": "please"}, *history, *history]
    for separators in ((",", ":"), (", ", ": ")):
        for value in (whole, {"messages": whole, "tools": []}):
            tail = tail_of_text(json.dumps(value, separators=separators))
            assert tail.answers[-1:] == tail_of(whole).answers[-1:]


def test_a_question_after_the_answer_is_a_user_turn_and_an_observation_is_none() -> None:
    asked: list[Json] = [{"role": "assistant", "content": "done"}, {"role": "user", "content": "and now?"}]
    assert tail_of(asked).user_text == "and now?"
    assert tail_of([asked[0], {"role": "user", "content": "Observation: nothing"}]).user_text is None


@pytest.mark.parametrize(
    ("record", "telling"),
    [
        (
            span("execute_tool f", {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}),
            Telling.TOOL,
        ),
        (span("execute_tool f"), Telling.TOOL),
        (
            span("x", {"gen_ai.tool.name": "(merged tools)", "gen_ai.operation.name": "execute_tool"}),
            Telling.CONTEXT,
        ),
        (span("handoff to b", {"openinference.span.kind": "TOOL"}), Telling.CONTEXT),
        (span("final", {"openinference.span.kind": "TOOL", "tool.name": "final_answer"}), Telling.CONTEXT),
        (
            span(
                "finish.__call__",
                {"openinference.span.kind": "TOOL"},
                scope="openinference.instrumentation.dspy",
            ),
            Telling.CONTEXT,
        ),
        (span("create_agent a", {"gen_ai.operation.name": "create_agent"}), Telling.CONTEXT),
        (span("x", {"llm.token_count.prompt": "3"}), Telling.MODEL),
        (span("x", {"gen_ai.usage.input_tokens": "3", "gen_ai.response.id": "r"}), Telling.MODEL),
        (span("x", {"llm.output_messages.0.message.role": "assistant"}), Telling.MODEL),
        (span("call_llm", {"gen_ai.request.model": "m"}), Telling.MODEL),
        (span("invoke_agent a", {"llm.token_count.prompt": "3"}), Telling.AGENT),
        (span("haystack.agent.step.tool", {"haystack.tool.name": "f"}), Telling.TOOL),
        (span("f", {"mlflow.spanType": '"TOOL"'}), Telling.TOOL),
        (span("f", {"langfuse.observation.type": "tool"}), Telling.TOOL),
        (span("Function: {name}", {"name": "f", "input": "{}"}, scope="logfire.openai_agents"), Telling.TOOL),
        (span("compaction", {"gen_ai.operation.name": "chat"}), Telling.COMPACTION),
        (
            span("MCP send tools/call f", {"mcp.method.name": "tools/call"}, scope="mcp-python-sdk"),
            Telling.TOOL,
        ),
    ],
)
def test_spans_are_classified_by_whatever_evidence_there_is(record: Record, telling: Telling) -> None:
    assert read(record).telling is telling


def test_spans_of_no_agent_tell_nothing() -> None:
    assert catalog.read(span("POST", scope="opentelemetry.instrumentation.httpx")) is None
    assert catalog.read(span("sql", scope="codex_core", service="codex_exec")) is None
    pending = span("chat m", {"logfire.span_type": "pending_span", "gen_ai.operation.name": "chat"})
    assert catalog.read(pending) is None


def test_the_name_of_the_kind_is_never_needed() -> None:
    kinds = {
        "gen_ai.operation.name",
        "openinference.span.kind",
        "gen_ai.request.model",
        "gen_ai.response.model",
    }
    for name in (
        "openai-raw/openinference-responses",
        "openai-raw/old-traceloop-sdk",
        "langgraph/openinference-returned-errors",
    ):
        for batch in batches(RECORDED / name):
            for record in records(batch):
                whole = catalog.read(record)
                if whole is None or whole.telling is not Telling.MODEL:
                    continue
                left = {key: value for key, value in record.attributes.items() if key not in kinds}
                cut = read(replace(record, attributes=left))
                assert cut.telling is Telling.MODEL
                assert cut.model is not None
                assert whole.model is not None
                assert cut.model.asks == whole.model.asks


def test_an_exception_event_alone_is_no_failure_and_a_status_needs_no_message() -> None:
    cancelled = Event("exception", 1, {"exception.type": "CancelledError", "exception.message": "x"})
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}
    fine = read(span("execute_tool f", attributes, events=(cancelled,), status="Ok")).tool
    bad = read(span("execute_tool f", attributes, status="Error")).tool
    assert fine is not None
    assert fine.failed is None
    assert bad is not None
    assert bad.failed is True


@pytest.mark.parametrize(
    ("attributes", "session"),
    [
        ({"session.id": "b", "gen_ai.conversation.id": "a"}, "a"),
        (
            {
                "traceloop.association.properties.thread_id": "t",
                "traceloop.association.properties.session_id": "s",
            },
            "s",
        ),
        ({"langsmith.trace.session_name": "project"}, ""),
        ({"mcp.session.id": "m"}, ""),
        ({"metadata": '{"thread_id": "t"}', "openinference.span.kind": "CHAIN"}, "t"),
        ({"ai.telemetry.metadata.sessionId": "v"}, "v"),
    ],
)
def test_the_session_is_the_best_spelling(attributes: dict[str, str], session: str) -> None:
    assert read(span("execute_tool f", {**attributes, "gen_ai.tool.name": "f"})).session == session


def log(event: str, attributes: dict[str, str], *, scope: str) -> Record:
    return span(
        attributes={"event.name": event, **attributes},
        signal=Signal.LOGS,
        trace_id="",
        span_id="",
        parent_span_id="",
        start_ns=9_000_000_000,
        end_ns=9_000_000_000,
        scope=scope,
    )


def test_claude_code_logs() -> None:
    scope = "com.anthropic.claude_code.events"
    result = {
        "tool_name": "Bash",
        "tool_use_id": "u",
        "success": "false",
        "duration_ms": "250",
        "session.id": "s",
    }
    observation = read(
        log("tool_result", {**result, "tool_input": '{"command": "ls"}', "error": "no"}, scope=scope)
    )
    assert observation.tool is not None
    assert (observation.tool.arguments, observation.tool.failed, observation.tool.error) == (
        {"command": "ls"},
        True,
        "no",
    )
    assert observation.end_ns - observation.start_ns == 250_000_000
    refused = read(
        log(
            "tool_decision",
            {"tool_name": "Bash", "tool_use_id": "u", "decision": "reject", "source": "hook"},
            scope=scope,
        )
    )
    assert refused.telling is Telling.TOOL
    assert refused.tool is not None
    assert refused.tool.denied
    accepted = read(
        log("tool_decision", {"tool_name": "Bash", "tool_use_id": "u", "decision": "accept"}, scope=scope)
    )
    assert accepted.telling is Telling.PART
    request = read(
        log(
            "api_request",
            {
                "input_tokens": "60",
                "cache_read_tokens": "40",
                "cache_creation_tokens": "10",
                "output_tokens": "20",
                "cost_usd": "0.5",
            },
            scope=scope,
        )
    )
    assert request.model is not None
    assert (request.model.usage.input_tokens, request.model.cost_usd) == (110, 0.5)
    assert read(log("compaction", {}, scope=scope)).telling is Telling.COMPACTION


def test_gemini_and_qwen_tell_of_exit_codes_and_refusals() -> None:
    call = {
        "function_name": "f",
        "function_args": '{"a": 1}',
        "success": "true",
        "metadata": '{"exitCode": 1, "isError": true}',
    }
    observation = read(log("gemini_cli.tool_call", call, scope="gemini-cli"))
    assert observation.tool is not None
    assert observation.tool.failed is True
    halted = {"function_name": "f", "success": "false", "error": "stop", "error_type": "stop_execution"}
    refused = read(log("gemini_cli.tool_call", halted, scope="gemini-cli"))
    assert refused.tool is not None
    assert refused.tool.denied
    blocked = {"function_name": "f", "call_id": "c", "success": "false", "error_type": "execution_denied"}
    denied = read(log("qwen-code.tool_call", blocked, scope="qwen-code"))
    assert denied.tool is not None
    assert denied.tool.denied
    assert denied.convention == "qwen_code"


def test_usage_objects_finish_reasons_and_offered_tools_of_every_shape() -> None:
    assert (
        usage_in({"input": 60, "output": 15, "input_cache_read": 40, "output_reasoning": 5}).input_tokens
        == 100
    )
    assert (
        usage_in({"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": 40}}).cached_tokens == 40
    )
    assert (
        finish_of('["tool_use"]')
        == finish_of("FinishReason.TOOL_CALLS")
        == finish_of("tool-calls")
        == "tool_calls"
    )
    assert finish_of("end_turn") == finish_of("STOP") == "stop"
    shapes: list[Json] = [
        [{"type": "function", "function": {"name": "f"}}],
        [{"name": "f", "inputSchema": {}}],
        ["f"],
        '["f"]',
        [{"functionDeclarations": [{"name": "f"}]}],
        ['{"name": "f"}'],
    ]
    for shape in shapes:
        assert offered_by(json.dumps(shape)).names == ("f",)
