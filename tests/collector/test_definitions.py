"""What tools a model was offered: in every spelling, by hash, through a restart, within bounds."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDED, batches, pieces, read_live, read_offline
from told import Told, batch

from collector.batch import Signal
from collector.conventions import definitions
from collector.conventions.definitions import Offered, offered_by, offered_of
from collector.conventions.values import parse
from collector.definitions import define, key_of, known, together
from collector.reader import StepReader
from collector.state import State
from collector.step import Json, Kind, Step, StepSeen, ToolDefinition, ToolDefinitions

SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = define("get_weather", "Get the weather.", SCHEMA)
SPELLED = {"name": "get_weather", "description": "Get the weather."}
OPENAI = {"type": "function", "function": {**SPELLED, "parameters": SCHEMA}}
MCP = {**SPELLED, "inputSchema": SCHEMA}

SPELLINGS: dict[str, dict[str, str]] = {
    "semantic conventions": {"gen_ai.tool.definitions": json.dumps([{**SPELLED, "parameters": SCHEMA}])},
    "OpenAI's shape": {"gen_ai.tool.definitions": json.dumps([OPENAI])},
    "MCP's shape": {"gen_ai.tool.definitions": json.dumps([MCP])},
    "a result of MCP's tools/list": {"gen_ai.tool.definitions": json.dumps({"tools": [MCP]})},
    "Anthropic's shape": {"gen_ai.request.tools": json.dumps([{**SPELLED, "input_schema": SCHEMA}])},
    "Gemini's shape": {
        "gen_ai.tool.definitions": json.dumps(
            [{"functionDeclarations": [{**SPELLED, "parametersJsonSchema": SCHEMA}]}]
        )
    },
    "Bedrock's shape": {
        "gen_ai.tool.definitions": json.dumps([{"toolSpec": {**SPELLED, "inputSchema": {"json": SCHEMA}}}])
    },
    "a schema that is a text": {
        "gen_ai.tool.definitions": json.dumps([{**SPELLED, "parameters": json.dumps(SCHEMA)}])
    },
    "Vercel, texts in a list": {"ai.prompt.tools": json.dumps([json.dumps({"type": "function", **MCP})])},
    "Haystack": {
        "haystack.agent.tools": json.dumps(
            [{"type": "haystack.tools.tool.Tool", "data": {**SPELLED, "parameters": SCHEMA}}]
        )
    },
    "MLflow": {"mlflow.chat.tools": json.dumps([OPENAI])},
    "by name": {
        "gen_ai.request.tools": json.dumps(
            {"get_weather": {"description": "Get the weather.", "parameters": SCHEMA}}
        )
    },
    "OpenInference": {"llm.tools.0.tool.json_schema": json.dumps(OPENAI)},
    "OpenInference, in three attributes": {
        "llm.tools.0.tool.name": "get_weather",
        "llm.tools.0.tool.description": "Get the weather.",
        "llm.tools.0.tool.json_schema": json.dumps(SCHEMA),
    },
    "Traceloop": {
        "llm.request.functions.0.name": "get_weather",
        "llm.request.functions.0.description": "Get the weather.",
        "llm.request.functions.0.parameters": json.dumps(SCHEMA),
    },
    "pydantic-ai's request": {
        "model_request_parameters": json.dumps(
            {"function_tools": [{**SPELLED, "parameters_json_schema": SCHEMA, "kind": "function"}]}
        )
    },
    "ADK's request": {
        "gcp.vertex.agent.llm_request": json.dumps(
            {
                "model": "m",
                "config": {
                    "tools": [{"function_declarations": [{**SPELLED, "parameters_json_schema": SCHEMA}]}]
                },
            }
        )
    },
    "a request within a span's input": {
        "input.value": json.dumps({"messages": [], "kwargs": {"tools": [OPENAI]}})
    },
    "Langfuse's messages": {
        "langfuse.observation.input": json.dumps(
            [{"role": "user", "content": "Hi"}, {"role": "tool", "content": OPENAI}]
        )
    },
}


@pytest.mark.parametrize("attributes", SPELLINGS.values(), ids=SPELLINGS)
def test_every_spelling_gives_the_same_definition(attributes: dict[str, str]) -> None:
    offered = offered_of(attributes)
    assert offered.names == ("get_weather",)
    assert offered.definitions is not None
    assert offered.definitions.tools == {"get_weather": WEATHER}
    assert offered.definitions.hash == together([WEATHER], 0).hash


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        ("", ()),
        ("null", ()),
        ("{}", ()),
        ("[]", ()),
        ('["f", "g"]', ("f", "g")),
        ('[{"name": "f"}, {"name": "g"}]', ("f", "g")),
        ('[{"name": "f", "description": "Do it", "parameters": {"type": "obj', ("f",)),
        ('[{"type":"function","function":{"name":"f"},{"name": "g"', ("f", "g")),
        ('["{\\"name\\":\\"f\\",\\"inputSchema\\":{\\"ty', ("f",)),
        ("[" * 5_000, ()),
    ],
)
def test_without_more_than_names_there_are_no_definitions(raw: str, names: tuple[str, ...]) -> None:
    assert offered_of({"gen_ai.tool.definitions": raw}) == Offered(names)


def test_where_one_spelling_has_only_names_another_may_have_more() -> None:
    offered = offered_of(
        {"gen_ai.agent.tools": '["get_weather"]', "llm.tools.0.tool.json_schema": json.dumps(OPENAI)}
    )
    assert offered.definitions is not None
    assert offered.definitions.tools["get_weather"] == WEATHER


def test_properties_alone_become_a_schema() -> None:
    raw = json.dumps([{"name": "f", "parameters": {"city": {"type": "string"}}}])
    told = offered_by(raw).definitions
    assert told is not None
    assert told.tools["f"].parameters == {"type": "object", "properties": {"city": {"type": "string"}}}


@pytest.mark.parametrize("place", ["around", "inside"])
def test_hints_of_mcp_are_read_and_are_no_part_of_the_hash(place: str) -> None:
    hints = {"annotations": {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": "yes"}}
    tool = (
        {**OPENAI, **hints} if place == "around" else {"type": "function", "function": {**SPELLED, **hints}}
    )
    told = offered_by(json.dumps([tool])).definitions
    assert told is not None
    weather = told.tools["get_weather"]
    assert (weather.read_only, weather.destructive, weather.idempotent) == (True, False, None)
    assert weather.hash == define("get_weather", weather.description, weather.parameters).hash


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def reordered(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=5))
def test_the_order_of_keys_is_not_in_a_hash(schema: dict[str, Any]) -> None:
    assert define("f", "d", schema).hash == define("f", "d", reordered(schema)).hash


@given(JSON, JSON)
def test_another_schema_has_another_hash(one: Any, other: Any) -> None:  # noqa: ANN401 - JSON
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (define("f", "", one).hash == define("f", "", other).hash) is same


@given(st.permutations(["a", "b", "c", "d"]))
def test_the_order_of_tools_is_not_in_the_hash_of_all(names: list[str]) -> None:
    assert together(map(define, names), 0).hash == together(map(define, sorted(names)), 0).hash
    assert together(map(define, names[1:]), 0).hash != together(map(define, names), 0).hash


@given(st.text(max_size=40) | JSON.map(json.dumps))
def test_no_text_fails(raw: str) -> None:
    for key in ("gen_ai.tool.definitions", "llm.tools.0.tool.json_schema", "input.value"):
        offered = offered_of({key: raw})
        assert offered.definitions is None or set(offered.definitions.tools) == set(offered.names)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the texts that were parsed."""
    lengths: list[int] = []

    def counted(raw: str) -> Json:
        lengths.append(len(raw))
        return parse(raw)

    monkeypatch.setattr(definitions, "parse", counted)
    return lengths


