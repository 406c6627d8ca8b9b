"""`recloser report`: all metrics of a window, as a table, JSON or a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import shown
from api.config import Settings
from api.prices import PricesError, read_prices
from api.printable import printable
from api.reportdata import Report, as_json, gather, summary
from api.storeaccess import StoreAccessError, opened
from api.window import WindowError, from_ns, moment, to_ns
from collector.consumer import IngestError
from detectors.tax import CEILING
from storage.metrics.metric import NOT_RECORDED, Measured
from storage.metrics.selection import DIMENSIONS, Selection

BAD_INPUT: Final = 2
MOST_GROUPS: Final = 20  # of a metric that the table shows; JSON has all


class ReportError(Exception):
    """What was asked for cannot be reported; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line asks for, as it was written; `prices` None: those of the settings."""

    since: str
    until: str | None = None
    by: str = ""
    service: str | None = None
    prices: Path | None = None
    ceiling: int = CEILING


def report(settings: Settings, asked: Asked, *, now: datetime, output: str, out: Path | None) -> int:
    """Report and print, or write to `out`; the exit status."""
    with told_problems() as status:
        text = _rendered(gathered(settings, asked, now), output, to_file=out is not None)
        if out is None:
            sys.stdout.write(text)
        else:
            out.write_text(text, encoding="utf-8")
    return status.code


@dataclass(slots=True)
class Status:
    """The exit status of a command."""

    code: int = 0


@contextmanager
def told_problems() -> Iterator[Status]:
    """Say on standard error what keeps a command from its work, and make its status 2."""
    status = Status()
    try:
        yield status
    except (ReportError, WindowError, PricesError, StoreAccessError) as error:
        problem = str(error)
    except IngestError as error:
        problem = f"the store did not answer: {printable(str(error), 300)}"
    except OSError as error:
        problem = f"{error.filename}: {error.strerror}"
    else:
        return
    sys.stderr.write(f"recloser: {printable(problem)}\n")
    status.code = BAD_INPUT


def dimensions(text: str) -> tuple[str, ...]:
    """The columns of `--by`. Raises `ReportError` for one that there is not.

    >>> dimensions("tool, agent"), dimensions("")
    (('tool', 'agent'), ())
    """
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in DIMENSIONS]
    if unknown:
        raise ReportError(f"--by {', '.join(unknown)}: there is {', '.join(DIMENSIONS)}")
    return names


def gathered(settings: Settings, asked: Asked, now: datetime) -> Report:
    """Measure what is asked for. Raises what `told_problems` tells."""
    begin, end = moment(asked.since, now), moment(asked.until, now) if asked.until else now
    if begin >= end:
        raise ReportError(f"--since {asked.since} is not before --until {asked.until or 'now'}")
    by = dimensions(asked.by)
    prices = read_prices(asked.prices or settings.prices.file)
    selection = Selection(since_ns=to_ns(begin), until_ns=to_ns(end), service=asked.service)
    with opened(settings) as client:
        return gather(client, selection, by, prices, asked.ceiling)


def _rendered(told: Report, output: str, *, to_file: bool) -> str:
    if output == "json":
        return orjson.dumps(as_json(told), option=orjson.OPT_INDENT_2).decode() + "\n"
    if output == "html":
        from api.reporthtml import page

        return page(told)
    return as_text(told, color=not to_file and sys.stdout.isatty())


def as_text(told: Report, *, color: bool = False, width: int | None = None) -> str:
    """The report for a terminal."""
    console = Console(
        highlight=False,
        markup=False,  # names of strangers are no instructions
        emoji=False,
        force_terminal=color,
        no_color=not color,
        width=width or (None if sys.stdout.isatty() else 120),
    )
    with console.capture() as captured:
        for part in _parts(told):
            console.print(part)
    return captured.get()


def _parts(told: Report) -> Iterator[Table | Text | str]:
    seen = told.overview
    selection = told.selection
    yield Text(f"{from_ns(selection.since_ns)} to {from_ns(selection.until_ns)}", style="bold")
    yield Text(summary(told))
    if not seen.calls and not seen.model_calls:
        yield Text("Nothing was recorded in this window.")
        return
    yield ""
    single = [each for each in told.metrics if not each.by and not each.metric.keys]
    if single:
        yield _headline(single)
    for measured in told.metrics:
        if measured.by or measured.metric.keys:
            yield ""
            yield from _grouped(measured)
    yield ""
    yield from _tax(told)
    yield ""
    yield from _changes(told)


def _plain_table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    return table


def _headline(measured: Sequence[Measured]) -> Table:
    table = _plain_table(("metric", False), ("value", True), ("95 % interval", False), ("of", False))
    for each in measured:
        metric = each.metric
        if not each.recorded:
            table.add_row(
                metric.title,
                Text(NOT_RECORDED, style="dim"),
                "",
                Text(f"needs {metric.needs}", style="dim"),
            )
            continue
        row = each.table.row(0, named=True)
        table.add_row(
            metric.title, shown.value(metric, row), shown.interval(metric, row), shown.counted(metric, row)
        )
    return table


def _grouped(measured: Measured) -> Iterator[Table | Text]:
    metric = measured.metric
    yield Text.assemble((metric.title, "bold"), f": {metric.definition}")
    if not measured.recorded:
        yield Text(shown.missing(metric), style="dim")
        return
    columns = [(name, False) for name in (*measured.by, *metric.keys)]
    table = _plain_table(
        *columns, ("value", True), ("95 % interval", False), ("of", False), *_extra(measured)
    )
    rows = measured.table.to_dicts()
    if len(rows) > MOST_GROUPS:
        rows = sorted(rows, key=lambda row: -shown.weight(metric, row))[:MOST_GROUPS]
    for row in rows:
        table.add_row(
            *map(Text, shown.group(measured, row)),
            shown.value(metric, row),
            shown.interval(metric, row),
            shown.counted(metric, row),
            *(_cell(row.get(name)) for name, _ in _extra(measured)),
        )
    yield table
    if measured.table.height > len(rows):
        yield Text(f"and {measured.table.height - len(rows)} more; --format json has all", style="dim")


def _extra(measured: Measured) -> list[tuple[str, bool]]:
    names = ("recovered", "calls_each", "tokens_each", "usd_each")
    return [(name, True) for name in names if name in measured.table.columns]


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _tax(told: Report) -> Iterator[Table | Text]:
    tax = told.tax
    yield Text.assemble(
        ("Doom-loop tax", "bold"),
        f": {tax.over:,} of {tax.calls:,} calls of {tax.streaks:,} streaks were beyond the ceiling of"
        f" {tax.ceiling}, {shown.money(tax.usd)}",
        f", {tax.not_priced:,} calls not priced" if tax.not_priced and tax.usd is not None else "",
    )
    if tax.models:
        table = _plain_table(
            ("model", False), *((name, True) for name in ("calls", "over", "tokens", "cost"))
        )
        for each in tax.models:
            tokens = each.input_tokens + each.output_tokens
            table.add_row(
                Text(printable(each.model, shown.MAX_NAME) or "-"),
                f"{each.calls:,}",
                f"{each.over:,}",
                f"{tokens:,}" if tokens else "not recorded",
                shown.money(each.usd),
            )
        yield table


def _changes(told: Report) -> Iterator[Text]:
    if not told.changes:
        yield Text("No tool definition changed.")
        return
    yield Text("Tool definitions that changed", style="bold")
    for change in told.changes:
        version = f" {change.service_version}" if change.service_version else ""
        yield Text(
            printable(
                f"{from_ns(change.at_ns)}  {change.tool} of {change.service or '-'}{version}:"
                f" {' and '.join(change.changed) or 'definition'}, {change.before} to {change.after}"
            )
        )
