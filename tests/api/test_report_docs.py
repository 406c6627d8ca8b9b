"""What docs/report.md says of metrics is what there is."""

from __future__ import annotations

import re
from pathlib import Path

from storage.metrics.catalog import METRICS
from storage.metrics.selection import DIMENSIONS

TEXT = (Path(__file__).parents[2] / "docs/report.md").read_text(encoding="utf-8")


def test_every_metric_has_a_row() -> None:
    rows = {name for line in TEXT.splitlines() if line.startswith("| `") for name in _names(line)}
    assert {metric.name for metric in METRICS} == rows


def test_every_column_to_group_by_is_named() -> None:
    assert all(f"`{name}`" in TEXT for name in DIMENSIONS)


def _names(line: str) -> list[str]:
    return re.findall(r"`([a-z_]+)`", line.split("|")[1])
