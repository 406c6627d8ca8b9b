"""Errors and outputs that come again and again though other things work in between: when that is told."""

from __future__ import annotations

import json

import pytest

from detectors.doom_loop import DoomLoop
from detectors.flail import Flail
from detectors.protocol import Finding
from detectors.reading import Lens
from tests.detectors.stream import Stream, first, judged

ALARM = ("warning", "critical")
REFUSED = "No replacement was performed, old_str `{old}` did not appear verbatim in the file."
NO_COLUMN = "Error executing query: Unknown column 'series' in 'field list'"


def alarms(stream: Stream, rule: str) -> list[int]:
    found: list[tuple[int, Finding]] = [*judged(stream.steps, Flail()), *judged(stream.steps, DoomLoop())]
    return sorted(at for at, f in found if f.evidence["rule"] == rule and f.severity in ALARM)


def refused_edits(count: int, stream: Stream | None = None, *, views: int = 1) -> Stream:
    """Edits that are refused each for the same reason, and views and edits elsewhere that work in between."""
    stream = stream or Stream()
    for n in range(count):
        old = f"case MATCH_{n}"
        stream.call(
            "str_replace", {"path": "m.c", "old_str": old, "new_str": "x"}, error=REFUSED.format(old=old)
        )
        for m in range(views):
            stream.call(
                "str_replace", {"path": "n.c", "old_str": f"{n}{m}", "new_str": "y"}, ok=f"edited {n}{m}"
            )
    return stream


def test_one_error_of_a_tool_that_works_in_between_is_seen_at_the_fifth_of_twelve() -> None:
    assert alarms(refused_edits(6), "often")[:1] == [9]
    assert alarms(refused_edits(8, views=3), "often") == []


def test_an_error_that_names_something_new_each_time_is_progress() -> None:
    stream = Stream()
    for field in ("title", "owner", "labels", "due", "team", "state"):
        stream.call("create", {"n": field[0]}, error=f"the request was refused: field '{field}' is required")
        stream.call("create", {"n": f"{field[0]}2"}, ok=f"created as {field}")
    assert alarms(stream, "often") == []


def test_the_same_error_of_other_statements_is_seen_at_the_third_with_answers_in_between() -> None:
    stream = Stream()
    for order in ("series", "channel, series", "channel", "channel desc"):
        stream.call("mysql", {"query": f"SELECT channel, series FROM tv ORDER BY {order}"}, error=NO_COLUMN)
        stream.call("mysql", {"query": f"SELECT {order.split(',')[0]} FROM tv"}, ok=f"[('{order}',)]")
    assert alarms(stream, "often")[:1] == [5]


def test_other_errors_of_a_database_are_no_such_thing() -> None:
    stream = Stream()
    for column in ("series", "serial", "episode", "part"):
        error = f"Error executing query: Unknown column '{column}' in 'field list'"
        stream.call("mysql", {"query": f"SELECT {column} FROM tv"}, error=error)
        stream.call("mysql", {"query": f"DESCRIBE t_{column}"}, ok=f"[('{column}',)]")
    assert alarms(stream, "often") == []


@pytest.mark.parametrize("turned", [0, 1])
def test_other_options_and_the_same_lines_in_any_order_are_seen_at_the_fourth(turned: int) -> None:
    lines = ["tar: Removing leading / from member names", "/var/log/apt/term.log", "/var/log/dpkg.log"]
    stream = Stream()
    for n, option in enumerate(("-P", "--no-anchored", "--no-unquote", "--transform s/a/b/", "-h")):
        at = n * turned % 3
        command = f"find /var/log -name '*.log' -exec tar czf l.tgz {option} {{}} +"
        stream.call("bash", {"command": command}, ok="\n".join(lines[at:] + lines[:at]))
    assert alarms(stream, "echo") == [4]


@pytest.mark.parametrize(("recorded", "at"), [(True, [6]), (False, [])])
def test_commands_that_print_nothing_are_seen_at_the_fifth_where_results_are_recorded(
    recorded: bool,  # noqa: FBT001 - a case
    at: list[int],
) -> None:
    stream = Stream().call("bash", {"command": "ls /workspace"}, ok="a.txt" if recorded else None)
    for n in range(6):
        stream.call("bash", {"command": f"find /workspace -mtime +{n} -exec mv -t / {{}} +"})
    assert alarms(stream, "blank") == at
    stream = Stream().call("bash", {"command": "ls /workspace"}, ok="a.txt")
    for n in range(8):
        stream.call("bash", {"command": f"mkdir -p /workspace/part{n}"}, ok="")
    assert alarms(stream, "blank") == []


def test_the_same_answer_of_a_tool_that_takes_no_program_is_no_echo() -> None:
    stream = Stream()
    for n in range(8):
        stream.call(
            "set_flag", {"flag": f"f{n}"}, ok="The flag has been stored and is live for all of the users."
        )
    assert alarms(stream, "echo") == []


def test_filters_that_find_nothing_in_one_file_are_seen_at_the_eighth_whatever_their_words() -> None:
    stream = Stream()
    for path in ("shipping", "cargo", "parcel", "order", "carrier", "box", "post", "label", "code"):
        stream.call("bash", {"command": f"jq '.{path}.{path}_no' /tmp/o.json"}, ok="null")
    assert alarms(stream, "no_news")[:1] == [8]
    stream = Stream()
    for day in range(9):
        stream.call("calendar_events", {"date": f"2026-04-0{day}"}, ok='{"events": []}')
    assert alarms(stream, "no_news") == []


def test_commands_made_before_are_seen_at_the_third_of_five_unless_something_changed() -> None:
    stream = Stream().call("bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    for n in range(3):
        stream.call("bash", {"command": f"python3 other.py {n}"}, ok=f"nothing in {n}") if n < 2 else None
        stream.call("bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    assert alarms(stream, "again") == [6]
    stream = Stream().call("bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    for n in range(5):
        stream.call("bash", {"command": f"sed -i s/{n}/x/ decode.py"}, ok="")
        stream.call("bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    assert alarms(stream, "again") == []


def test_checking_everything_once_more_is_left_alone() -> None:
    stream = Stream()
    for _ in range(3):
        for command, said in (
            ("pytest -q", "212 passed"),
            ("ruff check .", "ok"),
            ("git diff --stat", "m.py | 4"),
        ):
            stream.call("bash", {"command": command}, ok=said)
    assert alarms(stream, "again") == []


@pytest.mark.parametrize("make", [Flail, DoomLoop])
def test_it_survives_a_checkpoint(make: type[Flail | DoomLoop]) -> None:
    stream = refused_edits(3)
    stream.times(2, "bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    refused_edits(3, stream)
    stream.times(2, "bash", {"command": "python3 decode.py"}, ok="Teh lfa gi")
    lens, whole, before = Lens(), make(), make()
    expected = [finding for step in stream.steps for finding in whole.observe(lens.read(step))]
    found = [finding for step in stream.steps[:8] for finding in before.observe(lens.read(step))]
    after = make()
    after.restore(json.loads(json.dumps(before.snapshot())))
    found += [finding for step in stream.steps[8:] for finding in after.observe(lens.read(step))]
    assert found == expected
    assert first([(1, f) for f in found], *ALARM)
