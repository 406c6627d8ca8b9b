"""What is said depends on what came when, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import RECORDED, batches, pieces

from collector.batch import Batch
from collector.conventions.observation import Observation, Telling
from collector.ordering import Window
from collector.reader import HOLD_NS, StepReader
from collector.step import StepEvent, StepSeen

MS = 1_000_000
PARTS = [
    part
    for name in (
        "openai-raw/openinference-responses",
        "haystack/openinference",
        "langgraph/openinference+openai",
    )
    for batch in batches(RECORDED / name)
    for part in pieces(batch, 4)
]
LATER = 10**12


def wide() -> StepReader:
    return StepReader()


def narrow() -> StepReader:
    """A reader that has to forget all the time."""
    return StepReader(max_traces=3, max_entries=12, max_entry_bytes=40_000)


def read(
    parts: Sequence[tuple[Batch, int]],
    lulls: Sequence[Sequence[int]],
    make: Callable[[], StepReader] = wide,
) -> list[StepEvent]:
    """Push batches at their times; before each let time pass to some of the milliseconds since the last.

    A negative lull is a restart from what was written down.
    """
    reader = make()
    events: list[StepEvent] = []
    kept: dict[str, bytes | None] = {}
    before_ns = 0
    for (part, at_ns), between in zip(parts, lulls, strict=True):
        for lull in sorted(between, key=abs):
            if lull < 0:
                kept.update(reader.changes())
                reader = make()
                reader.restore({key: piece for key, piece in kept.items() if piece is not None})
            else:
                events += reader.advance(min(before_ns + lull * MS, at_ns))
        events += reader.push(part, at_ns)
        before_ns = at_ns
    return events + reader.advance(LATER)


@pytest.mark.parametrize("make", [wide, narrow])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_how_often_time_passes_changes_nothing(make: Callable[[], StepReader], data: st.DataObject) -> None:
    count = len(PARTS)
    gaps = data.draw(st.lists(st.integers(0, 900), min_size=count, max_size=count))
    lulls = data.draw(st.lists(st.lists(st.integers(-1, 900), max_size=4), min_size=count, max_size=count))
    order = data.draw(st.permutations(PARTS))
    at_ns = 0
    parts = []
    for part, gap in zip(order, gaps, strict=True):
        at_ns += gap * MS
        parts.append((part, at_ns))
    assert read(parts, lulls, make) == read(parts, [[]] * count, make)


def seen(events: Sequence[StepEvent]) -> int:
    return sum(isinstance(event, StepSeen) for event in events)


@pytest.mark.parametrize("back_ns", [0, 3_600 * 10**9, 10**18])
def test_a_clock_that_is_set_back_holds_nothing_back(back_ns: int) -> None:
    now_ns = 2 * 10**18
    reader = StepReader()
    reader.push(PARTS[0], now_ns)
    first = reader.advance(now_ns - back_ns) + reader.advance(now_ns - back_ns + HOLD_NS * 2)
    assert seen(first) > 0
    reader.push(PARTS[2], now_ns - back_ns * 2)
    assert seen(reader.advance(now_ns - back_ns * 2 + HOLD_NS * 2)) > 0


def record(
    number: int, end_ns: int, *, trace: str = "", session: str = "", parent: str = "parent"
) -> Observation:
    return Observation(
        telling=Telling.TOOL,
        convention="",
        source="",
        identity=number,
        trace_id=trace,
        span_id="s",
        parent_span_id=parent,
        process="shared",
        service="",
        start_ns=end_ns - 1,
        end_ns=end_ns,
        session=session,
    )


def test_an_old_record_pulls_out_only_what_it_has_to_be_in_order_with() -> None:
    window = Window(HOLD_NS, 1_000, 1_000_000)
    old = record(0, 1_000 * MS, trace="t0", session="a")
    same_trace = record(1, 500 * MS, trace="t0", session="b")
    through_that = record(2, 400 * MS, trace="t1", session="b")
    after_it = record(3, 1_001 * MS, trace="t0", session="a")
    other = record(4, 300 * MS, trace="t2", session="c")
    lone = record(5, 300 * MS, trace="t3")
    window.add(old, 0)
    for each in (same_trace, through_that, after_it, other, lone):
        window.add(each, HOLD_NS)
    due_ns = window.due_ns()
    assert due_ns == HOLD_NS
    assert window.due(due_ns) == [through_that, same_trace, old]
    assert {held.observation.identity for held in window.waiting} == {3, 4, 5}


def test_a_lone_call_is_in_order_with_its_process() -> None:
    window = Window(HOLD_NS, 1_000, 1_000_000)
    window.add(record(0, 1_000 * MS, trace="t0", parent=""), 0)
    before = record(1, 500 * MS, trace="t1", parent="")
    window.add(before, HOLD_NS)
    assert window.due(HOLD_NS)[0] == before


def test_the_window_is_bounded_by_bytes() -> None:
    reader = StepReader()
    reader._window.max_bytes = 10_000
    events = [event for part in PARTS for event in reader.push(part, 0)]
    assert reader._window.overflowed > 0
    assert reader._window.weight <= 10_000
    assert seen(events) > 0
    reader.advance(LATER)
    assert reader._window.weight == 0
