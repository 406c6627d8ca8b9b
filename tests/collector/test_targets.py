"""Which server a call went to, and of which version the service is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from recorded import RECORDED, batches, read_offline
from told import Told, batch

from collector.batch import Signal
from collector.conventions.facts import MAX_TARGET, host_of, target_of_model, target_of_tool
from collector.redact import RedactionSettings
from collector.step import Kind, Step

TOOLS = [
    ({"server.address": "mcp.example", "server.port": "8443"}, "f", "mcp.example:8443"),
    ({"server.address": "mcp.example"}, "f", "mcp.example"),
    ({"server.address": "http://u:p@mcp.example:80/mcp"}, "f", "mcp.example:80"),
    ({"server.address": "api.openai.com", "server.port": "443", "gen_ai.provider.name": "openai"}, "f", ""),
    ({"server.address": "api.openai.com", "gen_ai.system": "openai", "mcp.server.name": "ops"}, "f", "ops"),
    ({"server.address": "mcp.example", "gen_ai.system": "x", "mcp.method.name": "tools/call"}, "f",
     "mcp.example"),
    ({"mcp.server.name": "ops"}, "f", "ops"),
    ({"mcp_server_name": "ops"}, "f", "ops"),
    ({"mcp_server": "ops"}, "f", "ops"),
    ({"mcp_server": ""}, "f", ""),
    ({"fastmcp.server.name": "ops-tools"}, "f", "ops-tools"),
    ({"url.full": "https://api.example/v1?key=1"}, "f", "api.example"),
    ({"http.url": "http://10.0.0.1:81/x"}, "f", "10.0.0.1:81"),
    ({"url.full": "[HASH:0123456789abcdef]"}, "f", ""),
    ({"url.full": "://"}, "f", ""),
    ({}, "mcp__github__create_issue", "github"),
    ({}, "mcp__my_server__do__it", "my_server"),
    ({}, "mcp__", ""),
    ({}, "f", ""),
    ({"mcp.server.name": "s" * 500}, "f", "s" * MAX_TARGET),
    ({"server.address": "s" * 500, "server.port": "1"}, "f", "s" * MAX_TARGET),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "tool", "target"), TOOLS)
def test_the_server_of_a_tool_call(attributes: Mapping[str, str], tool: str, target: str) -> None:
    assert target_of_tool(attributes, tool) == target


@pytest.mark.parametrize(
    ("attributes", "target"),
    [
        ({"server.address": "127.0.0.1", "server.port": "8080"}, "127.0.0.1:8080"),
        ({"server.address": "http://127.0.0.1:8080/v1/", "gen_ai.system": "openai"}, "127.0.0.1:8080"),
        ({"gen_ai.openai.api_base": "http://127.0.0.1:8080/v1/"}, "127.0.0.1:8080"),
        ({"gen_ai.provider.name": "openai"}, ""),
    ],
)
def test_the_server_of_a_model_call(attributes: Mapping[str, str], target: str) -> None:
    assert target_of_model(attributes) == target


@pytest.mark.parametrize(
    ("url", "host"), [("https://[::1]:8080/x", "[::1]:8080"), ("host/path", "host"), ("", ""), ("a b", "")]
)
def test_the_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host


def steps(name: str) -> list[Step]:
    return list(read_offline(batches(RECORDED / name)).values())


def test_recordings_tell_the_servers() -> None:
    fastmcp = [step for step in steps("mcp/fastmcp-native") if step.kind is Kind.TOOL_CALL]
    assert {step.target for step in fastmcp} == {"ops-tools"}
    agents = steps("openai-agents/otel-v2-handoff")
    assert {step.target for step in agents if step.kind is Kind.MODEL_CALL} == {"api.openai.com:443"}
    assert {step.target for step in agents if step.kind is not Kind.MODEL_CALL} == {None}
    (port,) = {step.target for step in steps("pydantic-ai/native-v6") if step.kind is Kind.MODEL_CALL}
    assert port is not None
    assert port.startswith("127.0.0.1:")


def test_recordings_tell_the_version_of_the_service() -> None:
    assert {step.service_version for step in steps("codex/logs-and-traces")} == {"0.169.0"}
    assert {step.service_version for step in steps("copilot-cli/content")} == {"1.0.102"}
    assert {step.service_version for step in steps("langgraph/openinference-noargs")} == {""}


@pytest.mark.parametrize("hash_only", [False, True])
def test_a_call_has_its_server_and_version_also_when_content_is_hashed(*, hash_only: bool) -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "mcp.server.name": "ops"}
    told = batch(
        Signal.TRACES,
        [Told(span=1, name="execute_tool f", attributes=tool)],
        {"service.version": "1.2.3"},
        settings=RedactionSettings(hash_only=hash_only),
    )
    (step,) = read_offline([told]).values()
    assert (step.target, step.service_version) == ("ops", "1.2.3")


def test_names_of_servers_and_versions_are_kept_as_other_names_are() -> None:
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f", "mcp.server.name": "o\x00ps"}
    told = batch(Signal.TRACES, [Told(span=1, attributes=tool)], {"service.version": "v" * 5_000})
    (step,) = read_offline([told]).values()
    assert step.target == "ops"
    assert len(step.service_version) < 256
