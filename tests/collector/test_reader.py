from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorded import (
    RECORDED,
    SHARED,
    Capture,
    batches,
    calls,
    captures,
    final,
    pieces,
    read_live,
    read_offline,
    rows,
    told,
)

from collector.conventions.observation import Ask
from collector.joining import Entry
from collector.keeping import frozen, gather_ids, thaw
from collector.messages import Asked
from collector.reader import StepReader
from collector.state import State
from collector.step import Json, Kind, Outcome, RunEnded, SessionsMerged, Step, StepEvent, StepSeen
from collector.weighing import weight_of_asked, weight_of_entry

FETCH = "fetch_page"
FEW = [
    RECORDED / name
    for name in (
        "autogen/openinference", "langgraph/zero-code-content", "mcp/fastmcp-native",
        "openai-raw/openinference-responses",
        "google-adk/native-agenttool", "haystack/openinference", "langgraph/openinference+openai",
    )
]  # fmt: skip


def plain(step: Step) -> str:
    """The tool without Semantic Kernel's plugin: the name on the wire has it, the recorded truth has not."""
    return (step.tool or "").removeprefix("Tools-")


def right(capture: Capture, steps: dict[str, Step]) -> tuple[int, int, int, int]:
    """Calls expected and right by name, arguments expected and right: as the shared scorer counts them."""
    expected = capture.meta["expected_tool_calls"]
    ours = calls(steps)
    want, have = Counter(each["name"] for each in expected), Counter(plain(step) for step in ours)
    off = sum(((want - have) + (have - want)).values())
    asked = Counter(f"{e['name']} {json.dumps(e['args'], sort_keys=True)}" for e in expected if "args" in e)
    seen = Counter(f"{plain(step)} {json.dumps(step.arguments, sort_keys=True)}" for step in ours)
    recorded = bool(capture.meta.get("arguments_recorded"))
    return (
        len(expected),
        min(off, len(expected)),
        sum(asked.values()) * recorded,
        sum((asked & seen).values()) * recorded,
    )


@pytest.mark.parametrize("root", [RECORDED, pytest.param(SHARED, marks=pytest.mark.shared)])
def test_calls_and_arguments_of_captures_are_right(root: object) -> None:
    scored = [
        each for each in captures(root if root is SHARED else RECORDED) if each.meta["expected_tool_calls"]
    ]
    if not scored:
        pytest.skip("the captures are not here")
    totals = [right(capture, read_offline(batches(capture.folder))) for capture in scored]
    expected, off, asked, seen = (sum(column) for column in zip(*totals, strict=True))
    assert off <= 0.03 * expected
    assert seen >= 0.97 * asked


def test_calls_that_only_messages_show_are_told_of_recordings_too() -> None:
    (capture,) = [
        each for each in captures(RECORDED) if each.folder == RECORDED / "llama-index" / "traceloop"
    ]
    expected, off, _, _ = right(capture, read_offline(batches(capture.folder)))
    assert (expected, off) == (15, 0)


