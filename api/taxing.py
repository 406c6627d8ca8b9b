"""The doom-loop tax of a window: calls and tokens beyond the ceiling, in money where there is a price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from api.prices import Prices


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxOfModel:
    """What streaks of one model cost beyond the ceiling; `usd` None: not priced."""

    model: str
    streaks: int
    calls: int
    over: int
    input_tokens: int
    output_tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxBill:
    """The whole tax.

    `usd` is the sum of what is priced, None: nothing is; `not_priced` are calls beyond the ceiling without
    a price; `sessions` had a streak over the ceiling.
    """

    ceiling: int
    sessions: int
    streaks: int
    calls: int
    over: int
    usd: float | None
    not_priced: int
    models: tuple[TaxOfModel, ...]


def bill(streaks: Iterable[Mapping[str, Any]], prices: Prices, ceiling: int) -> TaxBill:
    """Add up streaks, rows of `storage.metrics.streaks`, most expensive models first."""
    rows = list(streaks)
    grouped: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        grouped[row["model"]].append(row)
    models = [_of_model(model, of_model, prices) for model, of_model in grouped.items()]
    over = sum(row["over"] for row in rows)
    not_priced = sum(each.over for each in models if each.usd is None)
    return TaxBill(
        ceiling=ceiling,
        sessions=len({row["session_id"] for row in rows if row["over"]}),
        streaks=len(rows),
        calls=sum(row["calls"] for row in rows),
        over=over,
        usd=None if over and over == not_priced else sum(each.usd or 0.0 for each in models),
        not_priced=not_priced,
        models=tuple(sorted(models, key=lambda each: (-(each.usd or 0.0), -each.over, each.model))),
    )


def _of_model(model: str, rows: list[Mapping[str, Any]], prices: Prices) -> TaxOfModel:
    over = sum(row["over"] for row in rows)
    taxed = [row for row in rows if row["over"]]
    tokens_in = sum(row["input_tokens"] for row in taxed)
    tokens_out = sum(row["output_tokens"] for row in taxed)
    return TaxOfModel(
        model=model,
        streaks=len(rows),
        calls=sum(row["calls"] for row in rows),
        over=over,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        usd=prices.usd(model, tokens_in, tokens_out, over),
    )
