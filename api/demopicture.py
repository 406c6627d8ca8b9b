"""What `recloser demo` shows: the agents, and below them the story of the one that is stuck.

Everything here takes facts and makes something that rich prints at any width from 40 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from api.demofleet import Agent, Spent

ROOMY: Final = 80  # columns from which there is room to say what each agent does
DOLLARS_PER_MILLION: Final = 3.0  # tokens; what a middling hosted model takes for input
MARKS: Final = {"stuck": ("✖", "bold red"), "stopped": ("■", "bold green"), "done": ("✓", "dim")}


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the story; `at` is in seconds since the fleet started, None for what has no time."""

    at: float | None
    label: str
    text: str
    style: str = ""


def story_line(event: Event) -> Table:
    """A line of the story on its own, as a log shows it."""
    grid = _grid()
    _add(grid, event)
    return grid


def agents_table(agents: Sequence[Agent], width: int) -> Table:
    """Who does what, and how far each has come."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    table.add_column("agent", no_wrap=True)
    table.add_column("calls", justify="right")
    table.add_column("failed", justify="right")
    table.add_column("state", no_wrap=True)
    if width >= ROOMY:
        table.add_column("what it does", no_wrap=True, style="dim")
    for agent in agents:
        mark, style = MARKS.get(agent.state, ("•", ""))
        row = [
            Text(f"{mark} {agent.name}", style=style),
            Text(str(agent.calls)),
            Text(str(agent.failures)),
            Text(agent.state, style=style),
        ]
        table.add_row(*row, *([agent.about] if width >= ROOMY else []))
    return table


def picture(agents: Sequence[Agent], events: Sequence[Event], width: int) -> Group:
    """The whole screen."""
    parts: list[RenderableType] = [agents_table(agents, width)]
    if events:
        grid = _grid()
        for event in events:
            _add(grid, event)
        parts += [Text(), grid]
    return Group(*parts)


def bill(spent: Spent) -> str:
    """A run's calls, tokens and what those cost, at an assumed price.

    >>> bill(Spent(401, 3_581_900))
    '401 calls, 3,581,900 tokens, $10.75'
    """
    dollars = spent.tokens / 1e6 * DOLLARS_PER_MILLION
    return f"{spent.calls} calls, {spent.tokens:,} tokens, ${dollars:.2f}"


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", no_wrap=True, style="dim", min_width=6)
    grid.add_column(no_wrap=True, min_width=7)
    grid.add_column(overflow="fold")
    return grid


def _add(grid: Table, event: Event) -> None:
    at = "" if event.at is None else f"{event.at:.1f} s"
    grid.add_row(at, Text(event.label, style=f"bold {event.style}".rstrip()), Text(event.text))
