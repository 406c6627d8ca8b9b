"""`recloser demo`: the real sidecar, a small fleet of simulated agents, one of them stuck, seen and stopped.

On-call is a webhook receiver on loopback that checks signatures. What is shown is what the sidecar sent
and answered; the run fails when the loop was not stopped, or when a healthy agent was suspected.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx
from pydantic import SecretStr
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from api import demofleet
from api.config import Ingest, PolicyRule, Settings, Webhook
from api.demofleet import Agent, fleet
from api.demopicture import DOLLARS_PER_MILLION, Event, agents_table, bill, picture, story_line
from api.process import set_up_logging
from api.sidecar import Sidecar, SidecarError

SECRET: Final = base64.b64encode(hashlib.sha256(b"recloser demo").digest()).decode()
LEVEL: Final = "error"  # alerts and breakers are logged as warnings, and are in the picture already
PAGE_PATIENCE: Final = 3.0  # seconds
DEFECT: Final = 1
CANNOT_START: Final = 2
INTERRUPTED: Final = 130


@dataclass(slots=True)
class Board:
    """What is known so far. Filled by threads, each event in one append."""

    agents: list[Agent] = field(default_factory=fleet)
    events: list[Event] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    paged: threading.Event = field(default_factory=threading.Event)
    halted: bool = False
    suspected: int = 0

    @property
    def stuck(self) -> Agent:
        """The agent with the loop."""
        return next(agent for agent in self.agents if agent.asks)

    def now(self) -> float:
        """Seconds since the fleet started."""
        return time.time() - self.started

    def since(self, moment: str) -> float:
        """Seconds between the start and an RFC 3339 time."""
        return max(0.0, datetime.fromisoformat(moment).timestamp() - self.started)

    def page(self, alert: dict[str, Any]) -> None:
        """Take down what on-call was sent."""
        data = alert["data"]
        if alert["type"] != "alert.firing":
            return
        for agent in self.agents:
            if agent.name == data["agent"] and agent.state == "working":
                agent.state = "stuck"
        self.events += [
            Event(self.since(data["started_at"]), "began", f"{data['agent']} calls {data['tool']}: it fails"),
            Event(
                self.since(alert["timestamp"]),
                "seen",
                f"{data['severity']} {data['kind']}. {data['summary']}",
                "red",
            ),
            Event(
                self.now(),
                "on-call",
                f"got alert {data['alert_id']} by webhook, its signature is good",
                "red",
            ),
        ]
        if data["agent"] == self.stuck.name:
            self.paged.set()

    def told(self, decision: str, message: str) -> None:
        """Take down what the stuck agent was told, and what it took against what it would have taken."""
        at = self.now()
        self.halted = decision == "halt"
        self.paged.wait(PAGE_PATIENCE)  # both happen within milliseconds: tell of them in one order
        self.events += [
            Event(
                at,
                "told",
                f'{self.stuck.name} asked before call {self.stuck.calls + 1}: {decision}. "{message}"',
                "green",
            ),
            Event(None, "with", f"Recloser: {bill(self.stuck.spent)}", "green"),
            Event(
                None,
                "without",
                f"Recloser: {bill(demofleet.alone(self.stuck))} (at ${DOLLARS_PER_MILLION:.0f} a million)",
                "red",
            ),
        ]


class _OnCall(BaseHTTPRequestHandler):
    """Receives alerts and checks their signatures."""

    board: Board

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
        digest = hmac.digest(base64.b64decode(SECRET), signed, hashlib.sha256)
        wanted = f"v1,{base64.b64encode(digest).decode()}"
        given = self.headers.get("webhook-signature", "").split()
        good = any(hmac.compare_digest(wanted, one) for one in given)
        if good:
            self.board.page(json.loads(body))
        self.send_response(204 if good else 401)
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        """The board tells what matters."""


def _settings(folder: Path, hook: str) -> Settings:
    return Settings(
        data_dir=folder,
        otlp_http_port=0,
        otlp_grpc_port=0,
        api_port=0,
        log_level=LEVEL,
        ingest=Ingest(order_window_ms=200),
        webhooks=(Webhook(name="on-call", url=hook, secrets=(SecretStr(f"whsec_{SECRET}"),)),),
        policy=(PolicyRule(name="stop doom loops", kinds=("doom_loop",), scope="session", action="halt"),),
    )


def demo(seconds: int) -> int:
    """Run the demonstration; 0 when the loop was seen and stopped and nobody else was suspected, else 1."""
    set_up_logging("demo", LEVEL)
    console = Console(highlight=False)
    board = Board()
    on_call = ThreadingHTTPServer(("127.0.0.1", 0), type("OnCall", (_OnCall,), {"board": board}))
    threading.Thread(target=on_call.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory(prefix="recloser-demo-") as folder:
            sidecar = Sidecar(_settings(Path(folder), f"http://127.0.0.1:{on_call.server_port}/hook"))
            console.print("Starting the real sidecar: free ports, its own store in a temporary folder")
            try:
                sidecar.start()
                _run_fleet(sidecar, board, console, seconds)
            finally:
                sidecar.stop()
    except SidecarError as error:
        sys.stderr.write(f"recloser: {error}\n")
        return CANNOT_START
    except KeyboardInterrupt:
        console.print("\nEnded by Ctrl-C; nothing is left behind.")
        return INTERRUPTED
    finally:
        on_call.shutdown()
        on_call.server_close()
    return _verdict(board, console)


def _run_fleet(sidecar: Sidecar, board: Board, console: Console, seconds: int) -> None:
    endpoints = sidecar.endpoints
    console.print(f"Four simulated agents send spans to {endpoints.otlp_http} for some ten seconds.\n")
    stopping = threading.Event()
    providers = [demofleet.provider(agent, endpoints.otlp_http) for agent in board.agents]
    threads = [
        threading.Thread(
            target=demofleet.run,
            args=(agent, provider.get_tracer("recloser.demo"), endpoints.api, board.told, stopping),
        )
        for agent, provider in zip(board.agents, providers, strict=True)
    ]
    board.started = time.time()
    for thread in threads:
        thread.start()
    try:
        _show(board, console, threads, time.monotonic() + seconds)
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        for provider in providers:
            provider.shutdown()
    board.suspected = _suspected(endpoints.api, board.stuck)


def _show(board: Board, console: Console, threads: list[threading.Thread], deadline: float) -> None:
    """Show what happens until all agents have ended: a live picture on a terminal, else line by line."""
    if console.is_terminal:
        with Live(console=console, refresh_per_second=8, transient=True) as live:
            while time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
                live.update(picture(board.agents, board.events, console.width))
                time.sleep(0.1)
            live.update(Text())  # what is taller than the screen could not be taken back
        console.print(picture(board.agents, board.events, console.width))
        return
    shown = 0
    while time.monotonic() < deadline and any(thread.is_alive() for thread in threads):
        shown = _print_new(board, console, shown)
        time.sleep(0.1)
    _print_new(board, console, shown)
    console.print(Text())
    console.print(agents_table(board.agents, console.width))


def _print_new(board: Board, console: Console, shown: int) -> int:
    """Print the events from `shown` on; how many there are now."""
    events = board.events[shown:]
    for event in events:
        console.print(story_line(event))
    return shown + len(events)


def _suspected(api: str, stuck: Agent) -> int:
    """How many findings of any severity the sidecar has about others than the stuck agent."""
    findings = httpx.get(f"{api}/v1/findings", timeout=5).raise_for_status().json()["findings"]
    return sum(finding["agent"] != stuck.name for finding in findings)


def _verdict(board: Board, console: Console) -> int:
    others = len(board.agents) - 1
    if not (board.paged.is_set() and board.halted) or board.suspected:
        what = "A healthy agent was suspected." if board.suspected else "The loop was not stopped."
        console.print(f"\n[bold red]{what}[/] This is a defect; please report it with the lines above.")
        return DEFECT
    console.print(
        f"\n[bold green]{board.stuck.name} was stuck, on-call knows, and it is stopped.[/]\n"
        f"The other {others} were never suspected."
    )
    command = f"{escape(sys.argv[0])} serve"
    console.print(f"Next: [bold]{command}[/], with your agents' OTLP exporters pointed at it.")
    return 0
