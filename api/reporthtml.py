"""The report as one page that needs nothing else: tables, and plots as SVG inside it.

Names of tools, agents and sessions come from strangers: all text is escaped, and what is drawn goes through
matplotlib with its markup switched off.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure

from api import shown
from api.printable import printable
from api.reportdata import Report, summary
from api.window import from_ns
from storage.metrics.metric import NOT_RECORDED, Measured, Shape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOR: Final = "#c2410c"
_GREY: Final = "#94a3b8"
_MOST_BARS: Final = 20
_MOST_ROWS: Final = 200
_LABEL: Final = 40  # characters
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "recloser",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_CSS: Final = """
body { font: 15px/1.5 system-ui, sans-serif; color: #0f172a }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin: 2rem 0 .2rem }
p { margin: .2rem 0 .6rem } .quiet { color: #64748b }
table { border-collapse: collapse; margin: .5rem 0 }
th { text-align: left; font-weight: 600; color: #475569 }
th, td { padding: .2rem 1rem .2rem 0; border-bottom: 1px solid #e2e8f0; vertical-align: top }
td { overflow-wrap: anywhere } svg { max-width: 100%; height: auto }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
"""


def page(report: Report) -> str:
    """The whole page; equal reports give equal bytes."""
    window = f"{from_ns(report.selection.since_ns)} to {from_ns(report.selection.until_ns)}"
    body = "\n".join(_body(report))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>Recloser report, {_text(window)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n"
        f"<h1>Recloser report</h1>\n<p>{_text(window)}</p>\n<p>{_text(summary(report))}</p>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _text(text: object) -> str:
    return escape(printable(str(text)))


def _body(report: Report) -> Iterator[str]:
    single = [each for each in report.metrics if not each.by and not each.metric.keys]
    told = [each for each in single if each.recorded and each.metric.shape in (Shape.SHARE, Shape.RATIO)]
    if told:
        rows = [each.table.row(0, named=True) for each in told]
        yield _bars([each.metric.title for each in told], rows)
    if single:
        yield _headline(single)
    for measured in report.metrics:
        if measured.by or measured.metric.keys:
            yield from _grouped(measured)
    yield from _tax(report)
    yield from _changes(report)


def _headline(measured: Sequence[Measured]) -> str:
    rows = []
    for each in measured:
        row = each.table.row(0, named=True) if each.recorded else None
        cells = (
            (NOT_RECORDED, "", f"needs {each.metric.needs}")
            if row is None
            else (
                shown.value(each.metric, row),
                shown.interval(each.metric, row),
                shown.counted(each.metric, row),
            )
        )
        rows.append((each.metric.title, *cells, each.metric.definition))
    return _table(("metric", "value", "95 % interval", "of", "definition"), rows, numbers={1})


def _grouped(measured: Measured) -> Iterator[str]:
    metric = measured.metric
    yield f"<h2>{_text(metric.title)}</h2>\n<p>{_text(metric.definition)}</p>"
    if not measured.recorded:
        yield f'<p class="quiet">{_text(shown.missing(metric))}</p>'
        return
    rows = measured.table.to_dicts()
    most = sorted(rows, key=lambda row: -shown.weight(metric, row))
    if metric.shape in (Shape.SHARE, Shape.RATIO, Shape.ESTIMATE):
        drawn = [row for row in rows if row in most[:_MOST_BARS]]
        yield _bars([", ".join(shown.group(measured, row)) for row in drawn], drawn)
    columns = (*measured.by, *metric.keys)
    kept = rows if len(rows) <= _MOST_ROWS else most[:_MOST_ROWS]
    yield _table(
        (*columns, "value", "95 % interval", "of"),
        [
            (
                *shown.group(measured, row),
                shown.value(metric, row),
                shown.interval(metric, row),
                shown.counted(metric, row),
            )
            for row in kept
        ],
        numbers={len(columns)},
    )
    if len(kept) < len(rows):
        yield f'<p class="quiet">and {len(rows) - len(kept)} more; --format json has all</p>'


def _tax(report: Report) -> Iterator[str]:
    tax = report.tax
    yield "<h2>Doom-loop tax</h2>"
    yield (
        f"<p>{tax.over:,} of {tax.calls:,} calls of {tax.streaks:,} streaks were beyond the ceiling of"
        f" {tax.ceiling}: {shown.money(tax.usd)}"
        f"{f', {tax.not_priced:,} calls not priced' if tax.not_priced and tax.usd is not None else ''}.</p>"
    )
    if tax.models:
        yield _table(
            ("model", "calls", "over", "input tokens", "output tokens", "cost"),
            [
                (
                    printable(each.model, shown.MAX_NAME) or "-",
                    f"{each.calls:,}",
                    f"{each.over:,}",
                    f"{each.input_tokens:,}",
                    f"{each.output_tokens:,}",
                    shown.money(each.usd),
                )
                for each in tax.models
            ],
            numbers={1, 2, 3, 4, 5},
        )


def _changes(report: Report) -> Iterator[str]:
    yield "<h2>Tool definitions that changed</h2>"
    if not report.changes:
        yield '<p class="quiet">None.</p>'
        return
    yield _table(
        ("at", "service", "version", "tool", "what", "before", "after"),
        [
            (
                from_ns(each.at_ns),
                printable(each.service, shown.MAX_NAME),
                printable(each.service_version, shown.MAX_NAME),
                printable(each.tool, shown.MAX_NAME),
                " and ".join(each.changed),
                each.before,
                each.after,
            )
            for each in report.changes
        ],
        numbers=set(),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], numbers: set[int]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    marks = ['<td class="n">' if place in numbers else "<td>" for place in range(len(columns))]
    lines = (
        "".join(
            ("<tr>", *(f"{mark}{_text(cell)}</td>" for mark, cell in zip(marks, row, strict=True)), "</tr>")
        )
        for row in rows
    )
    return f"<table>\n<tr>{head}</tr>\n" + "\n".join(lines) + "\n</table>"


def _bars(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    """Shares as bars with their intervals, 0 to 100 %."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 0.28 * len(rows) + 0.8))
        axes = figure.add_subplot()
        places = list(range(len(rows)))
        axes.barh(places, [100 * row["value"] for row in rows], color=_COLOR, height=0.6)
        _whiskers(axes, rows)
        axes.set_yticks(places, [printable(name, _LABEL) for name in names])
        axes.invert_yaxis()
        axes.set_xlim(0, 100)
        axes.set_xlabel("%")
        return _svg(figure)


def _whiskers(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    for place, row in enumerate(rows):
        if row.get("low") is not None and row.get("high") is not None:
            axes.plot([100 * row["low"], 100 * row["high"]], [place, place], color=_GREY, linewidth=2)


def _svg(figure: Figure) -> str:
    sink = io.StringIO()
    with warnings.catch_warnings():
        # Letters that the font has not got are only measured here; the browser draws them with its own.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    text = sink.getvalue()
    # Inside a page there is no place for the declaration, nor for metadata that names addresses.
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
