"""The commands that measure what is stored; what each needs is loaded when it runs."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from api.config import ConfigError, Settings, load
from detectors.tax import CEILING

BAD_INPUT = 2

Since = Annotated[str, typer.Option(help="From when on: an age (12h, 7d, 2w) or a day (2026-11-01)")]
Until = Annotated[str | None, typer.Option(help="Until when, exclusive [now]")]
Service = Annotated[str | None, typer.Option(help="Only this service")]
PricesFile = Annotated[Path | None, typer.Option("--prices", help="Price table, TOML [the one shipped]")]
Ceiling = Annotated[int, typer.Option(min=0, help="Calls of a streak that are worth their price")]
Out = Annotated[Path | None, typer.Option(help="Write here instead of to standard output")]
DataDir = Annotated[Path | None, typer.Option(help="Where store and spool live [~/.local/share/recloser]")]
ClickHouse = Annotated[
    str | None, typer.Option(help="URL of a ClickHouse server instead of the embedded store")
]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it")
]


class ReportFormat(StrEnum):
    """What `report` prints."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


class Format(StrEnum):
    """What `compare` and `roi` print."""

    TABLE = "table"
    JSON = "json"


def report(
    *,
    since: Since = "7d",
    until: Until = None,
    by: Annotated[
        str,
        typer.Option(
            help="Columns to group by: tool,operation,agent,model,error_class,service,service_version,day"
        ),
    ] = "",
    service: Service = None,
    output: Annotated[ReportFormat, typer.Option("--format", help="What to print")] = ReportFormat.TABLE,
    out: Out = None,
    prices: PricesFile = None,
    ceiling: Ceiling = CEILING,
    data_dir: DataDir = None,
    clickhouse: ClickHouse = None,
    config: Config = None,
) -> None:
    """Measure recovery, errors, tools, tokens and waste of what is stored."""
    from api.report import Asked
    from api.report import report as run

    asked = Asked(since=since, until=until, by=by, service=service, prices=prices, ceiling=ceiling)
    settings = _settings(data_dir, clickhouse, config)
    raise typer.Exit(run(settings, asked, now=datetime.now(UTC), output=output.value, out=out))


def _settings(data_dir: Path | None, clickhouse: str | None, config: Path | None) -> Settings:
    flags = {"data_dir": data_dir, "clickhouse": None if clickhouse is None else {"url": clickhouse}}
    try:
        return load({name: value for name, value in flags.items() if value is not None}, config)
    except ConfigError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise typer.Exit(BAD_INPUT) from error


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(report)
