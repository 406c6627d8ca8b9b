"""Cases and trajectories in neutral form as OTLP, spelled as the GenAI conventions spell them.

A case is an `id` and `calls`: calls with `tool`, `args`, `ok`, `error`, `result`, the time as `dt_s` (seconds
since the call before) or `t` (ISO 8601), and optionally `repeat`, `agent`, `parent` (the agent that
delegated), `message` (calls with an equal one are of one model message), `llm_text` and `tokens`; or events,
`user_turn` and `compaction`. It becomes what an agent would export: spans in the order of their ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import orjson

Case = dict[str, Any]
Span = dict[str, Any]

EPOCH_NS: Final = 1_735_689_600_000_000_000  # 2025-01-01
CASE_SPACING_NS: Final = 4 * 3600 * 10**9
_SECOND: Final = 10**9
_MS: Final = 10**6


def span_id(case_id: str, call_number: int) -> str:
    """The span of the n-th call of a case, counted from 1."""
    return _id(8, case_id, "call", call_number)


def _id(size: int, *parts: object) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=size).hexdigest()


def _value(value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"stringValue": value if isinstance(value, str) else orjson.dumps(value).decode()}


def _attributes(given: dict[str, object]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in given.items() if value is not None]


@dataclass(slots=True)
class _Agent:
    span: str
    trace: str
    parent: str
    started: int
    depth: int
    message: object = None
    last_call: str = ""


@dataclass(slots=True)
class _Conversation:
    """What has been written of one case so far."""

    id: str
    now: int
    turn: int = 0
    number: int = 0
    messages: int = 0
    last_t: float | None = None
    agents: dict[str, _Agent] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    @property
    def trace(self) -> str:
        return _id(16, self.id, "turn", self.turn)

    def pass_time(self, call: Case) -> float:
        """Let the time until a call pass; return it in seconds."""
        gap = call.get("dt_s")
        if gap is None and call.get("t"):
            t = datetime.fromisoformat(call["t"]).timestamp()
            gap = 0.0 if self.last_t is None else max(0.0, t - self.last_t)
            self.last_t = t
        seconds = 2.0 if gap is None else float(gap)
        self.now += int(seconds * _SECOND)
        return seconds

    def agent(self, name: str, parent: str | None) -> _Agent:
        if name not in self.agents:
            above = self.agents.get(parent or "")
            self.agents[name] = _Agent(
                span=_id(8, self.id, "agent", self.turn, name),
                trace=self.trace,
                parent=(above.last_call or above.span) if above else "",
                started=self.now,
                depth=above.depth + 1 if above else 0,
            )
        return self.agents[name]

    def add(
        self, span: str, parent: str, name: str, times: tuple[int, int], attributes: dict[str, object]
    ) -> Span:
        made: Span = {
            "traceId": self.trace,
            "spanId": span,
            "parentSpanId": parent,
            "name": name,
            "startTimeUnixNano": str(times[0]),
            "endTimeUnixNano": str(times[1]),
            "attributes": _attributes({"gen_ai.conversation.id": self.id, **attributes}),
        }
        self.spans.append(made)
        return made

    def end_turn(self) -> None:
        """Close the agents, inner ones first."""
        for name, agent in sorted(self.agents.items(), key=lambda item: -item[1].depth):
            attributes: dict[str, object] = {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": name,
            }
            times = (agent.started, self.now + _SECOND)
            self.add(agent.span, agent.parent, f"invoke_agent {name}", times, attributes)
        self.agents.clear()
        self.turn += 1


def _expanded(calls: list[Case]) -> Iterator[Case]:
    for call in calls:
        for _ in range(int(call.get("repeat") or 1)):
            yield call


def _event(talk: _Conversation, event: Case, said: str | None) -> str | None:
    """Write an event; return what the user says next."""
    if event["event"] == "user_turn":
        talk.end_turn()
        return str(event.get("text") or "Carry on.")
    times = (talk.now, talk.now + 100 * _MS)
    attributes: dict[str, object] = {"gen_ai.operation.name": "chat"}
    span = _id(8, talk.id, "event", talk.number, talk.turn, len(talk.spans))
    talk.add(span, talk.agent("main", None).span, str(event["event"]), times, attributes)
    return said


def _model_message(talk: _Conversation, agent: _Agent, call: Case, said: str | None) -> None:
    talk.messages += 1
    text = call.get("llm_text")
    talk.add(
        _id(8, talk.id, "chat", talk.messages),
        agent.span,
        "chat a-model",
        (talk.now - 100 * _MS, talk.now - _MS),
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "a-model",
            "gen_ai.agent.name": call.get("agent") or "main",
            "gen_ai.usage.input_tokens": call.get("tokens"),
            "gen_ai.input.messages": _messages("user", said) if said else None,
            "gen_ai.output.messages": _messages("assistant", text) if text else None,
        },
    )


def _messages(role: str, text: str) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def _tool_call(talk: _Conversation, agent: _Agent, call: Case, gap_s: float) -> None:
    talk.number += 1
    failed = call.get("ok") is False
    agent.last_call = span_id(talk.id, talk.number)
    times = (talk.now, talk.now + int(min(0.2, max(0.01, gap_s / 2)) * _SECOND))
    span = talk.add(
        agent.last_call,
        agent.span,
        f"execute_tool {call['tool']}",
        times,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call["tool"],
            "gen_ai.tool.call.id": f"call-{talk.number}",
            "gen_ai.agent.name": call.get("agent") or "main",
            "gen_ai.tool.call.arguments": call.get("args"),
            "gen_ai.tool.call.result": call.get("result"),
            "error.type": "tool_error" if failed else None,
        },
    )
    if failed:
        span["status"] = {"code": 2, "message": call.get("error") or ""}


def spans_of(case: Case, start_ns: int = EPOCH_NS) -> list[Span]:
    """The spans of a case in the order of their ends."""
    talk = _Conversation(str(case["id"]), start_ns)
    said: str | None = "Do what is to be done."
    for call in _expanded(case["calls"]):
        gap_s = talk.pass_time(call)
        if "event" in call:
            said = _event(talk, call, said)
            continue
        agent = talk.agent(call.get("agent") or "main", call.get("parent"))
        message = call.get("message")
        if message is None or agent.message != message:
            _model_message(talk, agent, call, said)
            said = None
        agent.message = message
        _tool_call(talk, agent, call, gap_s)
    talk.end_turn()
    return sorted(talk.spans, key=lambda span: int(span["endTimeUnixNano"]))


def case_to_request(case: Case, start_ns: int) -> Case:
    """One ExportTraceServiceRequest in the JSON encoding."""
    resource = {
        "attributes": _attributes({"service.name": "an-agent", "service.instance.id": str(case["id"])})
    }
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans_of(case, start_ns)}]}]}


def calls_done_at(case: Case) -> dict[str, int]:
    """By span id: how many calls had ended when that span ended."""
    done, at = 0, {}
    for span in spans_of(case):
        done += span["name"].startswith("execute_tool ")
        at[span["spanId"]] = done
    return at
