"""`recloser demo`: the real sidecar, a small fleet of simulated agents, one of them stuck, seen and stopped.

The agents export through the real OpenTelemetry SDK; on-call is a webhook receiver on loopback that checks
signatures. Only the agents' work is made up.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Status, StatusCode, Tracer
from pydantic import SecretStr
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from api.config import Ingest, PolicyRule, Settings, Webhook
from api.process import set_up_logging
from api.sidecar import Sidecar

LOOP_CALLS: Final = 400  # what the stuck agent would do without a brake
PACE: Final = 0.3  # seconds between two calls
SECRET: Final = base64.b64encode(hashlib.sha256(b"recloser demo").digest()).decode()
LINES: Final = 12


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call of a script: what is asked, what comes back, and whether that is a failure."""

    tool: str
    arguments: dict[str, object]
    result: str
    failed: bool = False
    pause: float = PACE


@dataclass(slots=True)
class Agent:
    """A simulated agent and what became of it so far."""

    name: str
    about: str
    script: Callable[[], Iterator[Call]]
    asks: bool = False
    calls: int = 0
    failures: int = 0
    state: str = "running"


@dataclass(slots=True)
class Board:
    """What the terminal shows."""

    started: float = field(default_factory=time.monotonic)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=LINES))
    fresh: deque[str] = field(default_factory=deque)
    paged_at: float | None = None
    stopped_at: float | None = None

    def say(self, text: str) -> None:
        """Add a line, stamped with seconds since the start."""
        line = f"{time.monotonic() - self.started:5.1f} s  {text}"
        self.lines.append(line)
        self.fresh.append(line)


def _planner() -> Iterator[Call]:
    cities = ["Lisbon", "Oslo", "Prague", "Vienna", "Turin", "Ghent", "Porto", "Malmö", "Graz", "Bern"]
    for number, city in enumerate(cities * 3):
        yield Call(
            "get_weather",
            {"city": city, "day": number // len(cities)},
            f"{city}: {9 + number % 14} °C, wind {number % 7}",
        )
        yield Call(
            "search_hotels",
            {"city": city, "page": number // len(cities)},
            f"{3 + number} rooms free in {city}",
        )


def _watcher() -> Iterator[Call]:
    for percent in range(0, 101, 4):
        yield Call(
            "deployment_status", {"id": "web-7"}, json.dumps({"state": "rolling", "done": percent}), pause=0.6
        )


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


FLEET: Final = (
    ("trip-planner", "healthy: other cities, other answers", _planner, False),
    ("deploy-watcher", "healthy: polls a deployment that moves", _watcher, False),
    ("test-fixer", "healthy: fails, edits, fails less", _fixer, False),
    ("page-reader", "stuck: the same failing call again and again", _stuck, True),
)


class _OnCall(BaseHTTPRequestHandler):
    """Receives alerts and checks their signatures."""

    board: Board

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        wanted = base64.b64encode(
            hmac.new(base64.b64decode(SECRET), signed, hashlib.sha256).digest()
        ).decode()
        good = any(
            hmac.compare_digest(f"v1,{wanted}", s) for s in self.headers.get("webhook-signature", "").split()
        )
        if good:
            data = json.loads(body)["data"]
            self.board.paged_at = self.board.paged_at or time.monotonic()
            self.board.say(
                f"[bold red]on-call paged[/] (signature checked): {data.get('summary') or data.get('kind')}"
            )
        self.send_response(204 if good else 401)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """The board tells what matters."""


def _allowed(client: httpx.Client, session: str, call: Call) -> tuple[bool, str]:
    answer = (
        client.post("/v1/check", json={"session_id": session, "tool": call.tool, "arguments": call.arguments})
        .raise_for_status()
        .json()
    )
    return answer["decision"] == "allow", f"{answer['decision']}: {answer.get('message') or ''}"


def _run_agent(agent: Agent, tracer: Tracer, api: str, board: Board, stopping: threading.Event) -> None:
    session = f"{agent.name}-demo"
    with (
        httpx.Client(base_url=api, timeout=5) as client,
        tracer.start_as_current_span(
            f"invoke_agent {agent.name}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent.name,
                "gen_ai.conversation.id": session,
            },
        ),
    ):
        for call in agent.script():
            if stopping.is_set():
                agent.state = "ended with the demo"
                return
            with tracer.start_as_current_span(
                "chat demo-model",
                attributes={
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "demo-model",
                    "gen_ai.provider.name": "demo",
                    "gen_ai.conversation.id": session,
                    "gen_ai.agent.name": agent.name,
                    "gen_ai.usage.input_tokens": 900 + 40 * agent.calls,
                    "gen_ai.usage.output_tokens": 30,
                },
            ):
                pass
            if agent.asks:
                allowed, why = _allowed(client, session, call)
                if not allowed:
                    board.stopped_at = time.monotonic()
                    board.say(f"[bold green]{agent.name} asked and was told[/] {why}")
                    agent.state = f"stopped after {agent.calls} calls"
                    return
            _call(tracer, agent, session, call)
            stopping.wait(call.pause)
        agent.state = "done"


def _call(tracer: Tracer, agent: Agent, session: str, call: Call) -> None:
    agent.calls += 1
    agent.failures += call.failed
    with tracer.start_as_current_span(
        f"execute_tool {call.tool}",
        attributes={
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "gen_ai.tool.call.id": f"call_{agent.name}_{agent.calls}",
            "gen_ai.tool.call.arguments": json.dumps(call.arguments),
            "gen_ai.conversation.id": session,
            "gen_ai.agent.name": agent.name,
        },
    ) as span:
        if call.failed:
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR, call.result))
        else:
            span.set_attribute("gen_ai.tool.call.result", call.result)


