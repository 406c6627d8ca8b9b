"""What trying a policy showed, for a terminal and as JSON."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from api import shown
from api.policytest import Tried
from api.policytrial import Opening, Told
from api.printable import printable
from api.stopping import GOOD_RUN, Ending, Run, Spared
from api.window import from_ns
from detectors.protocol import Severity

EXAMPLES: Final = 15
"""Breakers and runs that the table shows; JSON has all."""
EVERYBODY: Final = "everybody"
NOBODY: Final = "nobody"
_WIDTH: Final = 140
_NAME: Final = 40


def as_text(result: Tried, *, color: bool = False, width: int | None = None) -> str:
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


def as_json(result: Tried) -> dict[str, Any]:
    """All of the result as plain data. Times are ISO, of places unix nanoseconds."""
    openings = result.trial.openings()
    real = [each for each in openings if each.real]
    return {
        "policy": {"file": str(result.read.path), "sha256": result.read.sha256},
        "since": None if result.since_ns is None else from_ns(result.since_ns),
        "until": None if result.until_ns is None else from_ns(result.until_ns),
        "steps": result.steps,
        "warm_up_steps": result.warm_up_steps,
        "sessions": result.sessions,
        "findings": result.findings,
        "not_judged": result.troubles,
        "alerts": {
            "by_destination": [
                {"destination": name, **{each.value: counts[each] for each in Severity}}
                for name, counts in by_destination(result.trial.told())
            ],
            "all": [_told(each) for each in result.trial.told()],
        },
        "rules": [_rule(name, result) for name in _names(result)],
        "breakers": [_opening(each) for each in openings],
        "spared": _spared(Spared.sum(each.spared for each in real)),
        "runs": {ending.value.replace(" ", "_"): count for ending, count in endings(openings).items()},
        "good_runs": [
            {"session": run.session, "run": run.run_id, "rule": each.rule, "because": each.cause.summary}
            for each, run in good_runs(openings)
        ],
        "good_run": GOOD_RUN,
    }


def hit_runs(openings: Sequence[Opening]) -> list[tuple[Opening, Run]]:
    """The runs of which a call would have been refused, each once, with the breaker that came first."""
    hit: dict[tuple[str, str], tuple[Opening, Run]] = {}
    for opening in openings:
        if opening.real:
            for run in opening.runs.values():
                hit.setdefault((run.session, run.run_id), (opening, run))
    return [hit[key] for key in sorted(hit)]


def good_runs(openings: Sequence[Opening]) -> list[tuple[Opening, Run]]:
    """Those of `hit_runs` that ended well."""
    return [pair for pair in hit_runs(openings) if pair[1].ending is Ending.GOOD]


def endings(openings: Sequence[Opening]) -> dict[Ending, int]:
    """How the runs ended that would have been hit."""
    counts = Counter(run.ending for _, run in hit_runs(openings))
    return {ending: counts[ending] for ending in Ending}


def by_destination(told: Sequence[Told]) -> list[tuple[str, Counter[Severity]]]:
    """How many alerts of each severity each destination would have got, by name."""
    counts: dict[str, Counter[Severity]] = {}
    for each in told:
        names = (EVERYBODY,) if each.destinations is None else each.destinations or (NOBODY,)
        for name in names:
            counts.setdefault(name, Counter())[each.severity] += 1
    return sorted(counts.items())


def _parts(result: Tried) -> Iterator[Table | Text | str]:
    yield Text(printable(f"{result.read.path} ({result.read.sha256[:12]})", _WIDTH), style="bold")
    when = "recorded traces"
    if result.since_ns is not None and result.until_ns is not None:
        when = f"{from_ns(result.since_ns)} to {from_ns(result.until_ns)}"
    yield Text(
        f"{when}: {result.steps:,} steps of {result.sessions:,} sessions, {result.findings:,} findings"
        + (f"; {result.warm_up_steps:,} more steps for warming up" if result.warm_up_steps else "")
        + (f"; {result.troubles:,} could not be judged" if result.troubles else "")
    )
    if not result.steps:
        yield Text("Nothing was recorded in this window.")
        return
    yield ""
    yield from _alerts(result.trial.told())
    yield ""
    yield from _rules(result)
    openings = [each for each in result.trial.openings() if each.real]
    if openings:
        yield ""
        yield from _breakers(openings)
    yield ""
    yield from _runs(result.trial.openings())


def _alerts(told: Sequence[Told]) -> Iterator[Table | Text]:
    yield Text.assemble(("Alerts", "bold"), f" {len(told):,} in all")
    if not told:
        return
    table = _table("who is told", "critical#", "warning#")
    for name, counts in by_destination(told):
        table.add_row(
            printable(name, _NAME), f"{counts[Severity.CRITICAL]:,}", f"{counts[Severity.WARNING]:,}"
        )
    yield table


def _rules(result: Tried) -> Iterator[Table | Text]:
    yield Text("What each rule stops", style="bold")
    table = _table(
        "rule", "findings#", "breakers#", "in shadow#", "capped#", "sessions#", "good runs#", "calls#",
        "tokens#", "cost#",
    )  # fmt: skip
    for name in _names(result):
        row = _rule(name, result)
        spared = row["spared"]
        table.add_row(
            printable(name, _NAME),
            "-" if row["findings"] is None else f"{row['findings']:,}",
            f"{row['breakers']:,}",
            f"{row['in_shadow']:,}",
            f"{row['capped']:,}",
            f"{row['sessions']:,}",
            f"{row['good_runs']:,}",
            f"{spared['calls']:,}",
            "not recorded" if spared["tokens"] is None else f"{spared['tokens']:,}",
            shown.money(spared["usd"]),
        )
    yield table


def _breakers(openings: Sequence[Opening]) -> Iterator[Table | Text]:
    yield Text.assemble(("Breakers that would have opened", "bold"), " (those that refuse most first)")
    table = _table("scope", "strength", "rule", "calls#", "tokens#", "cost#", "because")
    for each in sorted(openings, key=lambda o: (-o.refused, o.place.seq))[:EXAMPLES]:
        tokens = each.spared.tokens_told
        table.add_row(
            printable(str(each.scope), _NAME),
            each.action.value,
            printable(each.rule, _NAME),
            f"{each.refused:,}",
            "not recorded" if tokens is None else f"{tokens:,}",
            shown.money(each.spared.usd_told),
            printable(each.cause.summary, 80),
        )
    yield table
    yield from _and_more(len(openings))


def _runs(openings: Sequence[Opening]) -> Iterator[Table | Text]:
    counts = endings(openings)
    told = ", ".join(f"{count:,} {ending.value}" for ending, count in counts.items())
    yield Text.assemble(("Runs that would have been hit", "bold"), f" {sum(counts.values()):,}: {told}")
    good = good_runs(openings)
    if good:
        yield Text(GOOD_RUN, style="dim")
        table = _table("session", "good run", "rule", "because")
        for opening, run in good[:EXAMPLES]:
            table.add_row(
                printable(run.session, _NAME),
                printable(run.run_id, _NAME),
                printable(opening.rule, _NAME),
                printable(opening.cause.summary, 80),
            )
        yield table
        yield from _and_more(len(good))


def _and_more(count: int) -> Iterator[Text]:
    if count > EXAMPLES:
        yield Text(f"and {count - EXAMPLES:,} more; --format json has all", style="dim")


def _table(*columns: str) -> Table:
    """A table; columns of numbers end in `#`."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name.removesuffix("#"), justify="right" if name.endswith("#") else "left", overflow="fold"
        )
    return table


