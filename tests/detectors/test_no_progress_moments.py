"""At which call lack of progress is said, and when it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from collector.step import Json
from detectors.no_progress import NoProgress, NoProgressConfig
from detectors.plan_status import status_pattern
from detectors.tuning import Tuned
from detectors.word_memory import WORDS_KEPT, WordMemory
from tests.detectors.stream import Stream, first, judged

PAGE = "The archive lists historical weather by city, zip code or airport code. Choose a date and press View."
HITS = json.dumps(
    {
        "results": [
            {"title": f"Tax office {n}: filing rules", "url": f"https://{n}.example/"}
            for n in ("north", "west", "isle")
        ]
    }
)


def found(stream: Stream, **config: Any) -> list[tuple[int, Any]]:  # noqa: ANN401 - settings of all types
    return judged(stream.steps, NoProgress(Tuned(NoProgressConfig(**config))))


def rules(stream: Stream) -> list[tuple[int, str, str]]:
    return [(at, str(f.evidence["rule"]), f.severity.value) for at, f in found(stream)]


def test_eight_looks_without_a_new_word_are_a_warning_and_sixteen_critical() -> None:
    stream = Stream()
    for n in range(20):
        stream.call("grep", {"pattern": f"name_{n}"}, ok="")
    assert rules(stream) == [(8, "no_news", "warning"), (16, "no_news", "critical")]


def test_pages_that_were_read_before_are_no_news_whatever_is_asked() -> None:
    stream = Stream()
    pages = [" ".join(f"word{page}x{n}" for n in range(20)) for page in range(3)]
    for n in range(13):
        stream.call("read_page", {"url": f"https://a.example/{n}"}, ok=f"{n % 3}\n{pages[n % 3]}")
    # the first three are new
    assert rules(stream) == [(11, "no_news", "warning")]


def test_words_of_the_call_itself_are_no_news() -> None:
    stream = Stream()
    for n in range(9):
        stream.call("search", {"query": f"topic{n}"}, ok=f"{PAGE} Nothing for topic{n}")
    assert rules(stream) == [(9, "no_news", "warning")]


def test_short_answers_about_new_ids_neither_count_nor_end_a_row() -> None:
    stream = Stream()
    for n in range(30):
        stream.call("get_order", {"id": n}, ok='{"status": "paid"}')
    assert rules(stream) == []
    stream = Stream()
    for n in range(9):
        stream.call("grep", {"pattern": f"p{n}"}, ok="").call("get_order", {"id": n}, ok="paid")
    assert first(found(stream), "warning") == 17  # "paid" was news once


def test_who_waits_need_not_learn_anything() -> None:
    stream = Stream()
    for n in range(30):
        stream.call("kubectl_get", {"name": f"web-{n}"}, ok=f"Waiting for the rollout to finish. {PAGE}")
    assert not [rule for _, rule, _ in rules(stream) if rule == "no_news"]


@pytest.mark.parametrize(
    "between",
    [
        {"tool": "edit", "arguments": {"path": "a.py", "new": "x"}, "ok": "1 edit applied"},
        {"tool": "read_file", "arguments": {"path": "b.py"}, "ok": "unheard words"},
    ],
)
def test_a_change_and_news_end_a_row_of_looks(between: dict[str, Any]) -> None:
    stream = Stream()
    for n in range(14):
        if n == 7:
            stream.call(between["tool"], between["arguments"], ok=between["ok"])
        stream.call("grep", {"pattern": f"p{n}"}, ok="")
    assert rules(stream) == []


def test_a_users_turn_and_another_run_end_a_row_of_looks() -> None:
    stream = Stream()
    for n in range(21):
        if n == 7:
            stream.user()
        if n == 14:
            stream.run = "run-2"
        stream.call("grep", {"pattern": f"p{n}"}, ok="")
    assert rules(stream) == []


def test_a_batch_is_one_attempt() -> None:
    stream = Stream()
    for n in range(16):
        stream.call("grep", {"pattern": f"p{n}"}, ok="", attempt_id=f"m{n // 4}")
    assert rules(stream) == []


def test_failures_that_get_fewer_are_progress() -> None:
    stream = Stream()
    for n in range(9):
        stream.call("check_types", {"round": n}, ok=f"{PAGE}\n{9 - n} errors")
    assert rules(stream) == []
    for n in range(8):
        stream.call("check_types", {"again": n}, ok=f"{PAGE}\n{n % 3 + 1} errors")
    assert rules(stream) == [(17, "no_news", "warning")]


def test_the_same_answer_to_other_words_is_a_warning_at_the_fourth_and_critical_at_the_eighth() -> None:
    stream = Stream()
    for n in range(9):
        stream.call("web_search", {"query": f"filing deadline {n}"}, ok=HITS)
    assert rules(stream)[:2] == [(4, "rewording", "warning"), (8, "rewording", "critical")]


def test_a_page_that_reads_a_little_otherwise_each_time_is_the_same_answer() -> None:
    stream = Stream()
    for n in range(4):
        noise = ["Log in", "Settings", "", "Log in Maps"][n]
        stream.call(
            "WebSurfer", {"instruction": f"open the archive, {n}"}, ok=f"I clicked 'Month'.\n{PAGE} {noise}"
        )
    assert rules(stream) == [(4, "rewording", "warning")]


def test_other_numbers_are_another_answer() -> None:
    stream = Stream()
    for n in range(10):
        scores = " ".join(f"{n}.{m}{n}" for m in range(6))
        stream.call(
            "evaluate_model",
            {"seed": n},
            ok=f"scores of the validation set by fold and metric\n{PAGE} {scores}",
        )
    assert rules(stream) == []


def test_a_program_that_is_tried_with_other_options_is_no_rewording() -> None:
    stream = Stream()
    for n in range(12):
        stream.call("bash", {"command": f"pylint --rule={n} a.py"}, ok=PAGE)
    assert rules(stream) == []


def test_forms_and_scrolling_are_no_rewording() -> None:
    stream = Stream()
    for n in range(12):
        stream.call("browser_click", {"element": f"field {n}"}, ok=PAGE)
        stream.call("scroll", {"to": n}, ok=PAGE)
    assert rules(stream) == []


def plan(*states: str, word: str = "step") -> Json:
    return {"todos": [{"content": f"{word} {n}", "status": state} for n, state in enumerate(states)]}


def test_a_plan_whose_states_do_not_move_is_a_warning_at_the_fifth_time() -> None:
    stream = Stream()
    for n in range(10):
        stream.call("TodoWrite", plan("in_progress", "pending", word=f"wording {n}"), ok="saved")
    assert rules(stream) == [
        (5, "plan_churn", "warning"),
        (8, "plan_churn", "warning"),
        (10, "plan_churn", "critical"),
    ]


def test_a_plan_that_moves_or_is_worked_on_is_none() -> None:
    stream = Stream()
    for n in range(8):
        stream.call("TodoWrite", plan(*["completed"] * n, "in_progress", *["pending"] * (8 - n)), ok="saved")
    for n in range(8):
        stream.call("TodoWrite", plan("in_progress", "pending"), ok="saved")
        stream.call("write_file", {"path": f"{n}.py", "text": str(n)}, ok="ok")
    assert rules(stream) == []


def test_tokens_that_are_spent_on_nothing_new() -> None:
    stream = Stream()
    stream.call("get_state", {}, ok="door open")
    for n in range(30):
        stream.model(10_000).call("get_state", {"room": n}, ok="door open")
    # the first call has news; 20,000 tokens a call from the first that has none
    assert rules(stream) == [(22, "burn", "warning")]
    assert first(found(stream, burn_tokens=500_000), "warning") == 27
    assert found(stream, burn_tokens=1_000_000) == []


def test_without_arguments_or_session_it_is_a_warning_at_most() -> None:
    stream = Stream(session="process:web-1")
    for n in range(20):
        stream.call("grep", {"pattern": f"p{n}"}, ok="")
    assert {f.severity.value for _, f in found(stream)} == {"warning"}
    assert found(stream)[0][1].evidence["missing"] == ["session"]


def test_what_it_cost_is_told_since_the_first_of_the_row() -> None:
    stream = Stream()
    stream.call("read_file", {"path": "a"}, ok="new words here").model(500)
    for n in range(8):
        stream.model(100).call("grep", {"pattern": f"p{n}"}, ok="")
    finding = found(stream)[0][1]
    assert finding.evidence["since_onset"] == {"calls": 8, "input_tokens": 700, "output_tokens": 700}
    assert finding.first_span_id == stream.steps[3].span_id
    assert finding.occurrences == 8


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ({"plan": [{"step": "a", "status": "Completed"}, {"step": "b", "status": "in-progress"}]}, "di"),
        ({"todos": "- [x] a\n- [~] b\n- [ ] c"}, "dio"),
        ({"items": [{"text": "a", "done": True}, {"text": "b", "done": False}]}, "do"),
        ({"note": "nothing"}, ""),
        (None, ""),
    ],
)
def test_states_of_a_plan(arguments: Json, pattern: str) -> None:
    assert status_pattern(arguments) == pattern


def test_a_full_memory_of_words_forgets_a_half_and_then_the_other() -> None:
    memory = WordMemory()
    words = [n * 2_654_435_761 & 0xFFFFFFFF for n in range(WORDS_KEPT + 1)]  # spread over all bits
    memory.keep(words)
    assert memory.unseen(words) == []
    assert len(str(memory.json())) < 12 * 1024
    assert WordMemory.load(memory.json()).unseen(words) == []
    memory.keep([7])
    forgotten = set(memory.unseen(words))
    assert 0.4 < len(forgotten) / len(words) < 0.6
    memory.keep([word for word in words if word in forgotten])
    memory.keep([8])
    assert not forgotten & set(memory.unseen(words))


@pytest.mark.parametrize("name", ["looks", "rewordings", "plans", "burn_turns", "burn_tokens", "min_words"])
def test_a_setting_out_of_range_is_named(name: str) -> None:
    out_of_range: dict[str, Any] = {name: 1}
    with pytest.raises(ValueError, match=f"no_progress.{name} must be at least 2"):
        NoProgressConfig(**out_of_range)
