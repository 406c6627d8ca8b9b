"""All metrics, in the order in which they are shown.

A new one is a query and a `Metric` in the file of its family, a row in docs/report.md, and a test with a
value worked out by hand in tests/storage/test_metrics.py.
"""

from __future__ import annotations

from typing import Final

from storage.metrics import calls, recovery, tasks, tokens
from storage.metrics.metric import Metric

METRICS: Final[tuple[Metric, ...]] = (
    *recovery.METRICS,
    *calls.METRICS,
    *tasks.METRICS,
    *tokens.METRICS,
)
BY_NAME: Final = {metric.name: metric for metric in METRICS}