def test_a_text_is_parsed_once_and_equal_texts_give_one_object(parsed: list[int]) -> None:
    raw = json.dumps([{**SPELLED, "description": "d" * 40_000}])
    first = offered_by(raw).definitions
    assert first is not None
    assert first.chars == len(raw)
    for _ in range(3):
        assert offered_by("".join(raw)).definitions is first
        assert offered_by(raw[:-1] + "]").definitions is first
    assert parsed == [len(raw)]


def test_a_list_within_requests_is_parsed_once(parsed: list[int]) -> None:
    tools = [{**SPELLED, "description": "once " * 9}]
    seen = {
        offered_of({"input.value": json.dumps({"messages": ["x" * turn], "tools": tools})}).definitions
        for turn in range(5)
    }
    assert len(seen) == 1
    assert parsed == [len(json.dumps(tools))]


def test_what_is_remembered_of_texts_is_bounded() -> None:
    memory = definitions._Memory()
    for number in range(definitions.MAX_TEXTS * 2):
        memory.of((f"text {number}",), Offered)
    assert len(memory._read) == definitions.MAX_TEXTS
    large = "x" * (definitions.MAX_CHARS // 2)
    for number in range(4):
        memory.of((f"{large}{number}",), lambda _: Offered(("f",)))
    assert memory._chars == sum(chars for chars, _ in memory._read.values()) <= definitions.MAX_CHARS


# Of all frameworks, one recording each: how many model calls (or, where only they tell, agents) have
# definitions, and of how many tools.
CAPTURES = {
    "agno/openinference": (Kind.MODEL_CALL, 15, {3}),
    "agno/otel-genai-content": (Kind.AGENT_RUN, 1, {3}),
    "beeai/openinference": (Kind.MODEL_CALL, 12, {3, 4}),
    "crewai/openinference+openai": (Kind.MODEL_CALL, 14, {2, 3}),
    "crewai/traceloop-openai": (Kind.MODEL_CALL, 15, {3}),
    "dspy/otel-genai-content": (Kind.AGENT_RUN, 1, {3}),
    "google-adk/native-semconv": (Kind.MODEL_CALL, 15, {3}),
    "google-adk/native-eventonly": (Kind.MODEL_CALL, 15, {3}),
    "google-adk/openinference-legacy": (Kind.MODEL_CALL, 14, {3}),
    "haystack/native-content": (Kind.MODEL_CALL, 15, {3}),
    "langchain-js/openinference": (Kind.MODEL_CALL, 15, {3}),
    "langfuse/langchain-noargs": (Kind.MODEL_CALL, 5, {4}),
    "langgraph/langsmith-noargs": (Kind.MODEL_CALL, 5, {4}),
    "langgraph/openinference-noargs": (Kind.MODEL_CALL, 5, {4}),
    "langgraph/openinference-hidden": (Kind.MODEL_CALL, 15, {4}),
    "langgraph/otel-genai-content-noargs": (Kind.MODEL_CALL, 5, {4}),
    "langgraph/traceloop-noargs": (Kind.MODEL_CALL, 5, {4}),
    "llama-index/openinference-noargs": (Kind.MODEL_CALL, 10, {4}),
    "llama-index/otel-genai-content": (Kind.AGENT_RUN, 1, {3}),
    "llama-index/traceloop-noargs": (Kind.MODEL_CALL, 5, {4}),
    "mlflow/langchain": (Kind.MODEL_CALL, 15, {4}),
    "mlflow/langchain-genai": (Kind.MODEL_CALL, 15, {4}),
    "ms-agent-framework/native-chat": (Kind.AGENT_RUN, 1, {3}),
    "openai-agents/openinference+openai": (Kind.MODEL_CALL, 15, {3}),
    "openai-raw/old-traceloop-sdk": (Kind.MODEL_CALL, 15, {3}),
    "openai-raw/otel-genai-eventonly": (Kind.MODEL_CALL, 15, {3}),
    "openlit/langgraph": (Kind.MODEL_CALL, 15, {4}),
    "pydantic-ai/native-v6": (Kind.MODEL_CALL, 15, {4}),
    "semantic-kernel/diagnostics": (Kind.AGENT_RUN, 1, {3}),
    "smolagents/openinference-returned-errors": (Kind.MODEL_CALL, 15, {4}),
    "vercel-ai-sdk/v5-stream": (Kind.MODEL_CALL, 15, {3}),
    "vercel-ai-sdk/v7-stream": (Kind.MODEL_CALL, 15, {3}),
}


@pytest.mark.parametrize(("name", "told"), CAPTURES.items(), ids=CAPTURES)
def test_recordings_hold_definitions(name: str, told: tuple[Kind, int, set[int]]) -> None:
    kind, count, sizes = told
    found = [
        step.definitions
        for step in read_offline(batches(RECORDED / name)).values()
        if step.kind is kind and step.definitions is not None
    ]
    assert len(found) == count
    assert {len(each.tools) for each in found} == sizes
    for each in found:
        assert all(tool.description for tool in each.tools.values())


def test_instrumentations_of_one_program_agree_on_the_definitions() -> None:
    names = [f"langgraph/{name}-noargs" for name in ("langsmith", "openinference", "traceloop")]
    names += ["mlflow/langchain-noargs", "openlit/langgraph-noargs", "langfuse/langchain-noargs"]
    hashes = {
        step.definitions.hash
        for name in names
        for step in read_offline(batches(RECORDED / name)).values()
        if step.definitions is not None
    }
    assert len(hashes) == 1


def written_out(steps: Mapping[str, Step]) -> dict[str, dict[str, ToolDefinition] | None]:
    return {key: dict(s.definitions.tools) if s.definitions else None for key, s in steps.items()}


def test_definitions_go_through_restarts_and_are_written_once() -> None:
    parts = [
        part
        for name in ("langgraph/otel-genai-content-sub", "vercel-ai-sdk/v7-stream")
        for whole in batches(RECORDED / name)
        for part in pieces(whole, 6)
    ]
    expected = written_out(read_live(parts))
    reader, kept, steps = StepReader(), dict[str, bytes | None](), dict[str, Step]()
    written: list[str] = []
    for turn, part in enumerate(parts):
        events = reader.push(part, (turn + 1) * 1_000_000_000)
        steps.update({event.step.step_id: event.step for event in events if hasattr(event, "step")})
        changes = reader.changes()
        written += [key for key, piece in changes.items() if key.startswith("d") and piece is not None]
        kept.update(changes)
        reader = StepReader()
        reader.restore({key: piece for key, piece in kept.items() if piece is not None})
    steps.update({event.step.step_id: event.step for event in reader.drain() if hasattr(event, "step")})
    assert written_out(steps) == expected
    assert sum(value is not None for value in expected.values()) > 15
    assert sorted(written) == sorted(set(written))
    assert len(written) == len({tuple(sorted(value)) for value in expected.values() if value})
    assert not any(b"Get the current weather" in (kept[key] or b"") for key in kept if key[0] != "d")


def chat(number: int, description: str) -> Told:
    return Told(
        span=number,
        name="chat m",
        at=number,
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.tool.definitions": json.dumps([{"name": "f", "description": description}]),
        },
    )


