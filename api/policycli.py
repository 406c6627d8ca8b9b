"""The commands `policy check` and `policy test`. What they need is loaded when they run."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from api.config import ConfigError, Settings, load
from api.measurecli import BAD_INPUT, ClickHouse, Config, DataDir, Format, PricesFile

commands = typer.Typer(
    name="policy", help="Check a policy file, and try it on what happened.", no_args_is_help=True
)

PolicyFile = Annotated[Path, typer.Argument(metavar="FILE", help="Policy file, TOML")]


@commands.command()
def check(file: PolicyFile, *, config: Config = None) -> None:
    """Say whether a policy file is fine; else name file, line and key of everything that is wrong.

    Destinations are checked against those of --config; without any there it says that they were not.
    Ends with status 0, or 2.
    """
    from api.policytest import policy_check

    raise typer.Exit(policy_check(_load({}, config), file))


@commands.command("test")
def try_on(
    file: PolicyFile,
    *,
    against: Annotated[
        str, typer.Option(help="Stored history: an age (12h, 7d) until now, or 2026-11-01..2026-11-08")
    ] = "7d",
    recorded: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Instead: a file or folder of recorded traces; may be repeated"),
    ] = None,
    max_good_runs: Annotated[
        int | None, typer.Option(min=0, help="End with status 1 when more good runs than that are hit")
    ] = None,
    warm_up: Annotated[
        str, typer.Option(help="How long before the window steps are judged without counting")
    ] = "6h",
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.TABLE,
    prices: PricesFile = None,
    data_dir: DataDir = None,
    clickhouse: ClickHouse = None,
    config: Config = None,
) -> None:
    """Try a policy on what happened: whom it tells, what it stops, which good runs it hits, what it spares.

    Detectors run as --config sets them. Ends with status 0; 1 when --max-good-runs says so; 2 when policy,
    settings, window or prices make no sense, a recorded trace cannot be read, or there is no store.
    """
    from api.policytest import Asked, policy_test

    flags: dict[str, Any] = {
        "data_dir": data_dir,
        "clickhouse": None if clickhouse is None else {"url": clickhouse},
    }
    settings = _load({name: value for name, value in flags.items() if value is not None}, config)
    asked = Asked(
        file=file,
        against=against,
        files=tuple(recorded or ()),
        warm_up=warm_up,
        prices=prices,
        max_good_runs=max_good_runs,
        output=output.value,
    )
    raise typer.Exit(policy_test(settings, asked, datetime.now(UTC)))


def _load(flags: dict[str, Any], config: Path | None) -> Settings:
    try:
        return load(flags, config)
    except ConfigError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise typer.Exit(BAD_INPUT) from error


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)
