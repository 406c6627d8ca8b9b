"""What the agents here share: tools that tell telemetry of themselves, a model that plays a part, a log.

usage of each program: PROGRAM API OTLP SESSION loop|replan. In `loop` the model asks for the same call for
ever; in `replan` it does what the text of a refusal says: it takes another tool, and ends.
"""

from __future__ import annotations

import json
import sys
import time

from recloser_guard import Guard
from telemetry import send_call

API, OTLP, SESSION, PART = sys.argv[1:5]
PACE = 0.3  # seconds that the model thinks
LIMIT = 40  # turns
STUCK = "replanned" if PART == "replan" else "fetch_page"
ARGUMENTS = {"url": "https://example.invalid/status"}

guard = Guard(API, service="guarded-agent", agent="ops_agent", cache=None, client=f"test-{SESSION}")


def note(what: str, **more: object) -> None:
    """Tell the test what happens."""
    print(json.dumps({"what": what, "at": time.time_ns(), **more}), flush=True)


def work(tool: str, args: dict[str, str]) -> str:
    """Do what a tool does; the one that is stuck always fails."""
    started = time.time()
    note("call", tool=tool)
    if tool == "search":
        send_call(OTLP, SESSION, tool, args, result="The status is on page 7.", started=started)
        return "The status is on page 7."
    error = "KeyError: no column named total"
    send_call(OTLP, SESSION, tool, args, error=error, started=started)
    raise RuntimeError(error)


class Model:
    """Says what to do next: (tool, arguments), or None to end."""

    def __init__(self) -> None:
        self.turns = 0
        self.replanned = False

    def next(self, last_result: str) -> tuple[str, dict[str, str]] | None:
        self.turns += 1
        note("turn", last=last_result[:400])
        time.sleep(PACE)
        if self.turns > LIMIT or "The status is" in last_result:
            return None
        if PART == "replan" and last_result.startswith("Stopped by Recloser"):
            self.replanned = True
        return ("search", {"q": "status"}) if self.replanned else (STUCK, ARGUMENTS)


model = Model()


def ended(how: str, text: str = "") -> None:
    """Tell how the run ended, and end."""
    note("end", how=how, text=text, turns=model.turns)
    guard.close()
