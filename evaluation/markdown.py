"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; None is an empty cell."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    lines += ["| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def calls(value: float | None) -> str:
    """A median of calls: whole when it is."""
    if value is None:
        return "none"
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.1f}"
