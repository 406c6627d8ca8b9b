"""`recloser backtest`: other settings over the stored history, beside the settings in force.

Two engines are shown the same steps side by side. The one with the settings in force is the baseline, not the
stored findings, which an older version may have made; how many of those it makes again is told as a check.
"""

from __future__ import annotations

import sys
import tomllib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from api.backtesting import Comparison, Place, Sayings, compare
from api.build import build_engine
from api.config import ConfigError, Settings, load, to_json
from api.judging import Judge
from api.policyfile import PolicyError, read_policy
from api.policyrules import policy_of
from api.prices import Prices, PricesError, read_prices
from api.printable import printable
from api.stopping import Run, Runs, Stop, Stops
from api.storeaccess import StoreAccessError, opened
from api.window import WindowError, moment, to_ns, window
from collector.consumer import IngestError
from collector.step import Kind, RunEnded, Step, StepEvent, StepSeen
from control.policy import Policy, Reach, Rule
from detectors.engine import Engine
from storage.client import StoreClient
from storage.history import History, StoredFinding

BAD_INPUT: Final = 2
WARM_UP: Final = "6h"
"""How long before the window steps are shown without counting: as long as engines remember idle scopes."""
SESSIONS_COUNTED: Final = 50_000
ANY_CRITICAL: Final = Policy(rules=(Rule(name="any critical finding", reach=Reach.SESSION),))
"""What is taken for the policy when none is configured."""

_OF_POLICY: Final = ("policy", "policy_file", "escalate_after")
_PROGRESS_EVERY: Final = 256
_FORGET_EVERY: Final = 4_096
_DAY_NS: Final = 86_400 * 10**9