def _names(result: Tried) -> list[str]:
    policy = result.read.policy
    return [rule.name for rule in policy.rules] + [each.name for each in policy.thresholds]


def _rule(name: str, result: Tried) -> dict[str, Any]:
    openings = [each for each in result.trial.openings() if each.rule == name]
    real = [each for each in openings if each.real]
    of_findings = any(rule.name == name for rule in result.read.policy.rules)
    return {
        "rule": name,
        "findings": result.trial.meant(name) if of_findings else None,
        "breakers": len(real),
        "in_shadow": sum(each.shadow for each in openings),
        "capped": sum(each.capped for each in openings),
        "sessions": len({session for each in real for session in each.sessions}),
        "good_runs": len(good_runs(real)),
        "spared": _spared(Spared.sum(each.spared for each in real)),
    }


def _told(each: Told) -> dict[str, Any]:
    return {
        "finding": each.finding_id,
        "kind": each.kind,
        "severity": each.severity.value,
        "session": each.session,
        "at_ns": each.place.at_ns,
        "destinations": None if each.destinations is None else list(each.destinations),
        "rules": list(each.rules),
        "summary": each.summary,
    }


def _opening(each: Opening) -> dict[str, Any]:
    return {
        "rule": each.rule,
        "scope": asdict(each.scope),
        "action": each.action.value,
        "shadow": each.shadow,
        "capped": each.capped,
        "finding": each.cause.finding_id or None,
        "kind": each.cause.kind,
        "because": each.cause.summary,
        "session": each.cause.session,
        "at_ns": each.place.at_ns,
        "until_ns": each.until_ns,
        "refused": each.refused,
        "sessions": sorted(each.sessions),
        "spared": _spared(each.spared),
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
