from __future__ import annotations

import io

import pytest
from rich.console import Console

from api.demofleet import alone, fleet
from api.demopicture import Event, bill, picture

EVENTS = (
    Event(0.4, "began", "page-reader calls fetch_page: it fails"),
    Event(1.9, "on-call", "got alert al_0011223344556677 by webhook, its signature is good", "red"),
    Event(12.0, "told", "page-reader asked before call 7: halt. " + "Do not call any more tools. " * 9),
    Event(None, "without", "401 calls"),
)


def drawn(width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(picture(fleet(), EVENTS, width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_picture_fits_and_leaves_nothing_out(width: int) -> None:
    lines = drawn(width)
    assert max(map(len, lines)) <= width
    together = " ".join(" ".join(lines).split())
    for agent in fleet():
        assert agent.name in together
    for event in EVENTS:
        assert event.label in together
        assert "…" not in together


def test_what_agents_do_is_told_where_there_is_room() -> None:
    assert any(fleet()[0].about in line for line in drawn(80))
    assert not any(fleet()[0].about in line for line in drawn(79))


def test_only_the_stuck_agent_would_have_gone_on() -> None:
    calls = {agent.name: alone(agent).calls for agent in fleet()}
    assert calls == {"trip-planner": 30, "deploy-watcher": 26, "test-fixer": 20, "page-reader": 401}
    assert bill(alone(fleet()[-1])) == "401 calls, 3,580,930 tokens, $10.74"
