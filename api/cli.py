"""The one documented entry: `recloser serve`, `analyze`, `demo`, and what reads the store."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from api import (
    alertscli,
    auditcli,
    backtestcli,
    breakerscli,
    handoffcli,
    measurecli,
    notifycli,
    policycli,
    silencecli,
    tokencli,
)
from api.config import ConfigError, load

app = typer.Typer(
    name="recloser",
    help="Sees AI agents that are stuck while they run, tells on-call, and stops them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

BAD_INPUT = 2


class Format(StrEnum):
    """What `analyze` prints."""

    TABLE = "table"
    FINDINGS = "findings-jsonl"
    STEPS = "steps-jsonl"


class FailOn(StrEnum):
    """Severity from which `analyze` ends with status 1."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


def _fail(message: str) -> typer.Exit:
    sys.stderr.write(f"recloser: {message}\n")
    return typer.Exit(BAD_INPUT)


ConfigOption = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it")
]


@app.command()
def serve(
    *,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where store and spool live [~/.local/share/recloser]")
    ] = None,
    otlp_http_port: Annotated[int | None, typer.Option(help="OTLP/HTTP port, 0 picks one [4318]")] = None,
    otlp_grpc_port: Annotated[int | None, typer.Option(help="OTLP/gRPC port, 0 picks one [4317]")] = None,
    api_port: Annotated[int | None, typer.Option(help="Port of the HTTP API, 0 picks one [4319]")] = None,
    host: Annotated[str | None, typer.Option(help="Address to bind to [127.0.0.1]")] = None,
    clickhouse: Annotated[
        str | None, typer.Option(help="URL of a ClickHouse server instead of the embedded store")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Run the sidecar until SIGTERM or Ctrl-C.

    Webhooks, policies and all other settings are in the file of --config: docs/configuration.md.
    """
    from api.serve import serve as run

    flags: dict[str, Any] = {
        "data_dir": data_dir,
        "otlp_http_port": otlp_http_port,
        "otlp_grpc_port": otlp_grpc_port,
        "api_port": api_port,
        "host": host,
        "clickhouse": None if clickhouse is None else {"url": clickhouse},
    }
    try:
        settings = load({name: value for name, value in flags.items() if value is not None}, config)
    except ConfigError as error:
        raise _fail(str(error)) from error
    raise typer.Exit(run(settings))


@app.command()
def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Files or folders with OTLP JSON lines, OTLP JSON or protobuf bodies, plain or gz"
        ),
    ],
    *,
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.TABLE,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(help="End with status 1 on a finding of this severity or worse, shadows apart"),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Judge recorded traces with the same engine that judges live ones.

    Ends with status 0; 1 when --fail-on says so; 2 when something could not be read.
    """
    from api.analyze import analyze as run

    # Whoever reads may stop reading, as `head` does: then end as other tools do, without a word.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})  # a parent may have left it blocked
    try:
        settings = load({}, config)
    except ConfigError as error:
        raise _fail(str(error)) from error
    raise typer.Exit(run(paths, output.value, fail_on.value if fail_on else None, settings))


@app.command()
def classify(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="JSON lines with id, message and tool; - is standard input")
    ],
) -> None:
    """Say of error messages why the calls failed and what would help.

    Prints one JSON line a message. Ends with status 0; 2 when a line could not be read.
    """
    from api.classify import classify_file as run

    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})  # as for analyze
    raise typer.Exit(run(path, sys.stdout, sys.stderr))


@app.command()
def demo(
    *,
    seconds: Annotated[int, typer.Option(min=10, max=60, help="How long the fleet runs at most")] = 40,
) -> None:
    """Watch a small fleet of simulated agents: one of them is stuck, is seen, and is stopped."""
    from api.demo import demo as run

    raise typer.Exit(run(seconds))


measurecli.add_to(app)
backtestcli.add_to(app)
handoffcli.add_to(app)
auditcli.add_to(app)
tokencli.add_to(app)
policycli.add_to(app)
notifycli.add_to(app)
alertscli.add_to(app)
silencecli.add_to(app)
breakerscli.add_to(app)


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"recloser {version('recloser')}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            callback=lambda wanted: _version(wanted=wanted),
            is_eager=True,
        ),
    ] = False,
) -> None:
    del show_version


def main() -> None:
    """Entry of the console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot write ends nothing
    app()
