"""All metrics, in the order in which they are shown."""

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
