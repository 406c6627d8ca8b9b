"""`recloser compare A B`: two service versions, two windows, or two sets of tool definitions; what moved."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import shown
from api.config import Settings
from api.printable import printable
from api.report import Asked, ReportError, dimensions, told_problems
from api.reportdata import plain
from api.storeaccess import opened
from api.window import from_ns, moment, to_ns, window
from storage.client import StoreClient
from storage.metrics.catalog import METRICS
from storage.metrics.definitions import LEAST_PREFIX, DefinitionChange, changes, find
from storage.metrics.metric import Shape, measure
from storage.metrics.moved import ALPHA, COMPARED, Moved, moved
from storage.metrics.overview import Overview, overview
from storage.metrics.selection import Selection

_HASH: Final = re.compile(r"[0-9a-f]{4,16}")
_KINDS: Final = ("version", "window", "definitions")
_EXAMPLES: Final = "version:1.2, window:2026-11-01..2026-11-08 or definitions:ab12"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: as it was written, what sort it is, and what it selects."""

    name: str
    kind: str
    selection: Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides, what moved between them, and the tool definitions that changed over both windows."""

    a: Side
    b: Side
    overviews: tuple[Overview, Overview]
    moved: tuple[Moved, ...]
    changes: tuple[DefinitionChange, ...]

    @property
    def tested(self) -> int:
        """How many comparisons were tested, which is what p is corrected for."""
        return sum(each.p is not None for each in self.moved)


def compare(settings: Settings, names: tuple[str, str], asked: Asked, *, now: datetime, output: str) -> int:
    """Compare and print; the exit status."""
    with told_problems() as status:
        comparison = compared(settings, names, asked, now)
        if output == "json":
            text = orjson.dumps(as_json(comparison), option=orjson.OPT_INDENT_2).decode() + "\n"
        else:
            text = as_text(comparison)
        sys.stdout.write(text)
    return status.code


def compared(settings: Settings, names: tuple[str, str], asked: Asked, now: datetime) -> Comparison:
    """Measure both sides. Raises what `told_problems` tells."""
    by = dimensions(asked.by)
    with opened(settings) as client:
        return _compared(client, *_sides(client, names, asked, now), by)


def _compared(client: StoreClient, a: Side, b: Side, by: Sequence[str]) -> Comparison:
    both = replace(
        a.selection,
        since_ns=min(a.selection.since_ns, b.selection.since_ns),
        until_ns=max(a.selection.until_ns, b.selection.until_ns),
    )
    return Comparison(
        a=a,
        b=b,
        overviews=(_seen(client, a), _seen(client, b)),
        moved=tuple(
            moved(
                (measure(client, metric, a.selection, by), measure(client, metric, b.selection, by))
                for metric in METRICS
                if metric.shape in COMPARED
            )
        ),
        changes=tuple(changes(client, both)),
    )


def _seen(client: StoreClient, side: Side) -> Overview:
    seen = overview(client, side.selection)
    if not seen.calls and not seen.model_calls:
        begin, end = from_ns(side.selection.since_ns), from_ns(side.selection.until_ns)
        raise ReportError(f"{side.kind} {side.name}: nothing is stored of it between {begin} and {end}")
    return seen


def _sides(client: StoreClient, names: tuple[str, str], asked: Asked, now: datetime) -> tuple[Side, Side]:
    until = moment(asked.until, now) if asked.until else now
    since = moment(asked.since, now)
    if since >= until:
        raise ReportError(f"--since {asked.since} is not before --until {asked.until or 'now'}")
    within = Selection(since_ns=to_ns(since), until_ns=to_ns(until), service=asked.service)
    a, b = (side_of(client, name, within, now) for name in names)
    if a.kind != b.kind:
        raise ReportError(f"{names[0]} is a {a.kind}, {names[1]} a {b.kind}: compare two of one sort")
    if a.selection == b.selection:
        raise ReportError(f"{names[0]} and {names[1]} are the same")
    return a, b


def side_of(client: StoreClient, name: str, within: Selection, now: datetime) -> Side:
    """What one of the names stands for. Raises `ReportError` or `WindowError` when it is nothing known."""
    told, separator, rest = name.partition(":")
    if separator and told in _KINDS:
        kind, value = told, rest
        if not value:
            raise ReportError(f"{name}: nothing stands behind the colon; write {_EXAMPLES}")
    else:
        kind, value = _guessed(client, name, within), name
    if kind == "window":
        since, until = window(value, now)
        selection = replace(within, since_ns=to_ns(since), until_ns=to_ns(until))
    elif kind == "version":
        if value not in _versions(client, within):
            known = ", ".join(_versions(client, within)[:10])
            raise ReportError(f"version {value}: unknown; there is {known or 'none'}")
        selection = replace(within, service_version=value)
    else:
        selection = _of_definitions(client, value, within)
    return Side(value, kind, selection)


def _guessed(client: StoreClient, name: str, within: Selection) -> str:
    """What a bare value is. Raises `ReportError` when it is nothing, or more than one thing."""
    kinds = []
    if ".." in name:
        kinds.append("window")
    if name in _versions(client, within):
        kinds.append("version")
    if _HASH.fullmatch(name) and find(client, name):
        kinds.append("definitions")
    if not kinds:
        raise ReportError(
            f"{name}: no version, window or hash of tool definitions that is known here; write {_EXAMPLES}"
        )
    if len(kinds) > 1:
        raise ReportError(f"{name} may be {' or '.join(f'{kind}:{name}' for kind in kinds)}: say which")
    return kinds[0]


def _versions(client: StoreClient, within: Selection) -> list[str]:
    service = "" if within.service is None else " AND service = {service:String}"
    rows = client.rows(
        "SELECT DISTINCT service_version FROM steps WHERE service_version != ''"  # noqa: S608 - constants
        f" AND start_time >= fromUnixTimestamp64Nano({{since:Int64}}){service} ORDER BY service_version",
        within.parameters(),
    )
    return [str(version) for (version,) in rows]


def _of_definitions(client: StoreClient, prefix: str, within: Selection) -> Selection:
    if len(prefix) < LEAST_PREFIX:
        raise ReportError(f"definitions {prefix}: {LEAST_PREFIX} digits of the hash at least")
    found = find(client, prefix)
    if not found:
        raise ReportError(f"definitions {prefix}: no tool definitions with this hash are known")
    if len(found) > 1:
        raise ReportError(f"definitions {prefix}: {len(found)} hashes begin so; write more of it")
    return replace(within, definitions=found[0].sets, tool=found[0].tool)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as plain data."""
    return {
        "a": _side_json(comparison.a, comparison.overviews[0]),
        "b": _side_json(comparison.b, comparison.overviews[1]),
        "confidence": 1 - ALPHA,
        "tested": comparison.tested,
        "correction": "holm",
        "metrics": [_moved_json(each) for each in comparison.moved],
        "definition_changes": [
            {"at": from_ns(each.at_ns), **{k: v for k, v in asdict(each).items() if k != "at_ns"}}
            for each in comparison.changes
        ],
    }


