"""The cases of breaker_precedence.json: every index of breakers must answer them so, the guard's too."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from control.action import Action
from control.breakers.changing import blank
from control.breakers.index import BreakerIndex
from control.breakers.states import State
from control.scope import Asked, Scope

CASES: list[dict[str, Any]] = json.loads(Path(__file__).with_name("breaker_precedence.json").read_bytes())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_index_answers_as_the_case_says(case: dict[str, Any]) -> None:
    index = BreakerIndex()
    for number, told in enumerate(case["breakers"], start=1):
        breaker = replace(
            blank(Scope(**told["scope"]), 0),
            id=told["id"],
            state=State(told["state"]),
            action=Action(told.get("action", "deny")),
            revision=number,
            episode=1,
        )
        index.put(breaker)
    verdict = index.check(Asked(**case["asked"]))
    answer = {"decision": verdict.decision.value, "breaker": verdict.breaker_id}
    if verdict.strength is not None:
        answer["strength"] = verdict.strength.value
    if verdict.override is not None:
        answer["override"] = verdict.override
    assert answer == case["answer"]


def test_no_two_cases_have_one_name() -> None:
    names = [case["name"] for case in CASES]
    assert len(set(names)) == len(names)
