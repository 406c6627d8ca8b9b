"""The call that makes a flail an alarm, and the calls that keep it from being one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.step import Json, Outcome
from detectors.churn import Churn
from detectors.error_family import family_of
from detectors.flail import Flail
from detectors.flail_config import FlailConfig
from detectors.protocol import Finding
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged

COLUMNS = ("flight_no", "flight_num", "flight_number", "flight_code", "number", "no", "id", "code")
ALARM = ("warning", "critical")


def found_in(stream: Stream, detector: Flail | None = None) -> Sequence[tuple[int, Finding]]:
    return judged(stream.steps, detector if detector is not None else Flail())


def sql(column: str) -> dict[str, Json]:
    return {"sql": f"SELECT {column} FROM flights", "timeout": 5}


def guesses(count: int, stream: Stream | None = None) -> Stream:
    stream = stream if stream is not None else Stream()
    for column in COLUMNS[:count]:
        stream.call("run_query", sql(column), error=f"Unknown column '{column}' in 'field list'")
    return stream


def rounds(stream: Stream, count: int, failures: Callable[[int], str]) -> Stream:
    for n in range(count):
        stream.call("edit", {"path": "a.py", "old": f"r = {n}", "new": f"r = {n + 1}"}, ok="1 edit applied")
        stream.call("bash", {"command": "pytest -q"}, error=failures(n))
    return stream


def test_the_fourth_variant_is_an_alarm_and_the_sixth_is_critical() -> None:
    found = found_in(guesses(8))
    assert first(found, "warning") == 4
    assert first(found, "critical") == 6
    assert {finding.id for _, finding in found} == {found[0][1].id}


def test_identical_calls_are_none_of_its_business() -> None:
    assert not found_in(Stream().times(9, "run_query", sql("a"), error="Unknown column 'a'"))


def test_one_of_four_may_be_a_repeat_but_two_calls_by_turns_are_no_search() -> None:
    one = Stream()
    for column in ("a1", "a1", "b1", "c1"):
        one.call("run_query", sql(column), error=f"Unknown column '{column}'")
    assert first(found_in(one), *ALARM) == 4
    two = Stream()
    for column in ("a1", "b1") * 5:
        two.call("run_query", sql(column), error=f"Unknown column '{column}'")
    assert not found_in(two)


def test_a_success_ends_it() -> None:
    stream = guesses(3).call("run_query", sql("x"), ok="12 rows: LH 400")
    assert not found_in(guesses(3, stream))


@pytest.mark.parametrize(
    ("tool", "result", "at"),
    [
        ("describe_table", "flightno int, source text", None),
        ("describe_table", "[]", 5),
        ("think", "perhaps it has another name", 5),
        ("wait", "waited", 5),
    ],
)
def test_what_a_diagnosis_is(tool: str, result: str, at: int | None) -> None:
    stream = guesses(3).call(tool, {"of": "flights"}, ok=result)
    stream.call("run_query", sql("z"), error="Unknown column 'z' in 'field list'")
    assert first(found_in(stream), *ALARM) == at


def test_many_attempts_are_flail_whatever_was_looked_at_in_between() -> None:
    stream = Stream()
    for n, column in enumerate(COLUMNS):
        stream.call("run_query", sql(column), error=f"Unknown column '{column}' in 'field list'")
        stream.call("read_file", {"path": f"{n}.md"}, ok=f"chapter {n}")
    assert first(found_in(stream), *ALARM) == 9


def test_a_name_within_an_argument_is_a_value_of_the_call_too() -> None:
    stream = Stream()
    for name in ("kb-data", "kb-data2", "data-kb", "kb-dumps"):
        stream.call(
            "aws", {"args": f"s3 ls s3://{name}/a/"}, error=f"NoSuchBucket: no bucket of that name: {name}"
        )
    assert first(found_in(stream), *ALARM) == 4


def test_a_walk_up_to_where_a_path_ends_is_a_search_but_a_walk_to_the_side_is_a_guess() -> None:
    def looked_for(*folders: str) -> Stream:
        stream = Stream()
        for folder in folders:
            error = f"ls: cannot access '{folder}': No such file or directory"
            stream.call("bash", {"command": f"ls {folder}"}, error=error)
        return stream

    assert not found_in(looked_for("/a/b/c/d/e.txt", "/a/b/c/d", "/a/b/c/", "/a/b", "/a"))
    assert first(found_in(looked_for("/a/b", "/a/c", "/a/d", "/a/e")), *ALARM) == 4


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("Error: Cannot execute '{}': unknown command.", 4),
        ("Tool {} is not available. Tools: read, write", 4),
        ("Error: cannot execute {} now", None),
    ],
)
def test_tools_are_invented_one_after_the_other(said: str, at: int | None) -> None:
    stream = Stream()
    for tool in ("try_simple_fix", "modify_code", "try_complex_fix", "apply_it"):
        stream.call(tool, {}, error=said.format(tool))
    assert first(found_in(stream), *ALARM) == at


def test_an_error_that_names_another_thing_each_time_is_progress() -> None:
    stream = Stream()
    for n, field in enumerate(("title", "owner", "body", "labels", "due", "state", "team")):
        stream.call("create_issue", {"draft": n}, error=f"field '{field}' is required")
    assert not found_in(stream)


def test_an_error_that_counts_fewer_each_time_is_progress() -> None:
    stream = Stream()
    for n in range(9, 0, -1):
        stream.call("validate", {"attempt_text": f"v{n}"}, error=f"the document has {n} errors in its body")
    assert not found_in(stream)


def test_calls_of_one_message_are_one_attempt() -> None:
    stream = Stream()
    for column in COLUMNS:
        stream.call("run_query", sql(column), error=f"Unknown column '{column}'", attempt_id="m1", after=0.1)
    assert not found_in(stream)


def test_a_sweep_that_hits_every_third_time_is_work() -> None:
    stream = Stream()
    for n in range(24):
        if n % 3 == 2:
            stream.call("get_issue", {"id": f"a{n}"}, ok=f"issue number {n}: open")
        else:
            stream.call("get_issue", {"id": f"a{n}"}, error="404 Not Found: issue")
    assert not found_in(stream)


@pytest.mark.parametrize("end", ["user", "run", "pause"])
def test_what_ends_a_streak(end: str) -> None:
    stream = guesses(3)
    if end == "user":
        stream.user()
    elif end == "run":
        stream.run = "run-2"
    stream.call("run_query", sql("q"), error="Unknown column 'q'", after=700.0 if end == "pause" else 2.0)
    assert not found_in(stream)


def test_errors_that_go_away_by_themselves_get_more_patience() -> None:
    stream = Stream()
    for n in range(7):
        stream.call("fetch", {"url": f"https://h{n}.example/{n}"}, error="503 Service Unavailable, try later")
    assert first(found_in(stream), *ALARM) == 6


def test_an_error_in_a_result_that_is_reported_as_a_success_counts() -> None:
    stream = Stream()
    for column in COLUMNS:
        stream.call("run_query", sql(column), ok=f"Error: unknown column '{column}'")
    assert first(found_in(stream), *ALARM) == 4


def test_reworded_queries_that_find_nothing() -> None:
    stream = Stream()
    for name in ("getUserById", "get_user_by_id", "GetUserByID", "getUser", "fetchUserById", "findUserById"):
        stream.call("grep", {"pattern": name, "path": "src"}, ok="no matches")
    found = found_in(stream)
    assert first(found, *ALARM) == 6
    assert found[0][1].evidence["rule"] == "no_news"
    assert found[0][1].evidence["parameters"] == ["pattern"]


def test_one_question_about_many_things_is_no_flail() -> None:
    stream = Stream()
    for n in range(20):
        stream.call("grep", {"pattern": "TODO", "path": f"src/module{n}/main.py"}, ok="no matches")
        stream.call("get_order_state", {"id": f"ord-{n * 37}"}, ok="the order was paid in full, thank you")
    assert not found_in(stream)


@pytest.mark.parametrize(("step", "at"), [(2, 6), (60, None)])
def test_clicks_around_one_spot_that_change_nothing(step: int, at: int | None) -> None:
    stream = Stream()
    for n in range(8):
        stream.call("click", {"x": 400 + n * step, "y": 300}, ok="screen: login page, sha 9f1c")
    assert first(found_in(stream), *ALARM) == at


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("FAILED test_a, FAILED test_b - 1 != 2\n2 failed, 8 passed in {n}.1s", 8),
        ("FAILED test_a, FAILED test_b - 1 != {n}\n2 failed, 8 passed in 1.1s", 12),
    ],
)
def test_edits_without_effect_are_seen_sooner_when_the_very_same_is_said(said: str, at: int) -> None:
    found = found_in(rounds(Stream(), 8, lambda n: said.format(n=n)))
    assert first(found, "warning") == at
    assert first(found, "critical") == at + 2
    assert found[0][1].evidence["rule"] == "no_effect"
    assert found[0][1].evidence["fewest_failures"] == 2


@pytest.mark.parametrize(("looks", "at"), [(False, 8), (True, 21)])
def test_looks_in_between_raise_the_limit_of_rounds(looks: bool, at: int) -> None:  # noqa: FBT001 - a case
    stream = Stream()
    for n in range(8):
        if looks:
            stream.call("read_file", {"path": f"{n}.py"}, ok=f"chapter {n}")
        rounds(stream, 1, lambda _: "FAILED test_a\n1 failed, 8 passed")
    assert first(found_in(stream), *ALARM) == at


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("src/Pay.tsx(2,37): error TS2345: not a 'Money'.\nFound 1 error.", 8),
        ("src/Pay.tsx(2,37): all is well. Found 0 errors.", None),
    ],
)
def test_a_checker_may_say_what_is_wrong_without_failing(said: str, at: int | None) -> None:
    stream = Stream()
    for n in range(6):
        stream.call("Edit", {"file_path": "Pay.tsx", "new_string": f"pay({n})"}, ok="updated")
        stream.call("Bash", {"command": "npx tsc --noEmit"}, ok=said)
    assert first(found_in(stream), *ALARM) == at


def fixes(said: str, count: int) -> Stream:
    stream = Stream()
    for n in range(count):
        stream.call("write_fix", {"line": 7, "text": f"a = {n}"}, ok=said)
    return stream


@pytest.mark.parametrize(
    ("said", "at"),
    [
        ("written. Tests were run: there are 2 failing test cases", 4),
        ("written. BUILD FAILED", 4),
        ("written. Tests were run: there are 0 failing test cases", None),
    ],
)
def test_an_edit_that_is_tested_at_once_is_a_round_of_its_own(said: str, at: int | None) -> None:
    assert first(found_in(fixes(said, 8)), *ALARM) == at


def test_a_refused_edit_is_not_made_good_by_one_that_breaks_the_build() -> None:
    stream = Stream()
    for n in range(5):
        stream.call("write_fix", {"text": f"x{n}"}, error="Your fix did not target all of the wrong lines")
        stream.call("write_fix", {"text": f"y{n}"}, ok=f"written. BUILD FAILED at line {n}00")
    assert first(found_in(stream), *ALARM) == 7


def test_what_is_worse_than_before_is_neither_progress_nor_a_round() -> None:
    one, four = "FAILED test_1\n1 failed, 8 passed", "FAILED test_4\n4 failed, 5 passed"
    said = [one, four, one, one, "it does not even compile", one, one]
    found = found_in(rounds(Stream(), len(said), lambda n: said[n]))
    assert first(found, *ALARM) == 12
    assert found[0][1].evidence["count"] == 3


def test_fewer_failures_are_progress_and_tests_that_vanish_are_failures() -> None:
    fewer = rounds(Stream(), 8, lambda n: f"FAILED test_{n}\n{9 - n} failed, {n} passed in 1.0s")
    assert not found_in(fewer)
    gone = rounds(Stream(), 8, lambda n: f"FAILED test_a\n1 failed, {20 - n} passed in 1.0s")
    assert first(found_in(gone), *ALARM) == 12


def test_an_edit_that_is_taken_back_and_made_again() -> None:
    stream = Stream()
    for n in range(8):
        old, new = ("<", "<=") if n % 2 else ("<=", "<")
        stream.call("edit", {"path": "a.py", "old": old, "new": new}, ok="1 edit applied")
        stream.call("bash", {"command": "pytest -q"}, error=f"FAILED test_{n % 2}\n1 failed, 1 passed")
    assert first(found_in(stream), *ALARM) == 14


@pytest.mark.parametrize(
    ("output", "at"), [("ran\nERROR: heading not found", 22), ("ran\nall is well", None)]
)
def test_edits_after_which_a_run_says_the_same_error_without_failing(output: str, at: int | None) -> None:
    stream = Stream()
    for n in range(14):
        stream.call("edit", {"path": "a.py", "old": f"r = {n}", "new": f"r = {n + 1}"}, ok="1 edit applied")
        stream.call("bash", {"command": "python reproduce.py"}, ok=output)
    assert first(found_in(stream), *ALARM) == at


def test_the_same_failures_without_an_edit_are_no_round() -> None:
    assert not found_in(Stream().times(12, "bash", {"command": "pytest -q"}, error="FAILED test_a\n1 failed"))


def test_a_checker_that_finds_something_and_a_search_that_does_not_have_answered() -> None:
    stream = Stream()
    for n in range(8):
        found = 'foo.py:1:0: C0104: Disallowed name "foo"'
        stream.call("bash", {"command": f"pylint --bad-names=foo,b{n} foo.py"}, error=found)
        stream.call("bash", {"command": f"grep -rn name{n} src/part{n}"}, error="")
    assert not found_in(stream)


def test_what_a_finding_says() -> None:
    last = found_in(guesses(8))[-1][1]
    assert last.tool == "run_query"
    assert last.occurrences == 8
    assert last.evidence["perturbations"] == 8
    assert last.evidence["parameters"] == ["sql"]
    assert last.evidence["entropy"] == {"sql": 1.0}
    assert last.evidence["hit_rate"] == 0.0
    assert last.evidence["error"] == "unknown column # in #"
    assert last.evidence["values"] == {
        "sql": [f"SELECT {column} FROM flights" for column in (*COLUMNS[:3], *COLUMNS[5:])]
    }


def test_without_arguments_or_results_or_session() -> None:
    bare = Stream()
    for _ in range(9):
        bare.call("run_query", None, error="no such column")
    assert not found_in(bare)
    silent = Stream()
    for column in COLUMNS:
        silent.call("run_query", sql(column), outcome=Outcome.ERROR)
    found = found_in(silent)
    assert first(found, *ALARM) == 4
    assert {finding.severity.value for _, finding in found} == {"warning"}
    assert found[0][1].evidence["missing"] == ["result"]
    unknown = found_in(guesses(8, Stream(session="process:web-1")))
    assert first(unknown, "critical") is None
    assert unknown[0][1].evidence["missing"] == ["session"]


def test_a_tool_can_have_its_own_limit() -> None:
    detector = Flail(Tuned(FlailConfig(), {"run_query": FlailConfig(errors=7)}))
    assert first(found_in(guesses(8), detector), *ALARM) == 7


@pytest.mark.parametrize(
    "settings", [{"errors": 1}, {"hit_rate": 0.0}, {"hit_rate": 1.5}, {"patience_s": 0.0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"flail.{next(iter(settings))} must be"):
        FlailConfig(**settings)


@given(
    st.text(min_size=4, max_size=12, alphabet="bcdfghjklmn_"),
    st.text(min_size=4, max_size=12, alphabet="vwxz"),
)
def test_a_value_of_the_arguments_is_no_part_of_the_family(one: str, other: str) -> None:
    families = [family_of(f"item {value} does not exist in stock", {"name": value}) for value in (one, other)]
    assert families[0] == families[1]
    assert families[0].named == ()


@given(st.lists(st.sampled_from("abcd"), min_size=2, max_size=20))
def test_entropy_is_a_share(values: list[str]) -> None:
    churn = Churn()
    for value in values:
        churn.add({"q": value, "fixed": 1})
    assert 0.0 <= churn.entropy("q") <= 1.0
    assert churn.entropy("fixed") == 0.0
    assert churn.parameters() == (["q"] if len(set(values)) > 1 else [])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    )
)
def test_any_arguments_are_taken(arguments: Json) -> None:
    churn = Churn()
    churn.add(arguments)
    churn.is_variant(arguments)
    churn.add({"q": arguments})
    assert Churn.load(churn.json()) == churn
    family_of(str(arguments), arguments)
