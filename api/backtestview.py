"""What a backtest found, for a terminal and as JSON."""

from __future__ import annotations

import dataclasses
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import shown
from api.backtest import Backtest, Side
from api.backtesting import Change, Difference, Said
from api.policyview import rule_keys
from api.printable import printable
from api.stopping import GOOD_RUN, Ending, Run, Spared, Stop
from api.window import from_ns
from control.policy import Rule

EXAMPLES: Final = 20
"""Findings of each sort of change, sessions and runs that the table shows; JSON has all."""
NOT_RECORDED: Final = "not recorded"

_TITLES: Final = {
    Change.APPEARED: "Findings that appear",
    Change.VANISHED: "Findings that vanish",
    Change.EARLIER: "Findings that come earlier",
    Change.LATER: "Findings that come later",
    Change.SEVERITY: "Findings of another severity",
    Change.KIND: "Streaks that another kind speaks for",
}
_UNBROKEN: Final = ("session", "tokens", "cost")
_WIDTH: Final = 140
_NAME: Final = 40


def as_text(result: Backtest, *, color: bool = False, width: int | None = None) -> str:
    """The result for a terminal."""
    console = Console(
        highlight=False,
        force_terminal=color,
        no_color=not color,
        width=width or (None if sys.stdout.isatty() else _WIDTH),
    )
    with console.capture() as captured:
        for part in _parts(result):
            console.print(part)
    return captured.get()


def _parts(result: Backtest) -> Iterator[Table | Text | str]:
    span = result.span
    yield Text(f"{from_ns(span.since_ns)} to {from_ns(span.until_ns)}", style="bold")
    yield Text(
        f"{result.steps:,} steps judged twice, {result.warm_up_steps:,} more for warming up"
        f" (from {from_ns(span.warm_ns)} on)"
        + (f"; {result.troubles:,} could not be judged" if result.troubles else "")
    )
    for key, value in sorted(result.said.items()):
        yield Text(printable(f"  {key} = {value}", _WIDTH))
    yield Text(_reproduced(result))
    if not result.steps:
        yield Text("Nothing was recorded in this window.")
        return
    yield ""
    yield from _findings(result)
    yield ""
    yield from _stops(result)
    yield ""
    yield from _good_runs(result)


def _reproduced(result: Backtest) -> str:
    check = result.reproduced
    if not check.stored:
        return "No findings are stored of this window, so there is nothing to check the baseline by."
    text = f"The settings in force make {check.again:,} of {check.stored:,} stored findings again"
    reasons = [
        (check.earlier, "began before what was read"),
        (len(check.missing), "were not made again"),
        (check.differing, "ended with another kind or severity"),
        (len(check.extra), "more were made than are stored"),
    ]
    told = ", ".join(f"{count:,} {reason}" for count, reason in reasons if count)
    amended = f" {result.amended:,} steps were told in pieces when they were live." if result.amended else ""
    return f"{text}{f'; {told}' if told else ''}.{amended}"


