"""The commands `notify list` and `notify test`. What they need is loaded when they run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from api.config import ConfigError, Settings, load
from api.printable import printable

BAD_INPUT: Final = 2
NOT_TAKEN: Final = 1

commands = typer.Typer(
    name="notify",
    help="List the destinations of alerts, and send them test messages.\n\n"
    "Asks the running sidecar (with RECLOSER_TOKEN where tokens are needed); while none runs, reads the "
    "settings and sends by itself.",
    no_args_is_help=True,
)

Url = Annotated[
    str | None, typer.Option(envvar="RECLOSER_URL", help="The sidecar's API; else by the settings")
]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON")]


@commands.command("list")
def list_(*, url: Url = None, config: Config = None, as_json: AsJson = False) -> None:
    """List who is told of alerts, and how that goes. Ends with status 0; 2 when nobody can be asked."""
    from api.notifying import NotifyError, destinations

    try:
        found = destinations(_settings(config), url, os.environ.get("RECLOSER_TOKEN"))
    except NotifyError as error:
        raise _fail(str(error)) from error
    if as_json:
        typer.echo(json.dumps({"destinations": found}, indent=2))
        return
    for place in found:
        typer.echo(printable(_line(place)))
    if not found:
        typer.echo(
            "no destination is configured (--config or --url say where to look): see docs/notifiers.md"
        )


@commands.command("test")
def send(
    name: Annotated[str, typer.Argument(help="The destination, as `notify list` names it")],
    *,
    url: Url = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Send a test message to one destination; where incidents stay open, open one and resolve it.

    Ends with status 0 when it was taken; 1 when it was not, or a template of yours is broken; 2 when nobody
    has that name or can be asked.
    """
    from api.notifying import NotifyError, send_test

    try:
        trial = send_test(_settings(config), name, url, os.environ.get("RECLOSER_TOKEN"))
    except NotifyError as error:
        raise _fail(str(error)) from error
    if as_json:
        typer.echo(json.dumps(trial, indent=2))
    else:
        took = f"in {trial['took_ms']:.0f} ms"
        said = "delivered" if trial["delivered"] else "NOT delivered"
        how = trial["problem"] or f"HTTP {trial['status']}"
        typer.echo(printable(f"{name}: {said} {took}, {how}"))
        if trial["template_problem"]:
            typer.echo(printable(f"your template is not used: {trial['template_problem']}"))
    if not trial["delivered"] or trial["template_problem"]:
        raise typer.Exit(NOT_TAKEN)


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)


def _line(place: dict[str, Any]) -> str:
    parts = [f"{place['name']}: {place['state']}"]
    if place["reason"]:
        parts.append(place["reason"])
    if place["pending"]:
        parts.append(f"{place['pending']} waiting since {place['oldest_pending_at']}")
    if place["given_up"]:
        parts.append(f"{place['given_up']} never taken")
    if place["fallback"]:
        parts.append(f"then {place['fallback']}")
    return ", ".join(parts)


def _settings(config: Path | None) -> Settings:
    try:
        return load({}, config)
    except ConfigError as error:
        raise _fail(str(error)) from error


def _fail(message: str) -> typer.Exit:
    sys.stderr.write(f"recloser: {printable(message)}\n")
    return typer.Exit(BAD_INPUT)
