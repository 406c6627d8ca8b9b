"""The simulated agents of `recloser demo`: three healthy ones that look busy, and one that is stuck.

They export through the real OpenTelemetry SDK and ask the real sidecar; only their work is made up.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer

LOOP_CALLS: Final = 400  # where the stuck agent's own limit of turns would end it
PACE: Final = 0.3  # seconds between two calls
PROMPT_TOKENS: Final = 900  # of the first model call
GROWTH_TOKENS: Final = 40  # by which each call makes the next prompt longer
ANSWER_TOKENS: Final = 30


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a script: what is asked, what comes back, and whether that is a failure."""

    tool: str
    arguments: dict[str, object]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run took: tool calls, and tokens of its model calls."""

    calls: int
    tokens: int


@dataclass(slots=True)
class Agent:
    """A simulated agent and what became of it so far; `state` is one word."""

    name: str
    about: str
    script: Callable[[], Iterator[Call]]
    asks: bool = False
    calls: int = 0
    failures: int = 0
    tokens: int = 0
    state: str = "working"

    @property
    def session(self) -> str:
        """Its conversation, as its spans name it."""
        return f"{self.name}-demo"

    @property
    def spent(self) -> Spent:
        """What it took so far."""
        return Spent(self.calls, self.tokens)


def _planner() -> Iterator[Call]:
    cities = ["Lisbon", "Oslo", "Prague", "Vienna", "Turin", "Ghent", "Porto", "Malmö", "Graz", "Bern"]
    for number, city in enumerate(cities + cities[:5]):
        page = number // len(cities)
        yield Call("get_weather", {"city": city, "day": page}, f"{city}: {9 + number} °C, wind {number % 7}")
        yield Call("search_hotels", {"city": city, "page": page}, f"{3 + number} rooms free in {city}")


def _watcher() -> Iterator[Call]:
    for percent in range(0, 101, 4):
        yield Call("deployment_status", {"id": "web-7"}, json.dumps({"state": "rolling", "done": percent}))


def _fixer() -> Iterator[Call]:
    for left in range(9, -1, -1):
        yield Call("run_tests", {"path": "tests"}, f"{left} failed, {40 - left} passed", failed=left > 0)
        yield Call("edit_file", {"path": f"billing/rule_{left}.py", "line": 10 + left}, "1 replacement")


def _stuck() -> Iterator[Call]:
    yield Call("search", {"query": "status page of the shipping API"}, "https://status.example.invalid")
    for _ in range(LOOP_CALLS):
        yield Call(
            "fetch_page",
            {"url": "https://status.example.invalid"},
            "ConnectError: could not resolve host",
            failed=True,
        )


def fleet() -> list[Agent]:
    """All agents, before their first call; the stuck one is the one that asks before each call."""
    return [
        Agent("trip-planner", "other cities, other answers", _planner),
        Agent("deploy-watcher", "one poll again and again; it moves on", _watcher),
        Agent("test-fixer", "fails, edits, fails less", _fixer),
        Agent("page-reader", "one failing call again and again", _stuck, asks=True),
    ]


def alone(agent: Agent) -> Spent:
    """What the whole script takes when nothing stops it."""
    calls = sum(1 for _ in agent.script())
    return Spent(calls, sum(_prompt(number) + ANSWER_TOKENS for number in range(calls)))


def _prompt(calls: int) -> int:
    """Tokens of the prompt after that many calls."""
    return PROMPT_TOKENS + GROWTH_TOKENS * calls


def provider(agent: Agent, endpoint: str) -> TracerProvider:
    """An OpenTelemetry SDK as an agent of its own process would have it."""
    made = TracerProvider(
        resource=Resource.create({"service.name": agent.name, "service.instance.id": f"{agent.name}-1"})
    )
    made.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces"), schedule_delay_millis=200)
    )
    return made


def run(
    agent: Agent, tracer: Tracer, api: str, told: Callable[[str, str], None], stopping: threading.Event
) -> None:
    """Work through the script until it ends, `stopping` is set, or a check refuses; then call `told`.

    `told` gets the decision and its message.
    """
    about = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": agent.name,
        "gen_ai.conversation.id": agent.session,
    }
    with (
        httpx.Client(base_url=api, timeout=5) as client,
        tracer.start_as_current_span(f"invoke_agent {agent.name}", attributes=about),
    ):
        for call in agent.script():
            if stopping.is_set():
                agent.state = "cut off"
                return
            _think(tracer, agent)
            if agent.asks:
                decision, message = _ask(client, agent, call)
                if decision != "allow":
                    agent.state = "stopped"
                    told(decision, message)
                    return
            _call(tracer, agent, call)
            stopping.wait(PACE)
        agent.state = "done"


def _ask(client: httpx.Client, agent: Agent, call: Call) -> tuple[str, str]:
    question = {"session_id": agent.session, "tool": call.tool, "arguments": call.arguments}
    try:
        answer = client.post("/v1/check", json=question).raise_for_status().json()
    except httpx.HTTPError:
        return "allow", ""  # a sidecar that is away stops nobody
    return answer["decision"], answer["message"]


def _think(tracer: Tracer, agent: Agent) -> None:
    """Tell of the model call that decides on the next tool call."""
    prompt = _prompt(agent.calls)
    agent.tokens += prompt + ANSWER_TOKENS
    tracer.start_span(
        "chat demo-model",
        attributes={
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "demo-model",
            "gen_ai.provider.name": "demo",
            "gen_ai.conversation.id": agent.session,
            "gen_ai.agent.name": agent.name,
            "gen_ai.usage.input_tokens": prompt,
            "gen_ai.usage.output_tokens": ANSWER_TOKENS,
        },
    ).end()


def _call(tracer: Tracer, agent: Agent, call: Call) -> None:
    agent.calls += 1
    agent.failures += call.failed
    with tracer.start_as_current_span(
        f"execute_tool {call.tool}",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": f"call_{agent.name}_{agent.calls}",
            "gen_ai.tool.call.arguments": json.dumps(call.arguments),
            "gen_ai.conversation.id": agent.session,
            "gen_ai.agent.name": agent.name,
        },
    ) as span:
        if call.failed:
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR, call.result))
        else:
            span.set_attribute("gen_ai.tool.call.result", call.result)
