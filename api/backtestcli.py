"""The command `backtest`. What it needs is loaded when it runs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from api.config import ConfigError, Settings, load
from api.measurecli import BAD_INPUT, ClickHouse, DataDir, Format, PricesFile, Since


def backtest(
    *,
    config: Annotated[
        Path,
        typer.Option("--config", help="TOML file with the settings to try: tables of detectors, policies"),
    ],
    current: Annotated[
        Path | None,
        typer.Option("--current", help="TOML file with the settings in force; RECLOSER_* come before it"),
    ] = None,
    since: Since = "7d",
    within: Annotated[
        str | None, typer.Option("--window", help="Instead: two times, 2026-11-01..2026-11-08")
    ] = None,
    warm_up: Annotated[
        str, typer.Option(help="How long before the window steps are judged without counting")
    ] = "6h",
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.TABLE,
    prices: PricesFile = None,
    data_dir: DataDir = None,
    clickhouse: ClickHouse = None,
) -> None:
    """Run other thresholds over what is stored: what appears, vanishes, and what trips would have spared.

    What --config does not say stays as it is in the settings in force. Ends with status 0; 2 when settings,
    window or prices make no sense, or there is no store.
    """
    from api.backtest import backtest as run

    flags: dict[str, Any] = {
        "data_dir": data_dir,
        "clickhouse": None if clickhouse is None else {"url": clickhouse},
    }
    told = {name: value for name, value in flags.items() if value is not None}
    in_force = _load(told, current)
    raise typer.Exit(
        run(
            in_force if current is not None else _load(told, config),
            in_force,
            config,
            now=datetime.now(UTC),
            since=since,
            within=within,
            warm_up=warm_up,
            output=output.value,
            prices=prices,
        )
    )


def _load(flags: dict[str, Any], path: Path | None) -> Settings:
    try:
        return load(flags, path)
    except ConfigError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise typer.Exit(BAD_INPUT) from error


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(backtest)