def _provider(agent: str, endpoint: str) -> TracerProvider:
    provider = TracerProvider(
        resource=Resource.create({"service.name": agent, "service.instance.id": f"{agent}-1"})
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces"), schedule_delay_millis=200)
    )
    return provider


def _picture(board: Board, agents: list[Agent]) -> Group:
    table = Table(title=None, expand=False, pad_edge=False)
    for column in ("agent", "calls", "failed", "what it does", "state"):
        table.add_column(column, justify="right" if column in {"calls", "failed"} else "left")
    for agent in agents:
        style = "green" if agent.state.startswith("stopped") else ""
        table.add_row(
            agent.name, str(agent.calls), str(agent.failures), agent.about, Text(agent.state, style=style)
        )
    return Group(table, *(Text.from_markup(line) for line in board.lines))


def _settings(folder: Path, hook: str) -> Settings:
    return Settings(
        data_dir=folder,
        otlp_http_port=0,
        otlp_grpc_port=0,
        api_port=0,
        log_level="warning",
        ingest=Ingest(order_window_ms=200),
        webhooks=(Webhook(name="on-call", url=hook, secrets=(SecretStr(f"whsec_{SECRET}"),)),),
        policy=(PolicyRule(name="stop doom loops", kinds=("doom_loop",), scope="session", action="halt"),),
    )


def _follow_findings(api: str, board: Board, stopping: threading.Event) -> None:
    """Say what the sidecar found, as it finds it."""
    told: set[tuple[str, str, str]] = set()
    with httpx.Client(base_url=api, timeout=5) as client:
        while not stopping.wait(0.2):
            for finding in client.get("/v1/findings").raise_for_status().json()["findings"]:
                key = (finding["id"], finding["kind"], finding["severity"])
                if key not in told:
                    told.add(key)
                    board.say(f"[yellow]{finding['severity']} {finding['kind']}[/]: {finding['summary']}")


def demo(seconds: int) -> int:
    """Run the demonstration; 0 when the loop was seen and stopped, else 1."""
    set_up_logging("demo", "warning")
    console = Console()
    board = Board()
    handler = type("OnCall", (_OnCall,), {"board": board})
    on_call = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=on_call.serve_forever, daemon=True).start()
    agents = [Agent(name, about, script, asks) for name, about, script, asks in FLEET]
    with tempfile.TemporaryDirectory(prefix="recloser-demo-") as folder:
        sidecar = Sidecar(_settings(Path(folder), f"http://127.0.0.1:{on_call.server_port}/hook"))
        console.print("Starting the sidecar (embedded store, free ports, a temporary folder) ...")
        sidecar.start()
        try:
            board.started = time.monotonic()
            _run_fleet(sidecar, agents, board, console, seconds)
        finally:
            sidecar.stop()
            on_call.shutdown()
    return _summary(agents, board, console)


def _run_fleet(sidecar: Sidecar, agents: list[Agent], board: Board, console: Console, seconds: int) -> None:
    endpoints = sidecar.endpoints
    board.say(
        f"the sidecar listens: OTLP/HTTP {endpoints.otlp_http}, OTLP/gRPC {endpoints.otlp_grpc}, "
        f"API {endpoints.api}"
    )
    stopping = threading.Event()
    providers = [_provider(agent.name, endpoints.otlp_http) for agent in agents]
    threads = [
        threading.Thread(
            target=_run_agent,
            args=(agent, provider.get_tracer("recloser.demo"), endpoints.api, board, stopping),
        )
        for agent, provider in zip(agents, providers, strict=True)
    ]
    follower = threading.Thread(target=_follow_findings, args=(endpoints.api, board, stopping))
    for thread in (*threads, follower):
        thread.start()
    deadline = board.started + seconds
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8) as live:
            while time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
                live.update(_picture(board, agents))
                time.sleep(0.1)
            stopping.set()
            live.update(_picture(board, agents))
    else:
        while time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
            _print_fresh(board, console)
            time.sleep(0.1)
        stopping.set()
    for thread in (*threads, follower):
        thread.join()
    for provider in providers:
        provider.shutdown()
    if not console.is_terminal:
        _print_fresh(board, console)
        console.print(_picture(Board(), agents))


def _print_fresh(board: Board, console: Console) -> None:
    while board.fresh:
        console.print(Text.from_markup(board.fresh.popleft()))


def _summary(agents: list[Agent], board: Board, console: Console) -> int:
    stuck = next(agent for agent in agents if agent.asks)
    would = sum(1 for _ in stuck.script())
    if board.stopped_at is None or board.paged_at is None:
        console.print(
            "[bold red]The loop was not stopped.[/] This is a defect; please report it with the lines above."
        )
        return 1
    console.print(
        f"\n[bold]{stuck.name}[/] made [bold]{stuck.calls}[/] calls and was stopped; "
        f"left alone it would have made {would}. "
        f"The other {len(agents) - 1} agents were left in peace."
    )
    console.print("Next: [bold]recloser serve[/], then point your agents' OTLP exporter at it.")
    return 0
