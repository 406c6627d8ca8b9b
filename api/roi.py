"""`recloser roi`: what a ceiling saves, by arithmetic, from numbers that are given or measured.

(calls of a session - calls under the ceiling) x price of a call x sessions a day.
"""

from __future__ import annotations

import math
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

import orjson

from api import shown
from api.config import Settings
from api.prices import read_prices
from api.report import Asked, ReportError, told_problems
from api.reportdata import plain
from api.storeaccess import opened
from api.taxing import bill
from api.window import moment, to_ns
from storage.metrics.selection import Selection
from storage.metrics.streaks import streaks

DAYS_A_MONTH: Final = 30
_DAY_S: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says; None: measure it."""

    calls: float | None = None
    price: float | None = None
    sessions_per_day: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What a ceiling saves.

    `calls` of one looping session, `price_usd` of one call; `measured` names the inputs from the store.

    >>> saved = Savings(calls=50, ceiling=3, price_usd=0.02, sessions_per_day=1279)
    >>> saved.calls_a_day, round(saved.usd_a_day, 2), round(saved.usd_a_month, 2)
    (60113, 1202.26, 36067.8)
    """

    calls: float
    ceiling: int
    price_usd: float
    sessions_per_day: float
    measured: tuple[str, ...] = ()

    @property
    def calls_a_day(self) -> float:
        """Calls beyond the ceiling in a day."""
        return max(0.0, self.calls - self.ceiling) * self.sessions_per_day

    @property
    def usd_a_day(self) -> float:
        """US dollars a day."""
        return self.calls_a_day * self.price_usd

    @property
    def usd_a_month(self) -> float:
        """US dollars in 30 days."""
        return self.usd_a_day * DAYS_A_MONTH


def roi(
    settings: Settings, given: Given, asked: Asked | None, *, ceiling: int, now: datetime, output: str
) -> int:
    """Reckon and print; `asked` is the window to measure what is not given. The exit status."""
    with told_problems() as status:
        saved = _saved(settings, given, asked, ceiling, now)
        if output == "json":
            told = {
                **asdict(saved),
                "calls_a_day": saved.calls_a_day,
                "usd_a_day": saved.usd_a_day,
                "usd_a_month": saved.usd_a_month,
            }
            text = orjson.dumps(plain(told), option=orjson.OPT_INDENT_2).decode() + "\n"
        else:
            text = as_text(saved)
        sys.stdout.write(text)
    return status.code


def _saved(settings: Settings, given: Given, asked: Asked | None, ceiling: int, now: datetime) -> Savings:
    for name, value in (
        ("--calls", given.calls),
        ("--price", given.price),
        ("--sessions-per-day", given.sessions_per_day),
    ):
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise ReportError(f"{name} must be 0 or more")
        if value is None and asked is None:
            raise ReportError(f"{name} is missing: give it, or --since to measure it")
    measured = Given() if asked is None else _measured(settings, asked, ceiling, now)
    names = ("calls", "price", "sessions_per_day")
    missing = [name for name in names if getattr(given, name) is None]
    told = {name: getattr(measured if name in missing else given, name) for name in names}
    for name, value in told.items():
        if value is None:
            why = "no tokens, or no price for these models"
            option = name.replace("_", "-")
            raise ReportError(f"--{option} cannot be measured in this window ({why}): give it")
    return Savings(
        calls=told["calls"],
        ceiling=ceiling,
        price_usd=told["price"],
        sessions_per_day=told["sessions_per_day"],
        measured=tuple(missing),
    )


def _measured(settings: Settings, asked: Asked, ceiling: int, now: datetime) -> Given:
    """Of streaks over the ceiling: their mean length, the price of a call, how many there are a day."""
    since, until = moment(asked.since, now), moment(asked.until, now) if asked.until else now
    if since >= until:
        raise ReportError(f"--since {asked.since} is not before --until {asked.until or 'now'}")
    prices = read_prices(asked.prices or settings.prices.file)
    selection = Selection(since_ns=to_ns(since), until_ns=to_ns(until), service=asked.service)
    with opened(settings) as client:
        rows = [row for row in streaks(client, selection, ceiling).iter_rows(named=True) if row["over"]]
    if not rows:
        raise ReportError("no streak went beyond the ceiling in this window: there is nothing to save")
    tax = bill(rows, prices, ceiling)
    priced = tax.over - tax.not_priced
    return Given(
        calls=tax.calls / tax.streaks,
        price=tax.usd / priced if priced and tax.usd is not None else None,
        sessions_per_day=tax.streaks / ((until - since).total_seconds() / _DAY_S),
    )


def as_text(saved: Savings) -> str:
    """The sum, line by line."""

    def source(name: str) -> str:
        return "  (measured)" if name in saved.measured else ""

    lines = (
        ("calls of a looping session", f"{saved.calls:,.4g}{source('calls')}"),
        ("ceiling", f"{saved.ceiling:,}"),
        ("price of a call", f"{shown.money(saved.price_usd)}{source('price')}"),
        ("looping sessions a day", f"{saved.sessions_per_day:,.4g}{source('sessions_per_day')}"),
        ("calls beyond the ceiling a day", f"{saved.calls_a_day:,.0f}"),
        ("saved a day", shown.money(saved.usd_a_day)),
        (f"saved in {DAYS_A_MONTH} days", shown.money(saved.usd_a_month)),
    )
    return "".join(f"{name:32}{value}\n" for name, value in lines)