def test_definitions_that_nobody_holds_are_written_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "_MEMORY", definitions._Memory())
    reader = StepReader(max_entries=2)
    reader.push(batch(Signal.TRACES, [chat(1, "the first one")]), 0)
    first = [key for key, piece in reader.changes().items() if key[0] == "d" and piece is not None]
    assert len(first) == 1
    for number in range(2, 8):
        reader.push(batch(Signal.TRACES, [chat(number, "another one")]), number * 1_000_000_000)
    definitions._MEMORY._read.clear()
    gc.collect()
    changes = reader.changes()
    assert changes[first[0]] is None
    assert len([key for key in reader.snapshot() if key[0] == "d"]) == 1


def test_definitions_beyond_the_bound_are_left_out_and_counted() -> None:
    held = [together([define("f", "d" * 10 + str(number))], 1000) for number in range(4)]
    state = State(max_definition_chars=3000)
    assert [state.keeps(each) for each in held] == [True, True, True, False]
    assert state.keeps(held[0])
    assert state.counters.forgotten_definitions == 1
    assert state.definition_chars == 3000


def test_a_reader_that_may_keep_no_definitions_still_says_the_names() -> None:
    reader = StepReader()
    reader._state.max_definition_chars = 10
    events = reader.push(batch(Signal.TRACES, [chat(1, "too long for it")]), 0) + reader.drain()
    (step,) = [event.step for event in events if isinstance(event, StepSeen)]
    assert (step.offered_tools, step.definitions) == (("f",), None)


def test_equal_definitions_are_one_object_as_long_as_somebody_holds_them() -> None:
    one = together([define("only here", "and now")], 7)
    key = key_of(one)
    assert together([define("only here", "and now")], 7) is one
    assert known(key) is one
    del one
    gc.collect()
    assert known(key) is None


def test_definitions_compare_by_hash_and_length() -> None:
    assert ToolDefinitions("a", {}, 1) == ToolDefinitions("a", {"f": define("f")}, 1)
    assert ToolDefinitions("a", {}, 1) != ToolDefinitions("a", {}, 2)