class BacktestError(Exception):
    """What was asked for cannot be run; the message names it."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The settings in force, those to try, and what the file says of detectors, by dotted key."""

    current: Settings
    proposed: Settings
    said: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: the window, from `since_ns` until before `until_ns`, and the warm-up before it."""

    warm_ns: int
    since_ns: int
    until_ns: int


@dataclass(frozen=True, slots=True)
class Reproduced:
    """How many of the window's stored findings the baseline makes again, by id.

    `differing` of these have another kind or severity in the end, `earlier` began before what was read and
    cannot be made again, `missing` were not made again, `extra` are ids of the baseline that are not stored.
    """

    stored: int
    again: int
    differing: int
    earlier: int
    missing: tuple[StoredFinding, ...]
    extra: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """What the findings under one of the two settings would have stopped."""

    policy: Policy
    assumed: bool
    stops: tuple[Stop, ...]
    findings: int


@dataclass(frozen=True, slots=True)
class Backtest:
    """The result. `amended` steps were told in pieces when they were live; the store has the whole."""

    span: Span
    said: Mapping[str, object]
    steps: int
    warm_up_steps: int
    amended: int
    troubles: int
    comparison: Comparison
    reproduced: Reproduced
    current: Side
    proposed: Side


def backtest(
    store: Settings,
    current: Settings,
    config: Path,
    *,
    now: datetime,
    since: str,
    within: str | None,
    warm_up: str,
    output: str,
    prices: Path | None,
) -> int:
    """Run the settings of `config` over what is stored, print what would be different; the exit status."""
    from api.backtestview import as_json, as_text

    try:
        proposal = propose(current, config)
        read = span_of(now, since, within, warm_up)
        table = read_prices(prices or current.prices.file)
        with opened(store) as client:
            result = run(client, proposal, read, table, Console(stderr=True))
    except (BacktestError, ConfigError, WindowError, PricesError, StoreAccessError) as error:
        sys.stderr.write("".join(f"recloser: {printable(line)}\n" for line in str(error).splitlines()))
        return BAD_INPUT
    except IngestError as error:
        sys.stderr.write(f"recloser: the store did not answer: {printable(str(error), 300)}\n")
        return BAD_INPUT
    if output == "json":
        sys.stdout.write(orjson.dumps(as_json(result), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        sys.stdout.write(as_text(result, color=sys.stdout.isatty()))
    return 0


def propose(current: Settings, config: Path) -> Proposal:
    """Lay a file over the settings in force: what it does not say stays; it wins over the environment.

    Only its `detectors`, `policy`, `policy_file` and `escalate_after` count. Raises `ConfigError` that names
    file and key.
    """
    told = read_toml(config)
    try:
        checked = load(told, None)
        changes: dict[str, object] = {"detectors": _merged(current.detectors, told.get("detectors", {}))}
        changes |= {name: getattr(checked, name) for name in _OF_POLICY if name in told}
        if "policy" in told or "policy_file" in told:  # one takes the other's place
            changes |= {"policy": checked.policy, "policy_file": checked.policy_file}
        proposed = current.model_copy(update=changes)
        build_engine(proposed)
        _policy(proposed)
    except ConfigError as error:
        raise ConfigError("\n".join(f"{config}: {line}" for line in str(error).splitlines())) from error
    said = {key: told[key] for key in _OF_POLICY if key in told}
    return Proposal(current, proposed, dict(_flat("detectors", told.get("detectors", {}))) | said)


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file. Raises `ConfigError` that names it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(one)
    for key, value in other.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged


def _flat(prefix: str, told: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    for key, value in told.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{prefix}.{key}", value)
        else:
            yield f"{prefix}.{key}", value


def _policy(settings: Settings) -> tuple[Policy, bool]:
    """The policy, and whether it is assumed because none is configured."""
    plain: Any = to_json(settings)
    try:
        if settings.policy_file is not None:
            return read_policy(settings.policy_file, None, settings.escalate_after).policy, False
        policy = policy_of(plain["policy"], settings.escalate_after)
    except (PolicyError, ValueError) as error:
        raise ConfigError(str(error)) from error
    return (policy, False) if policy.rules else (ANY_CRITICAL, True)


def span_of(now: datetime, since: str, within: str | None, warm_up: str) -> Span:
    """What to read. Raises `WindowError`."""
    begin, end = window(within, now) if within is not None else (moment(since, now), now)
    if begin >= end:
        raise WindowError(f"--since {since} is not in the past")
    warm = moment(warm_up, begin)
    if warm > begin:
        raise WindowError(f"--warm-up {warm_up} ends after the window begins: write an age such as 6h")
    return Span(to_ns(warm), to_ns(begin), to_ns(end))


class _Calls:
    """How many tool calls each session has made; the least recent sessions go first."""

    def __init__(self) -> None:
        self._made: OrderedDict[str, int] = OrderedDict()

    def take(self, step: Step) -> int:
        made = self._made.pop(step.session_id, 0) + (step.kind is Kind.TOOL_CALL)
        self._made[step.session_id] = made
        if len(self._made) > SESSIONS_COUNTED:
            self._made.popitem(last=False)
        return made


@dataclass(slots=True)
class _Arm:
    """One engine, what it says, and what that would stop."""

    engine: Engine
    judge: Judge
    stops: Stops
    sayings: Sayings = field(default_factory=Sayings)

    def take(self, step: Step, run: Run, place: Place) -> None:
        self.stops.spend(step, run, counted=place.inside)
        for finding, _ in self.judge.apply(StepSeen(step)):
            self.sayings.take(finding, place)
            self.stops.found(finding, place)


class Replay:
    """Shows a history to two engines, one event at a time."""

    def __init__(self, proposal: Proposal, since_ns: int, prices: Prices) -> None:
        def price(step: Step) -> float | None:
            return price_of(step, prices)

        self._since_ns = since_ns
        self.troubles = self.steps = self.warm_up_steps = self.amended = 0
        self.policies = (_policy(proposal.current), _policy(proposal.proposed))
        engines = (build_engine(proposal.current), build_engine(proposal.proposed))
        self._arms = tuple(
            _Arm(engine, Judge(engine, self._trouble), Stops(policy, price))
            for engine, (policy, _) in zip(engines, self.policies, strict=True)
        )
        self._runs = Runs()
        self._calls = _Calls()

    @property
    def current(self) -> _Arm:
        """The engine with the settings in force."""
        return self._arms[0]

    @property
    def proposed(self) -> _Arm:
        """The engine with the settings to try."""
        return self._arms[1]

    def apply(self, event: StepEvent) -> None:
        """Take one event in."""
        match event:
            case StepSeen(step):
                self._observe(step)
            case RunEnded():
                self._runs.end(event)
                for arm in self._arms:
                    arm.judge.apply(event)

    def _observe(self, step: Step) -> None:
        inside = step.start_ns >= self._since_ns
        if inside:
            self.steps += 1
            self.amended += step.revision > 0
        else:
            self.warm_up_steps += 1
        place = Place(step.engine_seq, self._calls.take(step), step.end_ns, inside)
        run = self._runs.take(step)
        for arm in self._arms:
            arm.take(step, run, place)
        if (self.steps + self.warm_up_steps) % _FORGET_EVERY == 0:
            for arm in self._arms:
                arm.engine.forget_changes()

    def _trouble(self, what: str, error: Exception) -> None:
        del what, error
        self.troubles += 1


def run(client: StoreClient, proposal: Proposal, read: Span, prices: Prices, terminal: Console) -> Backtest:
    """Show what is stored to both engines and compare. Raises `Unavailable` or `Rejected`."""
    history = History(client, read.warm_ns, read.until_ns)
    replay = Replay(proposal, read.since_ns, prices)
    for event in watched(history.events(), history.count(), terminal):
        replay.apply(event)
    near = History(client, read.warm_ns, read.until_ns + _DAY_NS)
    current, proposed = replay.current, replay.proposed
    return Backtest(
        span=read,
        said=proposal.said,
        steps=replay.steps,
        warm_up_steps=replay.warm_up_steps,
        amended=replay.amended,
        troubles=replay.troubles,
        comparison=compare(current.sayings.all(), proposed.sayings.all()),
        reproduced=_reproduced(near.findings(), current.sayings, read),
        current=_side(current, *replay.policies[0]),
        proposed=_side(proposed, *replay.policies[1]),
    )


def _side(arm: _Arm, policy: Policy, assumed: bool) -> Side:  # noqa: FBT001 - the pair that `_policy` returns
    inside = sum(each.moment.inside for each in arm.sayings.all())
    return Side(policy, assumed, tuple(arm.stops.all()), inside)


def _reproduced(stored: Iterator[StoredFinding], sayings: Sayings, read: Span) -> Reproduced:
    """Compare the stored findings with what the baseline says: equal evidence has an equal id."""
    made = {each.id: each for each in sayings.all()}
    known: set[str] = set()
    missing: list[StoredFinding] = []
    count = again = differing = earlier = 0
    for finding in stored:
        known.add(finding.id)
        if not read.since_ns <= finding.detected_ns < read.until_ns:
            continue
        count += 1
        same = made.get(finding.id)
        if same is not None:
            again += 1
            differing += (same.kind, same.severity) != (finding.kind, finding.severity)
        elif finding.started_ns < read.warm_ns:
            earlier += 1
        else:
            missing.append(finding)
    extra = tuple(each.id for each in made.values() if each.first.inside and each.id not in known)
    return Reproduced(count, again, differing, earlier, tuple(missing), extra)


def price_of(step: Step, prices: Prices) -> float | None:
    """US dollars of a model call: what was recorded, else what the table says."""
    if step.cost_usd is not None:
        return step.cost_usd
    usage = step.usage
    return prices.usd(step.model or "", usage.input_tokens or 0, usage.output_tokens or 0, 1)


def watched(events: Iterator[StepEvent], total: int, terminal: Console) -> Iterator[StepEvent]:
    """The events, with a bar on a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("steps", total=total or None)
        for number, event in enumerate(events, start=1):
            if number % _PROGRESS_EVERY == 0:
                progress.update(task, completed=min(number, total))
            yield event
