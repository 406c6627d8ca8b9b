"""What agents do after a failed tool call, and what becomes of it.

From the mission's sources: first-call success says little, what counts is the share of failures that are
healed within a budget; a retry heals by chance what an answer that fits the error heals on purpose. The
words, for one scope, which is one agent in one session:

*Failure.* A tool call with outcome `error` or `soft_error`. A call that a brake refused (`denied`) is none.
What a model thinks with a tool (`think`) is no call here.

*Attempt.* The calls of one model message (equal `attempt_id`), or calls that overlap in time where that is
not known. They count once, and none of them answers a failure of the same attempt: whoever sent it had not
seen it.

*Operation.* See `detectors.operation`: the tool; for a shell the program, its subcommand and its target.

*First response.* What the first attempt after the failure was; of several calls the first in this list
counts: `escalate` (a tool that asks a person), `retry` (the same call by `detectors.signature`), `perturb`
(the same tool, or for a shell the same program and subcommand, with other arguments), `replan` (anything
else). Waiting with a tool is no response. If no call came before a user's turn or the end of the run, it is
`escalate` when the agent handed over (its last words ask, or say that it cannot go on; before a user's turn
also when its words are not known), else `none`.

*Budget.* The next `calls` attempts at the operation, at most `retries` retries among them.

*Final state.* `recovered`: the operation succeeded within the budget. `escalate`: it did not, and the agent
asked a person. `abandoned`: neither, until the budget was gone, the agent had made `horizon_calls` calls
without coming back, the user spoke, the run ended, or nothing happened for `idle_s`. A budget that is gone
is noticed when the next attempt begins.

*Followed.* Whether the response was what the error's class prescribes. `backoff_retry`: first a retry,
after the time that the error named, else after `backoff_s` seconds or one and a half times the gap before
the failed call. `rewrite_arguments`: first a perturbation. `refresh_then_retry`: first another call, then
the operation again. `replan` and `switch_channel`: first another operation. `escalate`: a person was asked.
None: no response came, or the arguments that tell a retry from a perturbation are not known.

*Fed back.* The agent's model was called after the failed call began and before the same call came again, if
it did. *URE.* After that, the same call failed with the same class of error again.

*Spent.* Calls, tokens and cost of the agent after the failure up to the recovery, else up to the last retry
or perturbation, nothing when there was none: what an agent does after it went on to something else is not
the failure's cost. Of a streak every failure spans the ones after it; to add up, take those whose `earlier`
is 0.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, fields, replace
from enum import IntEnum, StrEnum
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from collector.step import Kind, Outcome
from detectors.errors import Prescription, retry_after_s
from detectors.handover import asks_a_person, hands_over
from detectors.operation import parts_of
from detectors.pacing import SPOKEN_NS
from detectors.role import Role

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.errors import Verdict
    from detectors.reading import Reading

KIND: Final = "recovery"
_SETTLED_KEPT: Final = 8
_UNKNOWN_KEPT: Final = 16
_GROWTH: Final = 1.5
_MOST: Final = 2**16 - 1
_MOST_TOKENS: Final = 2**40


class Response(StrEnum):
    """What an agent did after a failure, or what became of it; see the module."""

    NONE = "none"
    REPLAN = "replan"
    PERTURB = "perturb"
    RETRY = "retry"
    ESCALATE = "escalate"
    RECOVERED = "recovered"
    ABANDONED = "abandoned"


class _Did(IntEnum):
    """What one call was to a failure; the highest of an attempt counts."""

    NOTHING = 0
    REPLAN = 1
    PERTURB = 2
    RETRY = 3
    ESCALATE = 4


_RESPONSE: Final = (Response.NONE, Response.REPLAN, Response.PERTURB, Response.RETRY, Response.ESCALATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The budget and the bounds.

    `calls`: attempts at the operation within which it must succeed. `retries`: same calls among them, the
    mission's ceiling. `horizon_calls`: tool calls of the agent without coming back after which a failure
    is abandoned. `idle_s`: seconds of event time without a step after which all are. `backoff_s`: seconds
    that a retry must wait to count as one with back-off, where the error names no time. `max_open`:
    failures of one scope that are followed at once; the oldest is abandoned for a new one. `max_scopes`
    agents are known at once, and `max_failures` failures of all of them; the least recent agents go
    first.
    """

    calls: int = 5
    retries: int = 3
    horizon_calls: int = 50
    idle_s: float = 1800.0
    backoff_s: float = 2.0
    max_open: int = 16
    max_scopes: int = 50_000
    max_failures: int = 50_000

    def __post_init__(self) -> None:
        for name in ("calls", "horizon_calls", "idle_s", "max_open", "max_scopes", "max_failures"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{KIND}.{name} must be more than 0, not {getattr(self, name)!r}")
        for name in ("retries", "backoff_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{KIND}.{name} must be at least 0, not {getattr(self, name)!r}")


DEFAULT_CONFIG: Final = Config()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What became of one failed call: a row of the table `failures`; see the module for the words.

    `failed_ns` is unix nanoseconds, the end of the failed call. `earlier` counts the failures of the same
    operation that were still open when it failed: 0 for the first of a streak. `cascaded` is for others
    to say.
    """

    step_id: str
    engine_seq: int
    failed_ns: int
    session_id: str
    run_id: str
    service: str
    service_version: str
    agent: str | None
    tool: str
    operation: str
    target: str
    model: str
    error_class: str
    nature: str
    source: str
    prescription: str
    response: Response
    first_response: Response
    followed: bool | None
    recovered: bool
    fed_back: bool
    ure: bool
    earlier: int
    retries: int
    perturbations: int
    calls_to_recovery: int | None
    ns_to_recovery: int | None
    calls_spent: int
    tokens_spent: int | None
    cost_usd: float | None
    cascaded: bool = False
    revision: int = 0


@dataclass(slots=True)
class _Spent:
    """Running totals of one scope.

    `told` counts model calls that told their tokens, `priced` steps with a cost.
    """

    calls: int = 0
    tokens: int = 0
    told: int = 0
    cost: float = 0.0
    priced: int = 0


@dataclass(slots=True)
class _Open:
    """A failure that is not settled.

    `at` are the totals when it failed, `mark` those at its last retry or perturbation. `attempt_id` and
    `attempt_end_ns` tell the attempt that is going on, at first its own. `turns` counts the attempts
    after its own, `did` has the bits of what the present one was, `first` is what the first was; `tries`
    counts those at the operation, `tried` says that the present one is one. `gap_ns`: from the failure to
    the first retry; `previous_gap_ns`: from the failure of the same call before to this call. `again`:
    after another operation it came back. `moved_on`: since its last attempt at the operation the agent
    has called something else, `away` times.
    """

    step_id: str
    engine_seq: int
    start_ns: int
    failed_ns: int
    run_id: str
    service: str
    service_version: str
    tool: str
    operation: str
    op_family: str
    target: str
    model: str
    signature: int
    known: bool
    error_class: str
    nature: str
    source: str
    prescription: str
    retry_after_ns: int | None
    earlier: int
    previous_gap_ns: int | None
    attempt_id: str | None
    attempt_end_ns: int
    at: list[Any]
    mark: list[Any]
    turns: int = 0
    did: int = 0
    first: int = 0
    tries: int = 0
    tried: bool = False
    retries: int = 0
    perturbations: int = 0
    away: int = 0
    gap_ns: int | None = None
    again: bool = False
    came_again: bool = False
    fed_back: bool = False
    ure: bool = False
    asked: bool = False
    moved_on: bool = False


_OPEN_FIELDS: Final = tuple(field_.name for field_ in fields(_Open))
_RECOVERY_FIELDS: Final = tuple(field_.name for field_ in fields(Recovery))


class RecoveryTracker:
    """Follows the failed calls of one agent in one session; pure, bounded, restorable."""

    __slots__ = (
        "_after_call",
        "_config",
        "_last_end_ns",
        "_model",
        "_open",
        "_said",
        "_settled",
        "_spent",
        "_unknown",
        "agent",
        "session_id",
    )

    def __init__(self, session_id: str, agent: str | None, config: Config = DEFAULT_CONFIG) -> None:
        self.session_id = session_id
        self.agent = agent
        self._config = config
        self._open: list[_Open] = []
        self._settled: OrderedDict[str, Recovery] = OrderedDict()
        self._unknown: deque[str] = deque(maxlen=_UNKNOWN_KEPT)
        self._spent = _Spent()
        self._model = ""
        self._said: bool | None = None
        self._last_end_ns = 0
        self._after_call = False

    def __len__(self) -> int:
        """How many failures it holds: open ones, and settled ones of which more may become known."""
        return len(self._open) + len(self._settled)

    @property
    def last_end_ns(self) -> int:
        """The latest end of a step, unix nanoseconds."""
        return self._last_end_ns

    def observe(self, reading: Reading) -> list[Recovery]:
        """Take the next step of the scope; return what is settled by it, most often nothing."""
        step = reading.step
        settled: list[Recovery] = []
        if self._open and step.start_ns - self._last_end_ns > self._config.idle_s * 1e9 and self._last_end_ns:
            settled = self.end()
        kind = step.kind
        if kind is Kind.TOOL_CALL:
            settled += self._tool_call(reading)
        elif kind is Kind.MODEL_CALL:
            self._model_call(step)
        elif kind is Kind.USER_TURN:
            if not (self._after_call and step.start_ns - self._last_end_ns < SPOKEN_NS):
                settled += self._user_turn(step)
        elif kind is Kind.AGENT_RUN and step.text and self._open:
            self._said = hands_over(step.text)
        self._after_call = kind is Kind.TOOL_CALL
        self._last_end_ns = max(self._last_end_ns, step.end_ns)
        return settled

    def amend(self, reading: Reading) -> list[Recovery]:
        """Take a step again of which more is known; return what is settled by it, or to be said again."""
        step = reading.step
        if step.kind is not Kind.TOOL_CALL:
            return []
        said = self._settled.get(step.step_id)
        if said is not None:
            return self._said_again(said, reading)
        for open_ in self._open:
            if open_.step_id == step.step_id:
                if reading.failed:
                    self._describe(open_, reading)
                else:
                    self._open.remove(open_)
                return []
        if step.step_id not in self._unknown or step.outcome is Outcome.UNKNOWN:
            return []
        self._unknown.remove(step.step_id)
        settled = self._conclude(reading, count=False)
        if reading.failed:
            settled += self._begin(reading)
        return settled

    def end(self, run_id: str | None = None) -> list[Recovery]:
        """Settle what is open, of one run or of all: the run is over, or nobody will come back."""
        ended = [open_ for open_ in self._open if run_id is None or open_.run_id == run_id]
        return [self._hand_over(open_, asked=bool(self._said)) for open_ in ended]

    def move(self, session_id: str) -> list[Recovery]:
        """Belong to another session from now on; say again what was said under the old name."""
        self.session_id = session_id
        again = [
            replace(said, session_id=session_id, revision=said.revision + 1)
            for said in self._settled.values()
        ]
        for said in again:
            self._remember(said)
        return again

    def absorb(self, past: RecoveryTracker) -> list[Recovery]:
        """Take over what another scope knows, which turned out to be this one; say again what it has said."""
        again = past.move(self.session_id)
        for said in again:
            self._remember(said)
        now = _totals(self._spent)
        for open_ in past._open:
            open_.at = _less(now, _less(_totals(past._spent), open_.at))
            open_.mark = _less(now, _less(_totals(past._spent), open_.mark))
        self._open = sorted([*past._open, *self._open], key=lambda open_: (open_.failed_ns, open_.step_id))
        self._unknown.extendleft(reversed(past._unknown))
        self._last_end_ns = max(self._last_end_ns, past._last_end_ns)
        self._model = self._model or past._model
        return again + self._within_bounds()

    def snapshot(self) -> Json:
        """All state, as JSON."""
        return {
            "session_id": self.session_id,
            "agent": self.agent,
            "open": [[getattr(open_, name) for name in _OPEN_FIELDS] for open_ in self._open],
            "settled": [
                [getattr(said, name) for name in _RECOVERY_FIELDS] for said in self._settled.values()
            ],
            "unknown": list(self._unknown),
            "spent": _totals(self._spent),
            "model": self._model,
            "said": self._said,
            "last_end_ns": self._last_end_ns,
            "after_call": self._after_call,
        }

    @classmethod
    def restored(cls, state: Json, config: Config = DEFAULT_CONFIG) -> RecoveryTracker:
        """Go on from a `snapshot`. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
        saved: Any = state
        tracker = cls(saved["session_id"], saved["agent"], config)
        tracker._open = [_Open(**_by_name(_OPEN_FIELDS, values)) for values in saved["open"]]
        for values in saved["settled"]:
            told = _by_name(_RECOVERY_FIELDS, values)
            told["response"] = Response(told["response"])
            told["first_response"] = Response(told["first_response"])
            said = Recovery(**told)
            tracker._settled[said.step_id] = said
        tracker._unknown.extend(saved["unknown"])
        tracker._spent = _Spent(*saved["spent"])
        tracker._model = saved["model"]
        tracker._said = saved["said"]
        tracker._last_end_ns = saved["last_end_ns"]
        tracker._after_call = saved["after_call"]
        return tracker

    def _model_call(self, step: Step) -> None:
        spent, usage = self._spent, step.usage
        if usage.input_tokens is not None or usage.output_tokens is not None:
            spent.tokens += min((usage.input_tokens or 0) + (usage.output_tokens or 0), _MOST_TOKENS)
            spent.told += 1
        self._pay(step)
        self._model = step.model or self._model
        self._said = hands_over(step.text) if step.text and self._open else None
        for open_ in self._open:
            if not open_.came_again and step.start_ns >= open_.start_ns:
                open_.fed_back = True

    def _pay(self, step: Step) -> None:
        if step.cost_usd is not None and isfinite(step.cost_usd):
            self._spent.cost += step.cost_usd
            self._spent.priced += 1

    def _user_turn(self, step: Step) -> list[Recovery]:
        """The user speaks: what is open was handed over, or left."""
        handed = self._said is not False
        self._said = None
        before = [open_ for open_ in self._open if open_.failed_ns <= step.end_ns]
        return [self._hand_over(open_, asked=handed) for open_ in before]

    def _hand_over(self, open_: _Open, *, asked: bool) -> Recovery:
        """Settle a failure at the end; escalated if a person was asked before anything else was done."""
        if asked and not open_.moved_on:
            open_.asked = True
            if not open_.turns:
                open_.first = _Did.ESCALATE
        self._open.remove(open_)
        return self._record(open_, Response.ESCALATE if open_.asked else Response.ABANDONED)

    def _tool_call(self, reading: Reading) -> list[Recovery]:
        step = reading.step
        spent = self._spent
        self._pay(step)
        if not self._open and not reading.failed and step.outcome is not Outcome.UNKNOWN:
            spent.calls += 1
            self._said = None
            return []
        if reading.role is Role.THINK:
            return []
        spent.calls += 1
        self._said = None
        settled = self._conclude(reading, count=True) if self._open else []
        if step.outcome is Outcome.UNKNOWN:
            self._unknown.append(step.step_id)
        if reading.failed:
            settled += self._begin(reading)
        return settled

    def _conclude(self, reading: Reading, *, count: bool) -> list[Recovery]:
        """Show a call to the open failures.

        `count` is False for one that was counted when its outcome was not known.
        """
        step, call = reading.step, reading.call
        if count and reading.role is Role.WAIT and not reading.failed:
            return []
        asks = asks_a_person(step.tool or "")
        about = parts_of(step.tool or "", step.arguments)
        settled: list[Recovery] = []
        for open_ in list(self._open):
            new = _later(open_, step)
            if new is None:
                continue
            if new and self._is_over(open_):
                state: Response | None = _given_up(open_)
            else:
                if step.tool == open_.tool and not call.known:
                    open_.known = False
                did = _Did.ESCALATE if asks else _what(open_, step, call.signature, about.family)
                same = about.name == open_.operation
                if count:
                    self._count(open_, step, did, new=new, same_operation=same)
                state = self._state_after(open_, reading, did, same_operation=same)
            if state is not None:
                self._open.remove(open_)
                settled.append(self._record(open_, state, step))
        return settled

    def _is_over(self, open_: _Open) -> bool:
        """Whether a further attempt comes too late."""
        return open_.tries >= self._config.calls or open_.away >= self._config.horizon_calls

    def _count(self, open_: _Open, step: Step, did: _Did, *, new: bool, same_operation: bool) -> None:
        """Account for a call after a failure: what the attempt was, how many there were, what they cost."""
        if new:
            open_.turns += 1
            open_.did, open_.tried = 0, False
            open_.attempt_id, open_.attempt_end_ns = step.attempt_id, step.end_ns
        else:
            open_.attempt_end_ns = max(open_.attempt_end_ns, step.end_ns)
        bit = 1 << did
        known = open_.did & bit
        open_.did |= bit
        if open_.turns == 1:
            open_.first = max(open_.first, did)
        if did is _Did.ESCALATE:
            open_.asked = True
        elif did is _Did.REPLAN:
            open_.moved_on = True
            open_.away += 1
        else:
            if did is _Did.RETRY:
                open_.came_again = True
                if open_.gap_ns is None:
                    open_.gap_ns = max(0, step.start_ns - open_.failed_ns)
                open_.retries += not known
            else:
                open_.perturbations += not known
            open_.again = open_.again or open_.turns > 1
            open_.moved_on, open_.away = False, 0
            open_.mark = _totals(self._spent)
        if same_operation and not open_.tried:
            open_.tried = True
            open_.tries += 1

    def _state_after(
        self, open_: _Open, reading: Reading, did: _Did, *, same_operation: bool
    ) -> Response | None:
        """The final state that a call brings a failure to, None while it stays open."""
        within = open_.retries <= self._config.retries and open_.tries <= self._config.calls
        if same_operation and reading.step.outcome is Outcome.OK and not reading.went_wrong and within:
            return Response.RECOVERED
        verdict = reading.verdict if reading.failed and did is _Did.RETRY else None
        if (
            verdict is not None
            and open_.fed_back
            and open_.known
            and verdict.error_class == open_.error_class
        ):
            open_.ure = True
        return None if within else _given_up(open_)

    def _begin(self, reading: Reading) -> list[Recovery]:
        """Open a failure; the oldest goes when there are too many."""
        step = reading.step
        about = parts_of(step.tool or "", step.arguments)
        totals = _totals(self._spent)
        same = [open_ for open_ in self._open if open_.operation == about.name]
        gaps = [open_.gap_ns for open_ in same if open_.signature == reading.call.signature]
        open_ = _Open(
            step_id=step.step_id,
            engine_seq=step.engine_seq,
            start_ns=step.start_ns,
            failed_ns=step.end_ns,
            run_id=step.run_id,
            service=step.service,
            service_version=step.service_version,
            tool=step.tool or "",
            operation=about.name,
            op_family=about.family,
            target=step.target or "",
            model=step.model or self._model,
            signature=reading.call.signature,
            known=reading.call.known,
            error_class="",
            nature="",
            source="",
            prescription="",
            retry_after_ns=None,
            earlier=min(len(same), _MOST),
            previous_gap_ns=gaps[-1] if gaps else None,
            attempt_id=step.attempt_id,
            attempt_end_ns=step.end_ns,
            at=totals,
            mark=totals,
        )
        self._describe(open_, reading)
        self._open.append(open_)
        return self._within_bounds()

    def _within_bounds(self) -> list[Recovery]:
        """Give up the oldest failures when there are too many."""
        too_many = len(self._open) - self._config.max_open
        oldest = self._open[: max(0, too_many)]
        del self._open[: max(0, too_many)]
        return [self._record(open_, _given_up(open_)) for open_ in oldest]

    def _describe(self, open_: _Open, reading: Reading) -> None:
        """Say why a call failed and of whom it was, as far as its step tells by now."""
        step = reading.step
        verdict = _verdict(reading)
        open_.error_class, open_.nature = verdict.error_class.value, verdict.nature.value
        open_.source, open_.prescription = verdict.source, verdict.prescription.value
        after_s = retry_after_s(reading.error_text) if verdict.retry else None
        open_.retry_after_ns = None if after_s is None else int(after_s * 1e9)
        open_.service_version = step.service_version or open_.service_version
        open_.target = step.target or open_.target
        open_.run_id = step.run_id or open_.run_id

    def _said_again(self, said: Recovery, reading: Reading) -> list[Recovery]:
        """What was settled, with what is known of the failed call by now; nothing if that changes nothing."""
        step = reading.step
        if not reading.failed:
            return []
        verdict = _verdict(reading)
        now = replace(
            said,
            run_id=step.run_id or said.run_id,
            service=step.service or said.service,
            service_version=step.service_version or said.service_version,
            target=step.target or said.target,
            error_class=verdict.error_class.value,
            nature=verdict.nature.value,
            source=verdict.source,
            prescription=verdict.prescription.value,
            followed=said.followed if verdict.prescription == said.prescription else None,
        )
        if now == said:
            return []
        now = replace(now, revision=said.revision + 1)
        self._remember(now)
        return [now]

    def _record(self, open_: _Open, response: Response, by: Step | None = None) -> Recovery:
        """Settle a failure; `by` is the call that recovered it."""
        recovered = response is Response.RECOVERED and by is not None
        until = _totals(self._spent) if recovered else open_.mark
        calls, tokens, told, cost, priced = _less(until, open_.at)
        record = Recovery(
            step_id=open_.step_id,
            engine_seq=open_.engine_seq,
            failed_ns=open_.failed_ns,
            session_id=self.session_id,
            run_id=open_.run_id,
            service=open_.service,
            service_version=open_.service_version,
            agent=self.agent,
            tool=open_.tool,
            operation=open_.operation,
            target=open_.target,
            model=open_.model,
            error_class=open_.error_class,
            nature=open_.nature,
            source=open_.source,
            prescription=open_.prescription,
            response=response,
            first_response=_RESPONSE[open_.first],
            followed=_followed(open_, self._config),
            recovered=recovered,
            fed_back=open_.fed_back,
            ure=open_.ure,
            earlier=open_.earlier,
            retries=min(open_.retries, _MOST),
            perturbations=min(open_.perturbations, _MOST),
            calls_to_recovery=open_.tries if recovered else None,
            ns_to_recovery=max(0, by.end_ns - open_.failed_ns) if recovered and by is not None else None,
            calls_spent=min(calls, _MOST),
            tokens_spent=tokens if told else None,
            cost_usd=cost if priced else None,
        )
        self._remember(record)
        return record

    def _remember(self, said: Recovery) -> None:
        self._settled[said.step_id] = said
        if len(self._settled) > _SETTLED_KEPT:
            self._settled.popitem(last=False)


def _by_name(names: tuple[str, ...], values: list[Any]) -> dict[str, Any]:
    return dict(zip(names, values, strict=True))


def _totals(spent: _Spent) -> list[Any]:
    return [spent.calls, spent.tokens, spent.told, spent.cost, spent.priced]


def _less(now: list[Any], then: list[Any]) -> list[Any]:
    return [one - other for one, other in zip(now, then, strict=True)]


def _verdict(reading: Reading) -> Verdict:
    verdict = reading.verdict
    if verdict is None:
        raise ValueError("a call that did not fail has no verdict")
    return verdict


def _later(open_: _Open, step: Step) -> bool | None:
    """Whether a call begins a new attempt after a failure; None when it is no answer to it.

    `open_` knows the attempt that is going on, at first that of the failed call itself.
    """
    if step.attempt_id is not None and open_.attempt_id is not None:
        answers = step.start_ns >= open_.start_ns
        new = step.attempt_id != open_.attempt_id
    else:
        answers = step.start_ns >= open_.failed_ns
        new = step.start_ns >= open_.attempt_end_ns
    return new if answers and (new or open_.turns) else None


def _what(open_: _Open, step: Step, signature: int, family: str) -> _Did:
    """What a call that asks nobody is to a failure."""
    if step.tool == open_.tool and signature == open_.signature:
        return _Did.RETRY
    return _Did.PERTURB if family == open_.op_family else _Did.REPLAN


def _given_up(open_: _Open) -> Response:
    return Response.ESCALATE if open_.asked else Response.ABANDONED


def _followed(open_: _Open, config: Config) -> bool | None:
    """Whether the response was what the error's class prescribes; None when that cannot be told."""
    first, prescription = open_.first, open_.prescription
    if first == _Did.NOTHING:
        return None
    if prescription == Prescription.ESCALATE:
        return open_.asked
    if prescription == Prescription.REFRESH_THEN_RETRY:
        return first == _Did.REPLAN and open_.again
    if prescription in (Prescription.REPLAN, Prescription.SWITCH_CHANNEL):
        return first == _Did.REPLAN
    if not open_.known and first in (_Did.RETRY, _Did.PERTURB):
        return None
    perturbs = prescription == Prescription.REWRITE_ARGUMENTS
    return first == _Did.PERTURB if perturbs else first == _Did.RETRY and _backed_off(open_, config)


def _backed_off(open_: _Open, config: Config) -> bool:
    """Whether the first retry waited as the error asked, else for some seconds or longer than before."""
    gap = open_.gap_ns
    if gap is None:
        return False
    if open_.retry_after_ns is not None:
        return gap >= open_.retry_after_ns
    previous = open_.previous_gap_ns
    return gap >= config.backoff_s * 1e9 or (previous is not None and 0 < previous * _GROWTH <= gap)