def _table(*columns: tuple[str, bool]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name, is_number in columns:
        table.add_column(
            name,
            justify="right" if is_number else "left",
            overflow="fold",
            no_wrap=name in _UNBROKEN,
        )
    return table


def _findings(result: Backtest) -> Iterator[Table | Text | str]:
    comparison = result.comparison
    if not comparison.kinds:
        yield Text("No findings under either settings.")
        return
    table = _table(
        ("kind", False), ("now", True), ("then", True), *((change.value, True) for change in Change)
    )
    for each in comparison.kinds:
        counts = (str(each.changes[change] or "-") for change in Change)
        table.add_row(each.kind, str(each.before), str(each.after), *counts)
    yield table
    if not comparison.differences:
        yield Text("No finding appears, vanishes, or moves its first alarm; what trips do is below.")
    for change in Change:
        found = [each for each in comparison.differences if change in each.changes]
        if found:
            yield ""
            yield Text(f"{_TITLES[change]} ({len(found):,})", style="bold")
            yield _examples(found)
            yield from _and_more(len(found))


def _examples(found: Sequence[Difference]) -> Table:
    table = _table(("session", False), ("tool", False), ("call", True), ("finding", False))
    for each in found[:EXAMPLES]:
        finding = each.shown
        table.add_row(
            printable(finding.session, _NAME),
            printable(finding.tool or "-", _NAME),
            _moved(each),
            Text(printable(f"{_became(each)}: {finding.summary}", 200)),
        )
    return table


def _moved(each: Difference) -> str:
    calls = [str(side.moment.call) for side in (each.before, each.after) if side is not None]
    return " → ".join(dict.fromkeys(calls))


def _became(each: Difference) -> str:
    sides = [side for side in (each.before, each.after) if side is not None]
    return " → ".join(dict.fromkeys(f"{side.severity} {side.kind}" for side in sides))


def _and_more(count: int) -> Iterator[Text]:
    if count > EXAMPLES:
        yield Text(f"and {count - EXAMPLES:,} more; --format json has all", style="dim")


def _stops(result: Backtest) -> Iterator[Table | Text]:
    if result.proposed.assumed:
        why = "no policy is configured: as if every critical finding ended its session"
    else:
        why = "by the policy"
    yield Text.assemble(("What trips would have spared", "bold"), f" ({why})")
    table = _table(
        ("", False),
        ("sessions stopped", True),
        ("calls", True),
        ("model calls", True),
        ("tokens", True),
        ("cost", True),
    )
    for name, side in (("now", result.current), ("then", result.proposed)):
        spared = Spared.sum(stop.spared for stop in side.stops)
        table.add_row(name, f"{len(side.stops):,}", *_amounts(spared))
    yield table
    stops = result.proposed.stops
    if stops:
        before = {stop.session: stop for stop in result.current.stops}
        table = _table(
            ("session", False),
            ("at call", True),
            ("now", True),
            ("calls", True),
            ("model calls", True),
            ("tokens", True),
            ("cost", True),
            ("because", False),
        )
        for stop in stops[:EXAMPLES]:
            known = before.get(stop.session)
            table.add_row(
                printable(stop.session, _NAME),
                str(stop.place.call),
                str(known.place.call) if known is not None else "-",
                *_amounts(stop.spared),
                Text(printable(stop.summary, 80)),
            )
        yield table
        yield from _and_more(len(stops))


def _amounts(spared: Spared) -> tuple[str, ...]:
    tokens, usd = spared.tokens_told, spared.usd_told
    cost = shown.money(usd)
    if usd is not None and spared.unpriced:
        cost = f"{cost} + {spared.unpriced:,} calls not priced"
    return (
        f"{spared.calls:,}",
        f"{spared.model_calls:,}",
        NOT_RECORDED if tokens is None else f"{tokens:,}",
        cost,
    )


def _good_runs(result: Backtest) -> Iterator[Table | Text]:
    yield Text.assemble(("Good runs that would have been stopped", "bold"), f" ({GOOD_RUN})")
    for name, side in (("now", result.current), ("then", result.proposed)):
        counts = Counter(run.ending for _, run in stopped_runs(side))
        told = ", ".join(f"{counts[ending]:,} {ending.value}" for ending in Ending)
        yield Text(f"{name}: {sum(counts.values()):,} runs stopped: {told}")
    good = [pair for pair in stopped_runs(result.proposed) if pair[1].ending is Ending.GOOD]
    if good:
        already = {run.run_id for _, run in stopped_runs(result.current)}
        table = _table(("session", False), ("run", False), ("stopped now", False), ("because", False))
        for stop, run in good[:EXAMPLES]:
            table.add_row(
                printable(stop.session, _NAME),
                printable(run.run_id, _NAME),
                "yes" if run.run_id in already else "no",
                Text(printable(f"{stop.kind}: {stop.summary}", 120)),
            )
        yield table
        yield from _and_more(len(good))


def stopped_runs(side: Side) -> list[tuple[Stop, Run]]:
    """The runs of which a call would have been refused, by session and run."""
    pairs = [(stop, run) for stop in side.stops for run in stop.runs.values()]
    return sorted(pairs, key=lambda pair: (pair[0].session, pair[1].run_id))


def as_json(result: Backtest) -> dict[str, Any]:
    """All of the result as plain data. Times are ISO, of places unix nanoseconds."""
    span, check, comparison = result.span, result.reproduced, result.comparison
    return {
        "since": from_ns(span.since_ns),
        "until": from_ns(span.until_ns),
        "warm_up_from": from_ns(span.warm_ns),
        "settings": dict(result.said),
        "steps": result.steps,
        "warm_up_steps": result.warm_up_steps,
        "steps_told_in_pieces": result.amended,
        "not_judged": result.troubles,
        "reproduced": {
            "stored": check.stored,
            "again": check.again,
            "differing": check.differing,
            "began_before": check.earlier,
            "missing": [dataclasses.asdict(each) for each in check.missing],
            "extra": list(check.extra),
        },
        "findings": {
            "same": comparison.same,
            "kinds": [
                {"kind": each.kind, "now": each.before, "then": each.after}
                | {change.value: count for change, count in each.changes.items()}
                for each in comparison.kinds
            ],
            "differences": [_difference(each) for each in comparison.differences],
        },
        "stops": {"now": _side(result.current), "then": _side(result.proposed)},
        "good_run": GOOD_RUN,
    }


def _difference(each: Difference) -> dict[str, Any]:
    return {
        "changes": [change.value for change in each.changes],
        "now": None if each.before is None else _said(each.before),
        "then": None if each.after is None else _said(each.after),
    }


def _said(each: Said) -> dict[str, Any]:
    told = dataclasses.asdict(each)
    return told | {"call": each.moment.call, "engine_seq": each.moment.seq}


def _side(side: Side) -> dict[str, Any]:
    endings = Counter(run.ending for _, run in stopped_runs(side))
    return {
        "findings": side.findings,
        "policy": [_rule(rule) for rule in side.policy.rules],
        "policy_assumed": side.assumed,
        "spared": _spared(Spared.sum(stop.spared for stop in side.stops)),
        "sessions": [_stop(stop) for stop in side.stops],
        "runs": {ending.value.replace(" ", "_"): endings[ending] for ending in Ending},
        "good_runs": [
            {"session": stop.session, "run": run.run_id, "finding": stop.finding_id, "kind": stop.kind}
            for stop, run in stopped_runs(side)
            if run.ending is Ending.GOOD
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return rule_keys(rule).model_dump(mode="json")


def _stop(stop: Stop) -> dict[str, Any]:
    return {
        "session": stop.session,
        "finding": stop.finding_id,
        "kind": stop.kind,
        "summary": stop.summary,
        "call": stop.place.call,
        "engine_seq": stop.place.seq,
        "tools": None if stop.tools is None else sorted(stop.tools),
        "spared": _spared(stop.spared),
        "runs": [{"run": run.run_id, "ending": run.ending.value} for run in stop.runs.values()],
    }


def _spared(spared: Spared) -> dict[str, Any]:
    return {
        "calls": spared.calls,
        "model_calls": spared.model_calls,
        "tokens": spared.tokens_told,
        "usd": spared.usd_told,
        "model_calls_without_tokens": spared.untold,
        "model_calls_without_price": spared.unpriced,
    }
