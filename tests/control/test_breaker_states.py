from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from control.breakers.states import TRANSITIONS, Event, IllegalTransition, State, transition

# one row a state, one column an event, in the order of HEAD: what comes after, "-" is illegal
HEAD = (
    "trip shadow_trip escalate latch cool_down probe_ok probe_failed reset expire "
    "force_open force_close release resume shadow"
)
SHORT = {
    "clos": State.CLOSED,
    "open": State.OPEN,
    "half": State.HALF_OPEN,
    "f_op": State.FORCED_OPEN,
    "f_cl": State.FORCED_CLOSED,
    "shad": State.SHADOW,
    "-": None,
}
GRID = """
closed        open shad -    -    -    -    -    -    -    f_op f_cl -    -    shad
open          -    -    open open half -    -    clos clos f_op f_cl -    -    shad
half_open     open -    -    -    -    clos open clos clos f_op f_cl -    -    shad
forced_open   -    -    f_op -    -    -    -    -    clos f_op f_cl clos open -
forced_closed -    -    -    -    -    -    -    -    clos f_op f_cl clos open -
shadow        open -    -    -    -    -    -    clos clos f_op f_cl -    -    -
"""
EXPECTED = {
    (State(row[0]), Event(event)): SHORT[after]
    for row in (line.split() for line in GRID.strip().splitlines())
    for event, after in zip(HEAD.split(), row[1:], strict=True)
}


def test_the_table_of_this_test_names_every_pair() -> None:
    assert set(EXPECTED) == set(product(State, Event))


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_only_transitions_of_the_table_are_legal(state: State, event: Event) -> None:
    after = EXPECTED[state, event]
    assert TRANSITIONS.get((state, event)) is after
    if after is not None:
        assert transition(state, event) is after
    else:
        with pytest.raises(IllegalTransition, match=f"{state.value} cannot {event.value}") as raised:
            transition(state, event)
        assert (raised.value.state, raised.value.event) == (state, event)


def test_every_state_can_be_left_and_reached() -> None:
    assert {before for before, _ in TRANSITIONS} == set(State)
    assert set(TRANSITIONS.values()) == set(State)


def test_the_docs_show_this_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "breakers.md").read_text()
    begin = text.index("| event | closed |")
    head, _, *rows = text[begin:].split("\n\n", 1)[0].splitlines()
    states = [State(cell) for cell in cells(head)[1:]]
    shown = {
        (state, Event(cells(row)[0].strip("`"))): None if after == "·" else State(after)
        for row in rows
        for state, after in zip(states, cells(row)[1:], strict=True)
    }
    assert shown == EXPECTED


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
