"""An MCP server and its client in one process, without any model.

pip: opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and fastmcp (native) | mcp<2
opentelemetry-instrumentation-mcp (traceloop). usage: mcp_server.py fastmcp|traceloop
"""

import sys

import scenario
import stub_model

CALLS = [call for turn in stub_model.MAIN for call in turn.get("calls", [])]
scenario.telemetry(logs=False)


async def fastmcp() -> None:
    from fastmcp import Client, FastMCP

    server = FastMCP("ops-tools")
    for tool in scenario.TOOLS:
        server.tool(tool)
    async with Client(server) as client:
        for name, arguments in CALLS:
            await client.call_tool(name, arguments, raise_on_error=False)


async def traceloop() -> None:
    from opentelemetry.instrumentation.mcp import McpInstrumentor

    McpInstrumentor().instrument()
    from mcp.server.fastmcp import FastMCP
    from mcp.shared.memory import create_connected_server_and_client_session

    server = FastMCP("ops-tools")
    for tool in scenario.TOOLS:
        server.tool()(tool)
    async with create_connected_server_and_client_session(server._mcp_server) as session:
        for name, arguments in CALLS:
            await session.call_tool(name, arguments)


scenario.run(fastmcp() if sys.argv[1] == "fastmcp" else traceloop())
scenario.write_notes(
    ["fastmcp", "mcp", "opentelemetry-instrumentation-mcp", "opentelemetry-sdk"],
    [*scenario.MAIN[:3], "get_weather x2 (ok)"],
    instrumentation=sys.argv[1],
)
