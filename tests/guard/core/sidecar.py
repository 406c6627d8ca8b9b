"""A real sidecar with a policy for the guard's tests. Needs the project's environment."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Served

POLICY = """
[breaker]
base_open_s = 1.0
cap_open_s = 1.0
decay_s = 1.0
probe_ttl_s = 20.0
blast_per_minute = 100000
blast_share = 1.0

[check]
known_dead_calls = true

[[budget]]
name = "searches"
per = "session"
unit = "calls"
limit = 3

[[rule]]
name = "shared"
kinds = ["doom_loop"]
tools = ["shared_tool"]
trip = {scope = "service_tool", action = "deny"}
stop = true

[[rule]]
name = "this call only"
kinds = ["doom_loop"]
tools = ["look_up"]
trip = {scope = "session_args", action = "deny"}
stop = true

[[rule]]
name = "think again"
kinds = ["doom_loop"]
tools = ["replanned"]
trip = {scope = "session_tool", action = "replan"}
stop = true

[[rule]]
name = "clean up"
kinds = ["doom_loop"]
tools = ["poisoned"]
trip = {scope = "session", action = "halt", quarantine = true}
stop = true

[[rule]]
name = "stop"
kinds = ["doom_loop"]
trip = {scope = "session", action = "halt"}
"""


@dataclass
class GuardedSidecar(Served):
    """`recloser serve` with the policy above."""

    policy: str = POLICY

    def written_policy(self) -> Path:
        path = self.folder / "policy.toml"
        path.write_text(self.policy)
        return path

    def settings(self) -> str:
        return "[ingest]\norder_window_ms = 100\n"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    @property
    def otlp(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def state_of(self, tool: str) -> str:
        """The state of the one breaker over a tool."""
        (state,) = {
            b["state"] for b in self.api("GET", "/v1/breakers")["breakers"] if b["scope"]["tool"] == tool
        }
        return str(state)

    def api(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=10)
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"content-type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status < 300, (method, path, answer.status, text)
        return json.loads(text) if text else None
