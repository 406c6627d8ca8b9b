"""Whatever producers send becomes rows: one step that fits no column must not hold up all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from collector.step import Json, Kind, Step, Usage
from storage.rows import step_rows


def step(**fields: Any) -> Step:  # noqa: ANN401 - any of a step's fields
    return Step(
        **{"step_id": "a", "kind": Kind.TOOL_CALL, "session_id": "s", "start_ns": 1, "end_ns": 2, **fields}
    )


def row(one: Step) -> Mapping[str, Any]:
    rows = step_rows([step(), one]).to_pylist()
    assert rows[0]["start_time"].value == 1
    return dict(rows[1])


@pytest.mark.parametrize("count", [-7, 2**64, int(1e300)])
def test_a_count_that_is_none_is_unknown(count: int) -> None:
    told = row(step(usage=Usage(input_tokens=count, output_tokens=5)))
    assert told["input_tokens"] is None
    assert told["output_tokens"] == 5


@pytest.mark.parametrize(("time", "kept"), [(-1, 0), (2**64 - 1, 2**63 - 1)])
def test_a_time_out_of_range_is_brought_into_it(time: int, kept: int) -> None:
    rows = step_rows([step(end_ns=2**70), step(end_ns=time)])
    assert rows.column("end_time").cast(pa.int64()).to_pylist() == [2**63 - 1, kept]


def test_half_a_surrogate_pair_is_replaced() -> None:
    told = row(step(result="cut \ud83d", arguments={"text": "cut \ud83d"}, offered_tools=("a\ud800",)))
    assert told["result"] == "cut ?"
    assert told["arguments"] == '{"text":"cut \\ud83d"}'
    assert told["offered_tools"] == ["a?"]


def test_arguments_nested_without_end_are_not_shown() -> None:
    deep: Json = 1
    for _ in range(100_000):
        deep = [deep]
    assert "deeply" in row(step(arguments=deep))["arguments"]
