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
Until = Annotated[str | None, typer.Option(help="Until when, exclusive; else until now")]
Service = Annotated[str | None, typer.Option(help="Only this service")]
PricesFile = Annotated[
    Path | None, typer.Option("--prices", help="Price table, TOML, instead of the one shipped")
]
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


def roi(
    *,
    calls: Annotated[float | None, typer.Option(help="Calls of a looping session")] = None,
    ceiling: Ceiling = CEILING,
    price: Annotated[float | None, typer.Option(help="US dollars a call")] = None,
    sessions_per_day: Annotated[float | None, typer.Option(help="Looping sessions a day")] = None,
    since: Annotated[
        str | None, typer.Option(help="Measure what is not given, from then on: 7d, or 2026-11-01")
    ] = None,
    until: Until = None,
    service: Service = None,
    prices: PricesFile = None,
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.TABLE,
    data_dir: DataDir = None,
    clickhouse: ClickHouse = None,
    config: Config = None,
) -> None:
    """Reckon what a ceiling on loops saves: (calls - ceiling) x price x sessions a day."""
    from api.report import Asked
    from api.roi import Given
    from api.roi import roi as run

    asked = None if since is None else Asked(since=since, until=until, service=service, prices=prices)
    given = Given(calls=calls, price=price, sessions_per_day=sessions_per_day)
    settings = _settings(data_dir, clickhouse, config)
    raise typer.Exit(run(settings, given, asked, ceiling=ceiling, now=datetime.now(UTC), output=output.value))


def compare(
    a: Annotated[str, typer.Argument(help="version:1.2, window:2026-11-01..2026-11-08 or definitions:HASH")],
    b: Annotated[str, typer.Argument(help="Another of the same sort")],
    *,
    since: Since = "30d",
    until: Until = None,
    by: Annotated[str, typer.Option(help="Columns to group by, as for report")] = "",
    service: Service = None,
    output: Annotated[Format, typer.Option("--format", help="What to print")] = Format.TABLE,
    data_dir: DataDir = None,
    clickhouse: ClickHouse = None,
    config: Config = None,
) -> None:
    """Say which metrics moved between two versions, windows or sets of tool definitions."""
    from api.compare import compare as run
    from api.report import Asked

    asked = Asked(since=since, until=until, by=by, service=service)
    settings = _settings(data_dir, clickhouse, config)
    raise typer.Exit(run(settings, (a, b), asked, now=datetime.now(UTC), output=output.value))


def _settings(data_dir: Path | None, clickhouse: str | None, config: Path | None) -> Settings:
    flags = {"data_dir": data_dir, "clickhouse": None if clickhouse is None else {"url": clickhouse}}
    try:
        return load({name: value for name, value in flags.items() if value is not None}, config)
    except ConfigError as error:
        sys.stderr.write(f"recloser: {error}\n")
        raise typer.Exit(BAD_INPUT) from error


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (report, compare, roi):
        app.command()(command)