@pytest.mark.parametrize("folder", FEW, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_order_and_grouping_of_what_arrives_change_nothing(folder: object, data: st.DataObject) -> None:
    whole = batches(folder)
    expected = told(read_offline(whole))
    shuffled = [rows(batch, data.draw(st.permutations(range(batch.columns.num_rows)))) for batch in whole]
    size = data.draw(st.integers(1, 50))
    parts = data.draw(st.permutations([part for batch in shuffled for part in pieces(batch, size)]))
    assert told(read_offline(parts)) == expected


@pytest.mark.parametrize("folder", FEW, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_resent_batch_changes_nothing(folder: object) -> None:
    whole = batches(folder)
    assert told(read_offline([*whole, *whole])) == told(read_offline(whole))


def test_live_and_recorded_reading_agree_on_most_calls_even_in_small_pieces() -> None:
    agree = total = 0
    for capture in captures(RECORDED):
        parts = [part for batch in batches(capture.folder) for part in pieces(batch, 40)]
        expected, live = told(read_offline(batches(capture.folder))), told(read_live(parts))
        agree += sum((expected & live).values())
        total += sum(expected.values())
    assert agree >= 0.97 * total


@pytest.mark.parametrize("folder", FEW, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
@pytest.mark.parametrize("cut", [1, 3])
def test_a_restored_reader_goes_on_as_if_nothing_had_happened(folder: object, cut: int) -> None:
    parts = [part for batch in batches(folder) for part in pieces(batch, 15)]

    def run(*, crash: bool) -> list[StepEvent]:
        reader = StepReader()
        events: list[StepEvent] = []
        kept: dict[str, bytes | None] = {}
        for place, part in enumerate(parts):
            events += reader.push(part, place * 300_000_000)
            kept.update(reader.changes())
            if crash and place % cut == 0:
                reader = StepReader()
                reader.restore({key: piece for key, piece in kept.items() if piece is not None})
        return events + reader.drain()

    assert run(crash=True) == run(crash=False)


def test_changes_add_up_to_the_snapshot() -> None:
    reader = StepReader()
    kept: dict[str, bytes | None] = {}
    for place, part in enumerate(part for batch in batches(FEW[0]) for part in pieces(batch, 15)):
        reader.push(part, place * 300_000_000)
        kept.update(reader.changes())
    assert {key: piece for key, piece in kept.items() if piece is not None} == reader.snapshot()


def test_a_piece_that_cannot_be_written_is_left_out_alone() -> None:
    reader = StepReader()
    for batch in batches(FEW[0]):
        reader.push(batch, 0)
    assert reader.snapshot()["window"] != b"[]"
    deep: Json = 1
    for _ in range(100_000):
        deep = [deep]
    waiting = reader._window.waiting
    bad = next(held.observation for held in waiting if held.observation.tool is not None)
    object.__setattr__(bad.tool, "arguments", deep)
    pieces = reader.snapshot()
    assert len(json.loads(pieces["window"])) == len(waiting) - 1
    assert reader.counters.unwritable == 1
    reader.advance(10_000_000_000)
    kept = reader.changes()
    assert reader.counters.unwritable == 2
    again = StepReader()
    again.restore({key: piece for key, piece in kept.items() if piece is not None})
    assert again.said == reader.said


def test_arguments_that_fast_json_cannot_hold_survive_a_restart() -> None:
    arguments: Json = {"big": 10**30, "half": "\ud800", "plain": 1}
    state = State()
    entry = Entry(
        7, Kind.TOOL_CALL, "s", "t", "p", "c", "g", ask=Ask("call_1", "f", arguments), ids=("call_1",)
    )
    entry.step = Step(
        step_id="s", kind=Kind.TOOL_CALL, session_id="x", start_ns=1, end_ns=2, arguments=arguments
    )
    state.entries[7] = entry
    state.group("g").remember_id("call_1", entry)
    again = State()
    for key in sorted(state.keys(), key=str):
        thaw(again, f"e{key}" if isinstance(key, int) else key, frozen(state, key) or b"")
    gather_ids(again)
    assert again.entries == state.entries
    assert again.groups == state.groups


def test_a_restored_state_of_another_make_is_refused() -> None:
    with pytest.raises(ValueError, match="another make"):
        StepReader().restore({"e1": b"[[1]]"})
    snapshot = StepReader().snapshot()
    with pytest.raises(ValueError, match="other fields"):
        StepReader().restore({**snapshot, "e1": b"[[1]]"})


def test_content_is_bounded_by_its_bytes_and_nothing_is_forgotten_unsaid() -> None:
    parts = [part for each in captures(RECORDED)[:8] for part in batches(each.folder)]
    budget = 60_000
    said = []
    for reader in (StepReader(), StepReader(max_entry_bytes=budget)):
        events: list[StepEvent] = []
        for place, part in enumerate(parts):
            events += reader.push(part, place * 1_000_000_000)
            events += reader.advance(place * 1_000_000_000 + 900_000_000)
        said.append({event.step.step_id for event in events if isinstance(event, StepSeen)})
    assert reader.counters.forgotten_entries > 0
    assert reader._state.entry_bytes <= budget
    assert reader._state.entry_bytes == sum(map(weight_of_entry, reader._state.entries.values()))
    assert said[0] <= said[1]  # an amendment of what was forgotten is a step once more
    written = sum(len(piece) for key, piece in reader.snapshot().items() if key.startswith("e"))
    assert written < 2 * budget


def test_calls_that_wait_for_their_records_are_bounded_by_their_bytes() -> None:
    state = State(max_asked_bytes=10_000)
    for number in range(20):
        asked = Asked(Ask(f"call_{number}", "f", {"text": "x" * 1_000}), -1, 0, 1, 0, "t", "s", "c")
        state.wait(asked, state.group(f"g{number}"))
        state.trim()
        assert (
            sum(weight_of_asked(each) for group in state.groups.values() for each in group.pending) <= 10_000
        )
    assert not state.groups["g0"].pending
    assert state.groups["g19"].pending
    assert state.counters.forgotten_asked == sum(not group.pending for group in state.groups.values())


def test_usage_is_counted_once_however_many_spans_tell_of_it() -> None:
    for name in (
        "langgraph/openinference+openai",
        "aws-strands/native-latest",
        "google-adk/openinference-legacy",
        "llama-index/openinference",
    ):
        steps = read_offline(batches(RECORDED / name))
        tokens = [step.usage.input_tokens or 0 for step in steps.values()]
        assert sum(tokens) in {0, 1605}, name


def test_raw_loops_are_one_session_though_every_model_call_is_a_trace() -> None:
    steps = read_offline(batches(RECORDED / "openai-raw/openinference-responses"))
    assert len({step.session_id for step in steps.values()}) == 1
    assert len({step.trace_id for step in calls(steps)}) > 10
    assert len({step.run_id for step in steps.values()}) == 1


def test_parallel_calls_of_one_message_are_one_attempt() -> None:
    steps = read_offline(batches(RECORDED / "pydantic-ai/native-v6"))
    attempts = Counter(step.attempt_id for step in calls(steps))
    assert sorted(attempts.values()) == [1] * 13 + [2]
    assert {step.step_id for step in steps.values() if step.kind is Kind.MODEL_CALL} >= set(attempts)


def test_a_user_turn_is_told_once_and_tool_results_are_none() -> None:
    for name in (
        "pydantic-ai/native-v6",
        "aws-strands/native-latest",
        "google-adk/native-semconv",
        "smolagents/openinference-returned-errors",
    ):
        turns = [
            step.text
            for step in read_offline(batches(RECORDED / name)).values()
            if step.kind is Kind.USER_TURN
        ]
        assert len(turns) == 1, (name, turns)


def test_a_late_session_id_merges_and_later_steps_carry_it() -> None:
    parts = [part for batch in batches(RECORDED / "agno/openinference") for part in pieces(batch, 5)]
    reader = StepReader()
    events: list[StepEvent] = []
    for place, part in enumerate(parts):
        events += reader.push(part, place * 1_000_000_000)
    events += reader.drain()
    merged = [event for event in events if isinstance(event, SessionsMerged)]
    assert len(merged) == 1
    assert merged[0].old == calls(final(events))[0].session_id
    assert any(isinstance(event, RunEnded) and event.session_id == merged[0].new for event in events)


def test_every_step_comes_in_the_order_of_its_end_within_its_window() -> None:
    for name in ("pydantic-ai/native-v6", "langgraph/zero-code-content"):
        reader = StepReader()
        events = [event for batch in batches(RECORDED / name) for event in reader.push(batch, 0)]
        events += reader.advance(10_000_000_000)
        ends = [event.step.end_ns for event in events if hasattr(event, "step") and event.step.revision == 0]
        assert ends == sorted(ends)


@pytest.mark.shared
def test_refused_calls_are_denied_and_no_failures() -> None:
    folder = SHARED / "gemini-cli" / "hook_stop"
    if not folder.exists():
        pytest.skip("the shared captures are not here")
    assert [step.outcome for step in calls(read_offline(batches(folder)))] == [Outcome.ERROR, Outcome.DENIED]


def test_memory_is_bounded_and_what_was_forgotten_is_counted() -> None:
    reader = StepReader(max_entries=10, max_traces=3)
    for capture in captures(RECORDED)[:8]:
        for batch in batches(capture.folder):
            reader.push(batch, 0)
            reader.advance(10_000_000_000)
    assert reader.counters.forgotten_entries > 0
    pieces = {key: json.loads(piece) for key, piece in reader.snapshot().items()}
    assert sum(len(piece) for key, piece in pieces.items() if key.startswith("e")) == 10
