"""The report's plots: SVG whose bytes depend on the figures alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS: Final = "#c2410c"
OTHERS: Final = ("#0f172a", "#475569", "#94a3b8", "#cbd5e1", "#a5b4fc")
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "recloser",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")


def alarm_rates(path: Path, groups: Sequence[str], by_rule: Mapping[str, Sequence[float]]) -> None:
    """Bars of the share of runs alarmed (0 to 1) by group, one color a rule, the first in our own."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 0.5 * len(groups) + 1))
        axes = figure.add_subplot()
        height = 0.8 / len(by_rule)
        for place, (rule, shares) in enumerate(by_rule.items()):
            color = OURS if place == 0 else OTHERS[(place - 1) % len(OTHERS)]
            tops = [at + place * height for at in range(len(groups))]
            axes.barh(tops, [100 * share for share in shares], height=height, color=color, label=rule)
        axes.set_yticks([at + 0.4 - height / 2 for at in range(len(groups))], groups)
        axes.invert_yaxis()
        axes.set_xlabel("runs alarmed, % of the reported half")
        axes.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1))
        _save(figure, path)


Point = tuple[str, float, float]
"""A rule, its recall and its precision, both from 0 to 1."""

_CHARACTER_PT: Final = 3.4  # width of a small letter, about
_LINE_PT: Final = 7.0
_PANEL_PT: Final = (330.0, 300.0)
_LEFT, _BOTTOM, _SPAN = -4.0, 38.0, (122.0, 66.0)


def scatter(path: Path, panels: Mapping[str, Mapping[str, Sequence[Point]]]) -> None:
    """Panels of recall and precision by family of rules; the first family is our own.

    Rules that say nothing have no precision and are not drawn.
    """
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 5))
        for place, (title, families) in enumerate(panels.items()):
            axes = figure.add_subplot(1, len(panels), place + 1)
            taken: list[tuple[float, float, float]] = []
            for order, (family, points) in enumerate(families.items()):
                color = (OURS, OTHERS[0], OTHERS[2])[order]
                drawn = [point for point in points if point[1] > 0]
                xs, ys = [100 * point[1] for point in drawn], [100 * point[2] for point in drawn]
                axes.scatter(xs, ys, color=color, label=family, s=22, zorder=3 - order)
                _name(axes, drawn, color, taken)
            axes.set_title(title)
            axes.set_xlabel("recall, %")
            axes.set_ylabel("precision, %")
            axes.set_xlim(_LEFT, _LEFT + _SPAN[0])
            axes.set_ylim(_BOTTOM, _BOTTOM + _SPAN[1])
            axes.set_xticks(range(0, 101, 20))
            if place == 0:
                axes.legend(frameon=False, loc="lower left")
        figure.tight_layout()
        _save(figure, path)


def _name(axes: Axes, points: Sequence[Point], color: str, taken: list[tuple[float, float, float]]) -> None:
    """Write names beside points, moved down or up by lines until none covers another."""
    for name, x, y in points:
        text = name.split(":")[0]
        left = (100 * x - _LEFT) / _SPAN[0] * _PANEL_PT[0]
        middle = (100 * y - _BOTTOM) / _SPAN[1] * _PANEL_PT[1]
        width = _CHARACTER_PT * len(text)
        lines = next(
            shift
            for shift in (0, -1, 1, *(sign * n for n in range(2, 40) for sign in (-1, 1)))
            if all(
                left > right or left + width < start
                for start, right, level in taken
                if abs(middle + shift * _LINE_PT - level) < _LINE_PT
            )
        )
        taken.append((left, left + width, middle + lines * _LINE_PT))
        axes.annotate(
            text,
            (100 * x, 100 * y),
            xytext=(5, lines * _LINE_PT - 2),
            textcoords="offset points",
            fontsize=6,
            color=color,
        )


def delays(
    path: Path, by_source: Mapping[str, Sequence[int]], *, at_least: int = -6, at_most: int = 10
) -> None:
    """Histograms of delays in calls, the outermost bars for all beyond."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 2.6 * len(by_source)))
        bins = list(range(at_least, at_most + 1))
        for place, (title, values) in enumerate(by_source.items()):
            axes = figure.add_subplot(len(by_source), 1, place + 1)
            clipped = [min(max(value, at_least), at_most) for value in values]
            axes.bar(bins, [clipped.count(value) for value in bins], color=OURS)
            axes.axvline(0, color=OTHERS[1], linewidth=0.8)
            axes.set_title(title)
            axes.set_ylabel("runs")
            axes.set_xticks(bins, _bounds(bins))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("calls")
        figure.tight_layout()
        _save(figure, path)


def _bounds(bins: Sequence[int]) -> list[str]:
    return [f"≤ {bins[0]}", *map(str, bins[1:-1]), f"≥ {bins[-1]}"]


def savings(
    path: Path, groups: Sequence[str], calls: Sequence[float], tokens: Sequence[float | None]
) -> None:
    """Bars of the share (0 to 1) of calls, and of tokens where known, spent after the first alarm."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 0.34 * len(groups) + 1))
        axes = figure.add_subplot()
        places = list(range(len(groups)))
        axes.barh(places, [100 * share for share in calls], height=0.4, color=OURS, label="calls")
        known = [
            (at + 0.4, 100 * share) for at, share in zip(places, tokens, strict=True) if share is not None
        ]
        axes.barh(
            [at for at, _ in known],
            [share for _, share in known],
            height=0.3,
            color=OTHERS[2],
            label="tokens",
        )
        axes.set_yticks(places, groups)
        axes.invert_yaxis()
        axes.set_xlabel("made after the first alarm, % of all of the reported half")
        axes.legend(frameon=False)
        _save(figure, path)