def _side_json(side: Side, seen: Overview) -> dict[str, Any]:
    return {
        "name": side.name,
        "kind": side.kind,
        "since": from_ns(side.selection.since_ns),
        "until": from_ns(side.selection.until_ns),
        "tool": side.selection.tool,
        "overview": asdict(seen),
    }


def _moved_json(each: Moved) -> dict[str, Any]:
    told: dict[str, Any] = plain(
        {
            "name": each.metric.name,
            "title": each.metric.title,
            "unit": each.metric.unit,
            "group": dict(each.group),
            "a": each.a,
            "b": each.b,
            "total_a": each.total_a,
            "total_b": each.total_b,
            "difference": each.difference,
            "low": each.low,
            "high": each.high,
            "excludes_no_change": each.excludes_no_change,
            "p": each.p,
            "p_corrected": each.p_corrected,
            "verdict": each.direction or None,
        }
    )
    return told


def as_text(comparison: Comparison, width: int | None = None) -> str:
    """The comparison for a terminal."""
    console = Console(
        highlight=False,
        markup=False,  # names of strangers are no instructions
        emoji=False,
        no_color=True,
        width=width or (None if sys.stdout.isatty() else 120),
    )
    with console.capture() as captured:
        for part in _parts(comparison):
            console.print(part)
    return captured.get()


def _parts(comparison: Comparison) -> Iterator[Text | Table]:
    for letter, side, seen in zip("AB", (comparison.a, comparison.b), comparison.overviews, strict=True):
        about = f" (tool {side.selection.tool})" if side.selection.tool else ""
        yield Text(
            printable(
                f"{letter}: {side.kind} {side.name}{about}, {seen.sessions:,} sessions,"
                f" {seen.calls:,} tool calls, {seen.failed:,} failed"
            )
        )
    for verdict in ("worse", "better", "moved"):
        names = [_name(each) for each in comparison.moved if each.direction == verdict]
        if names:
            yield Text(f"{verdict.capitalize()}: {', '.join(names)}")
    if not any(each.direction for each in comparison.moved):
        yield Text("Nothing moved more than chance explains.")
    yield Text("")
    yield _table(comparison.moved)
    yield Text(
        f"\n{comparison.tested} comparisons, corrected by Holm: `worse` and `better` hold for all together at"
        f" {100 * (1 - ALPHA):.0f} %. `*`: the interval of this one alone excludes no change.",
        style="dim",
    )
    for change in comparison.changes:
        version = f" {change.service_version}" if change.service_version else ""
        yield Text(
            printable(
                f"{from_ns(change.at_ns)}  the definition of {change.tool} of"
                f" {change.service or '-'}{version} changed ({' and '.join(change.changed) or 'definition'})"
            )
        )


def _table(found: Sequence[Moved]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, is_number in (("metric", 0), ("A", 1), ("B", 1), ("B - A", 1), ("95 % interval", 0), ("", 0)):
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for each in found:
        table.add_row(
            _name(each),
            _value(each, each.a),
            _value(each, each.b),
            _difference(each, each.difference),
            _interval(each),
            each.direction,
        )
    return table


def _name(each: Moved) -> str:
    groups = ", ".join(printable(value, shown.MAX_NAME) or "-" for _, value in each.group)
    return f"{each.metric.title} ({groups})" if groups else each.metric.title


def _value(each: Moved, value: float | None) -> str:
    if value is None:
        return "not recorded"
    return f"{value:.3g}" if each.metric.shape is Shape.SPREAD else shown.percent(value)


def _interval(each: Moved) -> str:
    if each.low is None:
        return ""
    mark = "*" if each.excludes_no_change else ""
    return f"{_difference(each, each.low)} to {_difference(each, each.high)}{mark}"


def _difference(each: Moved, value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:+.3g}" if each.metric.shape is Shape.SPREAD else f"{100 * value:+.1f}"
