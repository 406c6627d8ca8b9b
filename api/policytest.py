"""`recloser policy test`: a policy over what is stored or recorded: whom it tells, what it stops and hits."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console

from api.analyze import Analysis, Problems
from api.backtest import price_of, span_of, watched
from api.backtesting import Place
from api.build import build_engine
from api.config import ConfigError, Settings, to_json
from api.judging import Judge
from api.policyfile import PolicyError, PolicyFile, read_policy
from api.policyrules import destinations_of
from api.policytrial import Trial
from api.prices import Prices, PricesError, read_prices
from api.printable import printable
from api.stopping import Runs
from api.storeaccess import StoreAccessError, opened
from api.window import WindowError
from collector.consumer import IngestError
from collector.receivers.files import read_files
from collector.step import RunEnded, Step, StepEvent, StepSeen
from detectors.catalog import tool_policy
from detectors.reading import Lens
from storage.history import History

TOO_MANY: Final = 1
BAD_INPUT: Final = 2
_FORGET_EVERY: Final = 4_096


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to try: the file, on which history.

    `against` is a window or an age, `files` recorded traces instead of it. `max_good_runs`: with more good
    runs hit the status is 1; None: never.
    """

    file: Path
    against: str
    files: tuple[Path, ...] = ()
    warm_up: str = "6h"
    prices: Path | None = None
    max_good_runs: int | None = None
    output: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The result. `since_ns` and `until_ns` are the window's, None for recorded traces."""

    read: PolicyFile
    trial: Trial
    since_ns: int | None
    until_ns: int | None
    steps: int
    warm_up_steps: int
    sessions: int
    findings: int
    troubles: int
    bad_input: int


class Replay:
    """Shows a history to the engine with the settings in force, and what it finds to a policy."""

    def __init__(self, settings: Settings, trial: Trial, since_ns: int) -> None:
        self._engine = build_engine(settings)
        self._judge = Judge(self._engine, self._trouble)
        self._lens = Lens(tool_policy(settings.detectors))
        self._trial = trial
        self._since_ns = since_ns
        self._runs = Runs()
        self._place = Place(0, 0, 0, inside=False)
        self._sessions: set[str] = set()
        self._findings: set[str] = set()
        self.steps = self.warm_up_steps = self.troubles = 0

    @property
    def sessions(self) -> int:
        """How many sessions there were in the window."""
        return len(self._sessions)

    @property
    def findings(self) -> int:
        """How many findings there were, those of the warm-up included."""
        return len(self._findings)

    def apply(self, event: StepEvent) -> None:
        """Take one event in."""
        if isinstance(event, StepSeen):
            self._see(event.step)
        for finding, _ in self._judge.apply(event):
            self._findings.add(finding.id)
            self._trial.found(finding, self._place)
        if isinstance(event, RunEnded):
            self._runs.end(event)

    def _see(self, step: Step) -> None:
        inside = step.start_ns >= self._since_ns
        if inside:
            self.steps += 1
            self._sessions.add(step.session_id)
        else:
            self.warm_up_steps += 1
        self._place = Place(step.engine_seq, 0, step.end_ns, inside)
        self._trial.take(self._lens.read(step), self._runs.take(step), self._place)
        if (self.steps + self.warm_up_steps) % _FORGET_EVERY == 0:
            self._engine.forget_changes()

    def _trouble(self, what: str, error: Exception) -> None:
        del what, error
        self.troubles += 1


def policy_test(settings: Settings, asked: Asked, now: datetime) -> int:
    """Try a policy and print what it would have done; return the exit status."""
    from api.policytestview import as_json, as_text, good_runs

    try:
        read = read_policy(asked.file, known_destinations(settings), settings.escalate_after)
        prices = read_prices(asked.prices or settings.prices.file)
        result = run(settings, asked, read, prices, now)
    except (PolicyError, ConfigError, WindowError, PricesError, StoreAccessError) as error:
        return refuse(str(error))
    except IngestError as error:
        return refuse(f"the store did not answer: {printable(str(error), 300)}")
    if asked.output == "json":
        sys.stdout.write(orjson.dumps(as_json(result), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(as_text(result, color=sys.stdout.isatty()))
    if result.bad_input:
        return BAD_INPUT
    hit = len(good_runs(result.trial.openings()))
    return TOO_MANY if asked.max_good_runs is not None and hit > asked.max_good_runs else 0


def policy_check(settings: Settings, file: Path) -> int:
    """Check a policy file and say what is in it; return the exit status."""
    known = known_destinations(settings)
    try:
        policy = read_policy(file, known, settings.escalate_after).policy
    except PolicyError as error:
        return refuse(str(error))
    counts = {
        "rule": len(policy.rules),
        "threshold": len(policy.thresholds),
        "budget": len(policy.budgets),
        "mode": len(policy.modes),
    }
    told = ", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n)
    sys.stdout.write(f"{printable(str(file))}: fine: {told or 'it stops nothing'}\n")
    named = sorted({name for rule in policy.rules for name in rule.alert or ()})
    if known is None and named:
        names = printable(", ".join(named), 200)
        sys.stderr.write(
            f"recloser: destinations were not checked ({names}): no --config says which there are\n"
        )
    return 0


def known_destinations(settings: Settings) -> tuple[str, ...] | None:
    """The names that may be told; None, any name, while the settings name nobody at all."""
    plain: Any = to_json(settings)
    return tuple(sorted(destinations_of(plain))) or None


def refuse(message: str) -> int:
    """Say on standard error what is wrong; return the exit status for that."""
    sys.stderr.write("".join(f"recloser: {printable(line, 1000)}\n" for line in message.splitlines()))
    return BAD_INPUT


def run(settings: Settings, asked: Asked, read: PolicyFile, prices: Prices, now: datetime) -> Tried:
    """Try a policy. Raises `WindowError`, `ConfigError`, `StoreAccessError`, and what the store raises."""
    trial = Trial(read.policy, lambda step: price_of(step, prices))
    problems = Problems(sys.stderr)
    if asked.files:
        since_ns, until_ns = None, None
        replay = Replay(settings, trial, 0)
        _apply(replay, Analysis(settings, problems).events(read_files(asked.files, problems)))
    else:
        window = asked.against if ".." in asked.against else None
        span = span_of(now, asked.against, window, asked.warm_up)
        since_ns, until_ns = span.since_ns, span.until_ns
        replay = Replay(settings, trial, span.since_ns)
        with _history(settings, span.warm_ns, span.until_ns) as events:
            _apply(replay, events)
    return Tried(
        read=read,
        trial=trial,
        since_ns=since_ns,
        until_ns=until_ns,
        steps=replay.steps,
        warm_up_steps=replay.warm_up_steps,
        sessions=replay.sessions,
        findings=replay.findings,
        troubles=replay.troubles,
        bad_input=problems.count,
    )


@contextmanager
def _history(store: Settings, since_ns: int, until_ns: int) -> Iterator[Iterable[StepEvent]]:
    with opened(store) as client:
        history = History(client, since_ns, until_ns)
        yield watched(history.events(), history.count(), Console(stderr=True))


def _apply(replay: Replay, events: Iterable[StepEvent]) -> None:
    for event in events:
        replay.apply(event)
