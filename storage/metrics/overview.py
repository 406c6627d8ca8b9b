"""How much there is in a window: what everything else is a share of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.metrics.calls import WENT_WRONG
from storage.metrics.metric import fetch

if TYPE_CHECKING:
    from storage.client import StoreClient
    from storage.metrics.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Counts. `tokens` and `cost_usd` are None where no step told any."""

    sessions: int
    calls: int
    failed: int
    model_calls: int
    tokens: int | None
    cost_usd: float | None
    services: int


def overview(client: StoreClient, selection: Selection) -> Overview:
    """Count. Raises `Unavailable` or `Rejected`."""
    rows = fetch(
        client,
        f"""SELECT uniqExact(session_id) AS sessions, countIf(kind = 'tool_call') AS calls,
    countIf(kind = 'tool_call' AND {WENT_WRONG}) AS failed, countIf(kind = 'model_call') AS model_calls,
    sumOrNull(input_tokens + ifNull(output_tokens, 0)) AS tokens, sumOrNull(acts.cost_usd) AS cost_usd,
    uniqExact(service) AS services
FROM acts""",  # noqa: S608 - constants
        selection,
    )
    return Overview(**rows.row(0, named=True))
