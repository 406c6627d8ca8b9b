"""Labelled cases as steps: what a reader of spans would make of an agent that made these calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collector.step import Kind, Outcome, Step

_FOLDER = Path(__file__).parent.parent / "testdata" / "cases"
CASES = _FOLDER / "agents-that-loop-and-agents-that-only-seem-to.jsonl"
BLIND_CASES = _FOLDER / "blind.jsonl"
SECOND_BLIND_CASES = _FOLDER / "blind-second.jsonl"
_START_NS = 1_704_067_200_000_000_000


def read_cases(path: Path = CASES) -> list[dict[str, Any]]:
    """All cases of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


@dataclass
class _Teller:
    """Walks through the calls of a case and keeps what the next step needs."""

    case: str
    now_ns: int = _START_NS
    turn: int = 0
    message: int = 0
    messages: dict[str, tuple[object, int]] = field(default_factory=dict)

    def step(self, kind: Kind, name: str, agent: str | None, took_ns: int, **more: Any) -> Step:  # noqa: ANN401 - fields of Step
        return Step(
            kind=kind,
            step_id=f"{self.case}/{name}",
            span_id=f"{self.case}/{name}",
            trace_id=f"{self.case}/{self.turn}",
            run_id=f"{self.case}/{self.turn}",
            session_id=self.case,
            agent=agent,
            start_ns=self.now_ns,
            end_ns=self.now_ns + took_ns,
            **more,
        )

    def attempt(self, agent: str, message: object) -> tuple[str, bool]:
        """The model message that a call belongs to, and whether it is a new one."""
        before = self.messages.get(agent)
        fresh = message is None or before is None or before[0] != message
        if fresh:
            self.message += 1
            self.messages[agent] = (message, self.message)
        return f"{self.case}/message-{self.messages[agent][1]}", fresh


def steps_of(case: dict[str, Any]) -> Iterator[tuple[int, Step]]:
    """Steps in the order of their ends, each with the number of calls that had been made by then."""
    told: list[tuple[int, int, Step]] = []
    teller = _Teller(str(case["id"]))
    number = 0
    calls = [call for call in case["calls"] for _ in range(int(call.get("repeat") or 1))]
    for call in calls:
        gap = call.get("dt_s")
        teller.now_ns += int((2.0 if gap is None else gap) * 1e9)
        if "event" in call:
            if call["event"] == "user_turn":
                teller.turn += 1
                teller.messages.clear()
                told.append(
                    (teller.now_ns, number, teller.step(Kind.USER_TURN, f"user-{teller.turn}", None, 0))
                )
            continue
        number += 1
        agent = call.get("agent") or "main"
        attempt, fresh = teller.attempt(agent, call.get("message"))
        if fresh:
            told.append((teller.now_ns, number, teller.step(Kind.MODEL_CALL, attempt, agent, 0)))
        step = _call(teller, call, number, agent, attempt)
        told.append((step.end_ns, number, step))
    for _, count, step in sorted(told, key=lambda item: item[0]):
        yield count, step


def _call(teller: _Teller, call: dict[str, Any], number: int, agent: str, attempt: str) -> Step:
    gap, result = call.get("dt_s"), call.get("result")
    failed = call.get("ok") is False
    return teller.step(
        Kind.TOOL_CALL,
        f"call-{number}",
        agent,
        int(min(0.2, max(0.01, float(gap or 0.2) / 2)) * 1e9),
        tool=call["tool"],
        arguments=call.get("args"),
        result=result
        if result is None or isinstance(result, str)
        else json.dumps(result, ensure_ascii=False),
        error=(call.get("error") or "") if failed else None,
        outcome=Outcome.ERROR if failed else Outcome.OK,
        attempt_id=attempt,
    )
