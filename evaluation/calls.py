"""Runs as the baselines and peers see them: calls one by one, with the spellings that they compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from evaluation.shared import Case, expanded, identity

USER_TURN: Final = "user_turn"


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `number` counts from 1 over the whole run.

    `typed` is tool and arguments with keys in the order given, `sorted` with keys sorted, `loose` with
    numbers and texts that spell them alike too. `back` is what came back, error or result, and whether it
    failed. `batch` numbers the model messages of the agent, `ends_batch` marks the last call of one.
    `gap_s` is the time since the call before, in seconds.
    """

    number: int
    agent: str
    tool: str
    arguments: str
    typed: str
    sorted: str
    loose: str
    failed: bool
    back: str
    text: str
    batch: int
    ends_batch: bool
    gap_s: float


Event: TypeAlias = Call | str
"""A call, or the name of an event that is none."""


class Rule(Protocol):
    """A streaming rule for one agent."""

    def call(self, call: Call) -> bool:
        """Take a call in; tell whether the rule alarms at it."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule. `by_turn`: it starts anew when the user speaks; `note`: what was left out or settled."""

    make: Callable[[], Rule]
    by_turn: bool = False
    note: str = ""


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _batches(rows: Sequence[Case]) -> list[int]:
    """The number of the model message of each row, as the converter counts them; -1 for events."""
    messages: dict[str, object] = {}
    numbers: dict[str, int] = {}
    found: list[int] = []
    for row in rows:
        if "event" in row:
            messages.clear()
            found.append(-1)
            continue
        agent = row.get("agent") or "main"
        message = row.get("message")
        if message is None or messages.get(agent) != message:
            numbers[agent] = numbers.get(agent, 0) + 1
        messages[agent] = message
        found.append(numbers[agent])
    return found


def events(case: Case) -> Iterator[Event]:
    """The calls and events of a case in order."""
    rows = expanded(case)
    batches = _batches(rows)
    last = {
        (row.get("agent") or "main", batch): at
        for at, (row, batch) in enumerate(zip(rows, batches, strict=True))
    }
    number = 0
    for at, (row, batch) in enumerate(zip(rows, batches, strict=True)):
        if "event" in row:
            yield str(row["event"])
            continue
        number += 1
        agent, tool, arguments = row.get("agent") or "main", str(row["tool"]), row.get("args")
        failed = row.get("ok") is False
        yield Call(
            number=number,
            agent=agent,
            tool=tool,
            arguments=_text(arguments),
            typed=f"{tool}\x1f{json.dumps(arguments, ensure_ascii=False)}",
            sorted=f"{tool}\x1f{json.dumps(arguments, ensure_ascii=False, sort_keys=True)}",
            loose=identity(row),
            failed=failed,
            back=_text((row.get("error") or row.get("result") or "") if failed else row.get("result") or ""),
            text=str(row.get("llm_text") or ""),
            batch=batch,
            ends_batch=last[agent, batch] == at,
            gap_s=float(row.get("dt_s") or 0.0),
        )


def first_alarm(of: Sequence[Event], entry: Entry) -> int | None:
    """The call at which a rule first alarms on a run, its agents watched apart; None when it never does."""
    watching: dict[str, Rule] = {}
    for event in of:
        if isinstance(event, str):
            if event == USER_TURN and entry.by_turn:
                watching.clear()
            continue
        if event.agent not in watching:
            watching[event.agent] = entry.make()
        if watching[event.agent].call(event):
            return event.number
    return None
