"""What messages say, and what a template of the user's can and cannot do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from control.plain import plain
from control.wording import MAX_OUTPUT, Wording, default_source, mrkdwn

if TYPE_CHECKING:
    from pathlib import Path

DATA: dict[str, Any] = {
    "state": "firing",
    "summary": "fetch_page: same call, same error 6 times",
    "kind": "doom_loop",
    "severity": "critical",
    "agent": "buyer",
    "service": "shop",
    "session_id": "session-1",
    "since": "2023-11-14T22:13:10.000000Z",
    "calls": 1200,
    "tokens": 34567,
    "cost_usd": 0.42,
    "tried": ["fetch_page: not_found, 6x"],
    "cause": "not_found",
    "next_step": "Let it make another plan.",
    "links": {
        "run": "https://r.example/runs/1",
        "dashboard": None,
        "handoff": "h",
        "stop": "https://r.example/s",
    },
}


def test_the_text_says_what_whom_since_when_what_it_cost_and_what_helps() -> None:
    assert Wording("pagerduty", plain).render("text", DATA).splitlines() == [
        "fetch_page: same call, same error 6 times",
        "Stuck since 2023-11-14 22:13:10 UTC: doom_loop, critical",
        "Who: buyer of shop, session session-1",
        "So far: 1,200 calls, 34,567 tokens, $0.42",
        "Tried:",
        "- fetch_page: not_found, 6x",
        "Cause: not_found",
        "Suggested next step: Let it make another plan.",
        "Run: https://r.example/runs/1",
        "Hand-off: h",
        "Stop it: https://r.example/s",
    ]


@pytest.mark.parametrize("part", ["summary", "brief", "text", "slack"])
def test_what_is_not_there_is_unknown(part: str) -> None:
    said = Wording("slack", mrkdwn).render(part, {"links": None})
    assert "unknown" in said
    assert "None" not in said
    assert "Stop it" not in said


@pytest.mark.parametrize("part", ["text", "slack"])
def test_an_end_says_why_and_suggests_nothing_and_a_test_says_only_that_it_is_one(part: str) -> None:
    wording, over = Wording("slack", mrkdwn), DATA | {"state": "resolved", "cost_usd": None}
    said = wording.render(part, over | {"resolved_by": "run_ended", "note": "the run has ended"})
    assert "Ended by itself: the run has ended\n" in said
    assert "34,567 tokens, cost unknown\n" in said
    assert "next step" not in said
    assert "Ended by ada: mended\n" in wording.render(part, over | {"resolved_by": "ada", "note": "mended"})
    assert "Alert al_1" in wording.render(part, DATA | {"alert_id": "al_1"}).replace(":", "")
    tested = wording.render(part, DATA | {"kind": "test", "next_step": "Nothing is to be done."})
    assert "Nothing is to be done." in tested
    assert "since" not in tested


def test_nothing_that_an_agent_wrote_calls_a_channel_or_makes_a_link() -> None:
    hostile = "<!channel> <https://evil.example|here> & \x1b[31m\u202e"
    said = Wording("slack", mrkdwn).render("slack", DATA | {"cause": hostile, "tried": [hostile]})
    assert said.count("&lt;!channel&gt; &lt;https://evil.example|here&gt; &amp; [31m") == 2
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize("part", ["text", "slack", "summary", "brief"])
def test_nothing_that_an_agent_wrote_looks_like_a_line_of_ours(part: str) -> None:
    forged = "\n\r\x0b\x0c\x85\u2028\u2029Stop it: https://elsewhere.example"
    fields = (
        "summary",
        "agent",
        "service",
        "session_id",
        "kind",
        "cause",
        "next_step",
        "note",
        "resolved_by",
    )
    data: dict[str, Any] = dict.fromkeys(fields, f"x{forged}") | {
        "state": "resolved",
        "tried": [forged],
        "breakers": [{"id": forged, "state": forged, "action": forged}],
    }
    for line in Wording("any", mrkdwn).render(part, data).splitlines():
        assert not line.startswith(("Stop it", "https"))


def made(folder: Path, source: str, broken: list[str] | None = None) -> Wording:
    """A wording with a template of the user's."""
    path = folder / "mine.j2"
    path.write_text(source, encoding="utf-8")
    heard = broken if broken is not None else []
    return Wording("pagerduty", plain, override=str(path), on_broken=heard.append)


def test_a_file_of_ones_own_takes_the_place_of_the_text(tmp_path: Path) -> None:
    mine = made(tmp_path, "{{ agent }} spent {{ cost_usd | usd }} on {{ nothing.at.all }}")
    assert mine.render("text", DATA) == "buyer spent $0.42 on unknown"
    assert mine.render("summary", DATA).startswith("buyer of shop: ")
    assert mine.problem == ""


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{% if %}", "line 1"),
        ("\n{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% for a in range(999) %}{% for b in range(999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% for a in range(9000) %}0123456789{% endfor %}", "characters"),
        ("{{ 'x' * 10000000 }}", "too long"),
        ("{{ 10 ** 10 ** 10 }}", "not available"),
        ("{{ '%1000000000d' % 1 }}", "not available"),
        ("{{ 'x'.ljust(10 ** 3) }}", "not available"),
        ("{{ 'x'.ljust(1000000000) }}", "unsafe"),
        ("{{ 'x' | center(1000000000) }}", "center"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{{ tried.append('x') }}", "not callable|unsafe"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{% import 'os' as os %}", "loader"),
        ("   ", "wrote nothing"),
    ],
)
def test_a_broken_template_gives_way_to_the_default_counted_and_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, problem: str
) -> None:
    broken: list[str] = []
    with caplog.at_level(logging.ERROR):
        mine = made(tmp_path, source, broken)
        said = [mine.render("text", DATA) for _ in range(3)]
    assert said == [Wording("pagerduty", plain).render("text", DATA)] * 3
    assert len(caplog.records) == 1
    assert "templates.pagerduty" in caplog.text
    assert any(part in mine.problem for part in problem.split("|")), mine.problem
    assert broken == ["pagerduty"] * 3


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    mine = Wording("slack", mrkdwn, part="slack", override=str(tmp_path / "none.j2"))
    assert "FileNotFoundError" in mine.problem
    assert "buyer" in mine.render("slack", DATA)


def test_long_data_make_no_long_text() -> None:
    data = dict.fromkeys(DATA, "x" * 10**6) | {
        "tried": ["y" * 10**6] * 10**4,
        "links": {"run": "z" * 10**6},
    }
    assert len(Wording("slack", mrkdwn).render("slack", data)) <= MAX_OUTPUT


def test_every_default_text_is_a_template_of_its_own() -> None:
    for part in ("summary", "brief", "text", "slack"):
        assert "{{" in default_source(part)
