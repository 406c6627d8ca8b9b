"""Lists for people: a first line of columns, below it what is too long for a column.

On a terminal they fit its width and show what is grave in colour; elsewhere they are plain, and no line is
broken.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from api.printable import printable

_GAP: Final = "  "
_STYLES: Final = {
    "critical": "bold red",
    "halt": "bold red",
    "open": "red",
    "forced_open": "red",
    "warning": "yellow",
    "half_open": "yellow",
    "forced_closed": "yellow",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing of a list: its columns, and lines below them."""

    cells: tuple[str, ...]
    lines: tuple[str, ...] = ()


def print_list(heads: Sequence[str], entries: Sequence[Entry], console: Console | None = None) -> None:
    """Print a list under its heads."""
    console = console or Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    rows = [tuple(map(printable, entry.cells)) for entry in entries]
    widths = [max(map(cell_len, column)) for column in zip(heads, *rows, strict=True)]
    _line(console, _columns(heads, widths, "dim"))
    for entry, row in zip(entries, rows, strict=True):
        _line(console, _columns(row, widths))
        for line in entry.lines:
            _line(console, Text(printable(line)), indent=2)


def print_facts(facts: Sequence[tuple[str, str]], console: Console | None = None) -> None:
    """Print names and values; those without a value are left out."""
    console = console or Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    told = [(name, value) for name, value in facts if value]
    width = max(len(name) for name, _ in told)
    if console.soft_wrap:
        for name, value in told:
            _line(console, Text(f"{name:<{width}}{_GAP}{printable(value)}"))
        return
    grid = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, len(_GAP), 0, 0))
    for name, value in told:
        grid.add_row(Text(name, style="dim"), Text(printable(value), style=_STYLES.get(value, "")))
    console.print(grid)


def _columns(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    text = Text(style=style)
    for number, (cell, width) in enumerate(zip(cells, widths, strict=True), 1):
        text.append(cell, style=_STYLES.get(cell, ""))
        if number < len(cells):
            text.append(" " * (width - cell_len(cell)) + _GAP)
    text.rstrip()
    return text


def _line(console: Console, text: Text, indent: int = 0) -> None:
    """Print one line; where it must be broken nothing of it is lost."""
    if console.soft_wrap:
        console.print(Text(" " * indent) + text)
        return
    text.overflow = "fold"
    console.print(Padding(text, (0, 0, 0, indent), expand=False))
