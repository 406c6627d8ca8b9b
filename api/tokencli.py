"""The commands `token create`, `token list`, `token revoke`. What they need is loaded when they run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api.config import ConfigError, load
from api.printable import printable

if TYPE_CHECKING:
    from api.tokenplaces import Place

BAD_INPUT: Final = 2
_PIPED: Final = 160  # columns where there is no terminal
_AGENT: Final = "ingest,read,check"
_FIRST: Final = """\
It is the first one: from now on exporters, checks and guards without a token are refused (401).
Make one for agents (recloser token create NAME --agent) and give it to
  exporters: OTEL_EXPORTER_OTLP_HEADERS="authorization=Bearer%20SECRET"
  guards and these commands: RECLOSER_TOKEN=SECRET
More of it is in docs/authorization.md.
"""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

commands = typer.Typer(
    name="token",
    help="Make, list and revoke tokens: at a running sidecar, or in its data directory while none runs.\n\n"
    "A sidecar that needs tokens wants one that allows admin, in the variable RECLOSER_TOKEN.",
    no_args_is_help=True,
)

Url = Annotated[
    str | None,
    typer.Option(
        envvar="RECLOSER_URL", help="The sidecar's API, e.g. http://127.0.0.1:4319; without: by the settings"
    ),
]
DataDir = Annotated[Path | None, typer.Option(help="Where spool and control database live")]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it")
]


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Who or what it is for; written into the audit")],
    *,
    verbs: Annotated[
        str | None,
        typer.Option(help="Some of ingest,read,check,trip,override,admin, by commas; all: all of them"),
    ] = None,
    agent: Annotated[bool, typer.Option("--agent", help=f"What an agent needs: {_AGENT}")] = False,
    expires: Annotated[str | None, typer.Option(help="How long it is valid: 12h, 30d")] = None,
    service: Annotated[list[str] | None, typer.Option(help="Only this service (pattern; repeat)")] = None,
    agents: Annotated[
        list[str] | None, typer.Option("--only-agent", help="Only this agent (pattern; repeat)")
    ] = None,
    session: Annotated[list[str] | None, typer.Option(help="Only this session (pattern; repeat)")] = None,
    url: Url = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """Make a token and print its secret, which is kept nowhere.

    From the first one on tokens are needed everywhere: exporters and checks without one are refused at once.
    The first one must allow admin.
    """
    from pydantic import ValidationError

    from api.routes.tokens import TokenRequest
    from control.verbs import Verb

    if (verbs is None) is not agent:
        raise _fail("say either --verbs or --agent")
    wanted = ",".join(Verb) if verbs == "all" else verbs or _AGENT
    try:
        request = TokenRequest.model_validate(
            {
                "name": name,
                "verbs": [verb.strip() for verb in wanted.split(",")],
                "expires_in_s": None if expires is None else _seconds(expires),
                "services": service or [],
                "agents": agents or [],
                "sessions": session or [],
            }
        )
    except ValidationError as error:
        told = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise _fail("; ".join(told)) from error
    (first, made), where = _at(
        url, data_dir, config, lambda place: (place.is_open(), place.create(request)), make=True
    )
    sys.stderr.write(
        f"The token {printable(name)!r} ({made['token']['id']}) is made at {where}.\n"
        + (_FIRST if first else "")
        + "It allows: "
        + ", ".join(made["token"]["verbs"])
        + ". Its secret is told only now:\n"
    )
    sys.stdout.write(f"{made['secret']}\n")


@commands.command("list")
def list_all(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON")] = False,
    url: Url = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """List tokens, revoked and expired ones, too. No secrets."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from control.verbs import Verb

    found, _ = _at(url, data_dir, config, lambda place: place.tokens())
    if as_json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
        return
    table = Table(
        Column("id", no_wrap=True),
        Column("name", overflow="fold"),
        "state",
        "verbs",
        "restricted to",
        Column("expires", no_wrap=True),
        Column("last used", no_wrap=True),
        "made by",
        box=None,
    )
    for token in found:
        cells = (
            token["id"],
            token["name"],
            token["state"],
            "all" if len(token["verbs"]) == len(Verb) else " ".join(token["verbs"]),
            _restriction(token["only"]),
            _day(token["expires_at"]),
            _day(token["last_used_at"]),
            token["created_by"] or token["source"],
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    Console(width=None if sys.stdout.isatty() else _PIPED).print(table)


@commands.command()
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As `recloser token list` shows it")],
    *,
    url: Url = None,
    data_dir: DataDir = None,
    config: Config = None,
) -> None:
    """End a token at once."""
    ended, where = _at(url, data_dir, config, lambda place: place.revoke(token_id))
    sys.stderr.write(f"The token {printable(ended['name'])!r} is {ended['state']} at {where}.\n")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)


def _at(
    url: str | None,
    data_dir: Path | None,
    config: Path | None,
    act: Callable[[Place], Any],
    *,
    make: bool = False,
) -> tuple[Any, str]:
    """Do it where it is to be done; return what came of it, and where. Ends with status 2 when it fails."""
    from api.tokenplaces import PlaceError, place

    try:
        settings = load({} if data_dir is None else {"data_dir": data_dir}, config)
        opened: AbstractContextManager[Place] = place(
            settings, url, os.environ.get("RECLOSER_TOKEN"), make=make
        )
        with opened as found:
            return act(found), found.where
    except (ConfigError, PlaceError) as error:
        raise _fail(str(error)) from error


def _seconds(text: str) -> int:
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or not 0 < int(number) < 10**7:
        raise _fail(f"--expires {text}: say a number and s, m, h or d, e.g. 30d")
    return int(timedelta(seconds=int(number) * _UNITS[unit]).total_seconds())


def _restriction(only: dict[str, list[str]]) -> str:
    return "; ".join(f"{kind} {', '.join(patterns)}" for kind, patterns in only.items() if patterns)


def _day(at: str | None) -> str:
    if at is None:
        return ""
    return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M}"


def _fail(message: str) -> typer.Exit:
    sys.stderr.write(f"recloser: {printable(message)}\n")
    return typer.Exit(BAD_INPUT)
