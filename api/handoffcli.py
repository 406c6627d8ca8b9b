"""The command `handoff`. What it needs is loaded when it runs."""

from __future__ import annotations

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from api.config import ConfigError, Settings, load

BAD_INPUT: Final = 2


class Format(StrEnum):
    """How the report is written."""

    MARKDOWN = "markdown"
    JSON = "json"


def handoff(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="The session's id, as the agent sends it")
    ],
    *,
    traces: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Recorded traces to judge instead of asking the sidecar; repeatable"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Judge the stored history from then on instead: an age (12h, 7d) or a day"),
    ] = None,
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.MARKDOWN,
    url: Annotated[
        str | None,
        typer.Option(
            help="The sidecar's API, e.g. http://127.0.0.1:4319; else RECLOSER_URL, or the settings"
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it"),
    ] = None,
) -> None:
    """Say what a person needs who takes over a run: what it was for, since when it is stuck, what was tried.

    Asks the running sidecar (with RECLOSER_TOKEN where tokens are needed). Ends with status 0; 2 when there
    is no such session, or nobody to ask.
    """
    from control.handoff import to_markdown

    try:
        told = _told(session, traces or [], since, url, load({}, config))
    except ConfigError as error:
        raise _fail(str(error)) from error
    if output is Format.JSON:
        sys.stdout.write(json.dumps(told, indent=2) + "\n")  # ASCII: a terminal obeys none of it
    else:
        sys.stdout.write(to_markdown(told))


def _told(
    session: str, traces: list[Path], since: str | None, url: str | None, settings: Settings
) -> dict[str, Any]:
    from api.handoffs import HandoffError, asked, recorded, stored

    if sum((bool(traces), since is not None, url is not None)) > 1:
        raise _fail("--from, --since and --url are three places to look: give one of them")
    try:
        if traces:
            return recorded(session, traces, settings)
        if since is not None:
            return stored(session, since, settings)
        url = url or os.environ.get("RECLOSER_URL")
        return asked(session, settings, url, os.environ.get("RECLOSER_TOKEN"))
    except HandoffError as error:
        raise _fail(str(error)) from error


def _fail(message: str) -> typer.Exit:
    sys.stderr.write(f"recloser: {message}\n")
    return typer.Exit(BAD_INPUT)


def add_to(app: typer.Typer) -> None:
    """Add the command to the program."""
    app.command()(handoff)
