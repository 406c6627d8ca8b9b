"""Identity of calls and information, by property."""

from __future__ import annotations

import json
from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Json
from detectors import signature as signature_module
from detectors.doom_loop import DoomLoop
from detectors.signature import COSMETIC, VOLATILE, call_of, information, normal_name
from tests.detectors.stream import Stream, judged

NAMES = st.sampled_from(["path", "query", "limit", "Filter", "file_name", "q", "x", "y"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(NAMES, VALUES, max_size=5)


def signature(arguments: Json) -> int:
    return call_of("tool", arguments).signature


def shuffled(value: Json) -> Json:
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@given(ARGUMENTS)
def test_the_order_of_keys_does_not_matter(arguments: dict[str, Json]) -> None:
    assert signature(arguments) == signature(shuffled(arguments))


@given(ARGUMENTS, st.sampled_from([None, 1, 4]))
def test_arguments_told_as_text_are_the_same_whatever_their_white_space(
    arguments: Json, indent: int | None
) -> None:
    assert signature(json.dumps(arguments, indent=indent)) == signature(arguments)


@given(ARGUMENTS)
def test_null_is_absent(arguments: dict[str, Json]) -> None:
    assert signature({**arguments, "nothing": None}) == signature(arguments)


@given(st.integers(-(10**12), 10**12))
def test_a_number_is_a_number_however_it_is_told(number: int) -> None:
    told: list[Json] = [number, float(number), str(number), f"{number}.0"]
    assert len({signature({"limit": value}) for value in told}) == 1


@given(ARGUMENTS, st.sampled_from(sorted(VOLATILE)), VALUES)
def test_volatile_names_are_dropped(arguments: dict[str, Json], name: str, value: Json) -> None:
    kept = {"kept": 1, **arguments}
    assert signature({**kept, name: value}) == signature(kept)
    assert signature({**kept, name.upper(): value}) == signature(kept)


@given(st.sampled_from(sorted(VOLATILE | COSMETIC)), st.integers(), st.integers())
def test_arguments_are_never_all_dropped(name: str, one: int, other: int) -> None:
    assert (signature({name: one}) == signature({name: other})) is (one == other)


@given(st.uuids(), st.uuids())
def test_values_are_never_masked_in_arguments(one: UUID, other: UUID) -> None:
    assert (signature({"id": str(one)}) == signature({"id": str(other)})) is (one == other)


@given(st.datetimes(), st.datetimes())
def test_dates_are_never_masked_in_arguments(one: datetime, other: datetime) -> None:
    same = one.isoformat() == other.isoformat()
    assert (signature({"day": one.isoformat()}) == signature({"day": other.isoformat()})) is same


@given(st.text(max_size=3000))
def test_information_is_a_function_of_the_text(text: str) -> None:
    assert information(text) == information(text)
    assert 0 <= information(text) < 2**64


SAME = [
    ("batch-5747d1df-afee-4375-8b62-aff1f0a3117a ok", "batch-362406a0-162e-4271-94ef-6e2722229d3c ok"),
    ("done in 300 ms", "done in 2.5s"),
    ('{"durationMs": 180, "pid": 1}', '{"durationMs": 9, "pid": 77}'),
    ('{\\"startedAt\\": \\"x\\", "a": 1}', '{\\"startedAt\\": \\"y\\", "a": 1}'),
    ("now 2026-05-01T10:20:00Z", "now 2026-05-01T10:20:10Z"),
    ("now 1777632000", "now 1777632911"),
    ("504 Gateway Timeout (attempt 1)", "504 Gateway Timeout (attempt 2)"),
    ("request req-6cc2c5211c failed", "request req-f8088ee5b3 failed"),
    ("<Task object at 0x7f3a12bc>", "<Task object at 0x7f3a99aa>"),
    ('{"message_id": "m1", "ok": true}', '{"message_id": "m2", "ok": true}'),
    ("you have called this 3 times", "you have called this 4 times"),
]
DIFFERENT = [
    ("9 errors", "8 errors"),
    ("m1.ts(5,3): error", "m2.ts(5,3): error"),
    ("60991.8 at 12:00:01", "60935.7 at 12:00:01"),
    ("at 100 of 112", "at 101 of 112"),
    ("2026-05-01", "2026-05-02"),
    ("a.py:731:10: x", "a.py:731:11: x"),
    ("lines 1-40", "lines 41-80"),
    ('{"id": 17}', '{"id": 18}'),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_changes_by_itself_is_no_information(one: str, other: str) -> None:
    assert information(f"o\x1e{one}") == information(f"o\x1e{other}")


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_numbers_and_names_are_information(one: str, other: str) -> None:
    assert information(f"o\x1e{one}") != information(f"o\x1e{other}")


def test_of_a_long_result_the_beginning_the_end_and_the_number_of_lines_count() -> None:
    long = "line\n" * 10_000
    assert information("A" + long) != information("B" + long)
    assert information(long + "A") != information(long + "B")
    assert information(long) != information(long + "line\n" * 200)


def test_a_cosmetic_name_is_the_work_itself_for_a_delegation() -> None:
    stream = Stream()
    for n in range(6):
        stream.call("delegate", {"to": "worker", "brief": f"review {n}"}, ok="dispatched")
    assert judged(stream.steps) == []


@pytest.mark.parametrize("name", ["Request-ID", "requestId", "request_id", "REQUEST_ID"])
def test_a_name_is_spelled_one_way(name: str) -> None:
    assert normal_name(name) == "requestid"


HARD = [
    "{" * 79,
    "_" * 80,
    "ok" * 40,
    "echo " + "$(date)" * 40 + "|",
    "a/" * 4000,
    "1:" * 4000,
    "req-" * 2000,
]


@pytest.mark.parametrize("text", HARD, ids=lambda text: text[:8])
def test_no_expression_is_led_astray(text: str) -> None:
    stream = Stream()
    for _ in range(3):
        stream.call("bash", {"command": text}, ok=text)
    judged(stream.steps, DoomLoop())


CLOCKISH = st.lists(
    st.sampled_from([*"0123456789", " ", ".", ":", "-", "_", "t", "z", "ms", "s", "µs", "times", "x", "17"])
).map("".join)


@given(CLOCKISH)
def test_the_cheap_look_for_clocks_misses_none(text: str) -> None:
    assert signature_module._may_be_clock(text) or signature_module._CLOCKS.search(text) is None
