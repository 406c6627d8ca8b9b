"""Record one capture: start both servers, run a framework's program against them, and write meta.json.

    record.py FRAMEWORK VARIANT [--recorded yes|no|unknown] [--fail TEXT] [--untold] [--modules DIR]
        [--out DIR] -- COMMAND ...

The command runs in a copy of this folder, so that the stack traces on the wire do not tell where the
project lies, with the model's address in STUB_URL and OPENAI_BASE_URL, the receiver's in
OTEL_EXPORTER_OTLP_ENDPOINT, and appends what its tools were really called with to the file in
CAPTURE_CALLS (scenario.py does so): these lines become `expected_tool_calls`, in the order in which the
calls ended. What it writes to the file in CAPTURE_NOTES, a JSON object, is merged into meta.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import capture_server
import stub_model

CAPTURES = Path(__file__).parent.parent / "testdata" / "captures"
RECORDED = {"yes": True, "no": False, "unknown": None}
NOTE = "recorded for this project with a stub model (tests/capturing); no real provider was called"

QUIET = {
    "AGNO_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MASTRA_TELEMETRY_DISABLED": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "OPENAI_AGENTS_DISABLE_TRACING": "0",
    "TRACELOOP_TELEMETRY": "false",
}
"""Keeps frameworks from calling home while they are recorded."""

SWITCHES = ("OTEL_", "OPENINFERENCE_", "TRACELOOP_", "MLFLOW_", "ADK_", "TOOLS_")
"""What begins the environment variables that decide what a capture holds."""


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework")
    parser.add_argument("variant")
    parser.add_argument(
        "--recorded", choices=RECORDED, default="yes", help="whether the wire carries the arguments"
    )
    parser.add_argument("--fail", default="tool raises", help="how tools fail")
    parser.add_argument("--out", type=Path, default=CAPTURES)
    parser.add_argument("--untold", action="store_true", help="nothing on the wire tells of single calls")
    parser.add_argument("--modules", type=Path, help="node_modules folder to link beside the programs")
    parser.add_argument("--timeout", type=float, default=150)
    parser.add_argument("command", nargs="+")
    return parser.parse_args()


def environment(stub: str, receiver: str, scratch: Path) -> dict[str, str]:
    """Return what the framework's program finds in its environment."""
    return os.environ | {
        "STUB_URL": stub,
        "OPENAI_BASE_URL": f"{stub}/v1",
        "OPENAI_API_KEY": "stub",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_METRIC_EXPORT_INTERVAL": "600000",
        "OTEL_BSP_SCHEDULE_DELAY": os.environ.get("OTEL_BSP_SCHEDULE_DELAY", "2000"),
        "CAPTURE_CALLS": str(scratch / "calls.jsonl"),
        "CAPTURE_NOTES": str(scratch / "notes.json"),
        "PYTHONPATH": str(scratch / "recording"),
        **QUIET,
    }


def called(path: Path) -> list[dict[str, Any]]:
    """Return the calls that the tools noted."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def truth(calls: list[dict[str, Any]], *, told: bool) -> dict[str, Any]:
    """Return the calls as expected on the wire, or as only made when nothing there tells of them."""
    return {"expected_tool_calls": calls} if told else {"expected_tool_calls": None, "calls_made": calls}


def main() -> None:
    """Record and report."""
    asked = options()
    folder = asked.out / asked.framework / asked.variant
    shutil.rmtree(folder, ignore_errors=True)
    stub, receiver = stub_model.serve(), capture_server.serve(folder)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        programs = shutil.copytree(Path(__file__).parent, scratch / "recording")
        if asked.modules:
            (programs / "node_modules").symlink_to(asked.modules.resolve())
        stub_url, receiver_url = (f"http://127.0.0.1:{server.server_port}" for server in (stub, receiver))
        run = subprocess.run(
            asked.command,
            cwd=programs,
            env=environment(stub_url, receiver_url, scratch),
            timeout=asked.timeout,
            check=False,
        )
        notes = scratch / "notes.json"
        meta = {
            "framework": asked.framework,
            "variant": asked.variant,
            "note": NOTE,
            "how_tools_fail": asked.fail,
            "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SWITCHES)},
            **(json.loads(notes.read_text()) if notes.exists() else {}),
            **truth(called(scratch / "calls.jsonl"), told=not asked.untold),
            "arguments_recorded": RECORDED[asked.recorded],
        }
    bodies = sorted(folder.glob("*.gz")) if folder.exists() else []
    if not bodies:
        sys.exit(f"{asked.framework}/{asked.variant}: nothing was exported (exit {run.returncode})")
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    size = sum(body.stat().st_size for body in bodies)
    calls = len(meta["expected_tool_calls"] or meta.get("calls_made", []))
    print(f"{folder}: exit {run.returncode}, {len(bodies)} bodies, {size} bytes, {calls} calls")


if __name__ == "__main__":
    main()
