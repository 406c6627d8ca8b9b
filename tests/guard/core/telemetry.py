"""Tool calls as spans, sent as OTLP/JSON: an instrumentation in a few lines, without packages."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import urllib.request
from typing import Any


def send_call(
    endpoint: str,
    session: str,
    tool: str,
    args: dict[str, Any],
    *,
    result: str | None = None,
    error: str | None = None,
    service: str = "guarded-agent",
    agent: str = "ops_agent",
    started: float | None = None,
) -> str:
    """Tell of one call that ends now; returns its span id."""
    now = time.time_ns()
    said = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": f"call_{secrets.token_hex(6)}",
        "gen_ai.tool.call.arguments": json.dumps(args),
        "gen_ai.conversation.id": session,
        "gen_ai.agent.name": agent,
        "server.address": f"{session}.example.invalid",
    }
    if result is not None:
        said["gen_ai.tool.call.result"] = result
    if error is not None:
        said["error.type"] = error.partition(":")[0]
    span = {
        "traceId": _trace_of(session),
        "spanId": secrets.token_hex(8),
        "name": f"execute_tool {tool}",
        "kind": 1,
        "startTimeUnixNano": str(now - 1_000_000 if started is None else int(started * 1e9)),
        "endTimeUnixNano": str(now),
        "attributes": _attributes(said),
        "status": {} if error is None else {"code": 2, "message": error},
    }
    resource = {"attributes": _attributes({"service.name": service, "service.instance.id": "one"})}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    request = urllib.request.Request(
        f"{endpoint}/v1/traces", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()
    return str(span["spanId"])


def step_of(session: str, span_id: str) -> str:
    """The id by which the sidecar names the call of a span."""
    return _trace_of(session) + span_id


def _trace_of(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()[:32]


def _attributes(said: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in said.items()]
