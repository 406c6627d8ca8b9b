"""What every recorded program does: the three tools, their ground truth, and the plumbing around a run.

Only the standard library is imported at the top; OpenTelemetry is taken from the framework's own environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
import urllib.request
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT = "Check the weather in Paris, the status page and the orders table."
BASE_URL = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8399/v1")
MAIN = [
    "get_weather x1 (ok)",
    "fetch_page x6 identical args (all fail)",
    "run_query x6 varied args (all fail)",
    "get_weather x2 in parallel in one LLM turn (ok)",
]
_lock = threading.Lock()


def note_call(name: str, args: dict[str, Any], *, failed: bool | None) -> None:
    """Append one real call to the ground truth; None: the call was denied and never ran.

    TOOLS_TAKE, in seconds, makes every call last, so that exporters send a run in many bodies.
    """
    time.sleep(float(os.environ.get("TOOLS_TAKE", "0")))
    with _lock, Path(os.environ["CAPTURE_CALLS"]).open("a") as file:
        file.write(json.dumps({"name": name, "args": args, "failed": failed}) + "\n")


def fail(error: Exception) -> str:
    """Raise, or return the error as text when TOOLS_RETURN_ERRORS is set."""
    if os.environ.get("TOOLS_RETURN_ERRORS"):
        return f"Error: {error}"
    raise error


def get_weather(city: str) -> str:
    """Get the current weather of a city."""
    note_call("get_weather", {"city": city}, failed=False)
    return json.dumps({"city": city, "temp_c": 21})


def fetch_page(url: str) -> str:
    """Fetch a web page."""
    note_call("fetch_page", {"url": url}, failed=True)
    return fail(RuntimeError(f"HTTP 503 from {url}"))


def run_query(sql: str) -> str:
    """Run a SQL query."""
    note_call("run_query", {"sql": sql}, failed=True)
    return fail(ValueError(f'relation "ordres" does not exist: {sql}'))


def list_jobs() -> str:
    """List the running jobs."""
    note_call("list_jobs", {}, failed=False)
    return "no jobs"


TOOLS: list[Callable[..., str]] = [get_weather, fetch_page, run_query]
BY_NAME = {tool.__name__: tool for tool in [*TOOLS, list_jobs]}
_FIELDS = {"get_weather": "city", "fetch_page": "url", "run_query": "sql"}


def chat_tools() -> list[dict[str, Any]]:
    """Return the tools as the chat completions API declares them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": BY_NAME[name].__doc__,
                "parameters": {
                    "type": "object",
                    "properties": {field: {"type": "string"}},
                    "required": [field],
                },
            },
        }
        for name, field in _FIELDS.items()
    ]


def use(turns: list[dict[str, Any]]) -> None:
    """Have the stub serve other turns than the main scenario's."""
    request = urllib.request.Request(
        os.environ["STUB_URL"] + "/script", json.dumps(turns).encode(), {"content-type": "application/json"}
    )
    urllib.request.urlopen(request).read()


def write_notes(packages: list[str], scenario: list[str] | str = MAIN, **more: object) -> None:
    """Write what meta.json should say of this run."""
    versions: dict[str, str | None] = {}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    notes = {"versions": versions, "scenario": os.environ.get("SCENARIO", scenario), **more}
    Path(os.environ["CAPTURE_NOTES"]).write_text(json.dumps(notes))


def telemetry(*, logs: bool = True) -> Any:  # noqa: ANN401 - the provider's type lives in the framework's environment
    """Set global providers that export over OTLP/HTTP, and return the tracer provider."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "recorded-agent"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    if logs:
        from opentelemetry._logs import set_logger_provider
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        logger_provider = LoggerProvider(resource=resource)
        logger_provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        set_logger_provider(logger_provider)
    return provider


def run(coroutine: Any) -> None:  # noqa: ANN401 - any awaitable of any framework
    """Run a coroutine, saying rather than raising what ended it: a failed run is a capture too."""
    try:
        asyncio.run(coroutine)
    except Exception as error:  # noqa: BLE001 - whatever a framework raises
        print(f"the run ended with {type(error).__name__}: {error}")


if os.environ.get("SCENARIO") == "noargs":
    TOOLS.append(list_jobs)
    use([*[{"calls": [["list_jobs", {}]]} for _ in range(4)], {"text": "Nothing runs."}])
