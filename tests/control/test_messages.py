"""What messages leave out: a link to stop what is stopped, words about agents for alerts about us, echoes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from collector.step import StepSeen
from control.action import Action
from control.actor import Actor
from control.alerts import get_alert
from control.alerts.desk import AlertParts
from control.alerts.record import Alert
from control.alerts.states import AlertState
from control.alerts.system import KINDS, NO_DATA, STILL_RUNNING, system_finding
from control.breakers.states import Event
from control.handoff import brief
from control.notices import Links, Notices, notice
from control.notifiers.protocol import FIRING, Notice
from control.notifiers.slack import Slack, SlackConfig
from control.plain import plain
from control.policy import Policy, Reach, Rule
from control.scope import Scope
from control.wording import Wording
from detectors.catalog import build as detectors
from detectors.engine import Engine
from detectors.notes import Notes
from detectors.protocol import Finding, Severity
from tests.control.support import START_NS, STUCK, Parts, Spool
from tests.control.test_handoff import book_of
from tests.detectors.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PERSON = Actor(type="person", id="on-call")
LINKS = Links(
    public_url="https://r.example", stop_of=lambda session: f"https://r.example/stop?session={session}"
)
ERROR = "404 page not found: https://shop.example/item/17 is gone and will not come back, ask for another one"


def alert_of(finding: Finding) -> Alert:
    return Alert(
        id=f"al_{finding.id}",
        state=AlertState.FIRING,
        episode=1,
        finding=finding,
        fired_at=START_NS,
        updated_at=START_NS,
        key="key",
    )


def about_us(kind: str, **labels: str) -> Finding:
    return system_finding(
        kind, "key", "something is wrong", severity=Severity.CRITICAL, labels=labels, now_ns=START_NS
    )


def slack(data: Mapping[str, Any]) -> list[str]:
    """The texts of a Slack message: header, then sections."""
    body = orjson.loads(
        Slack(SlackConfig(name="s", url="https://hooks.slack.example/x")).render(
            Notice(type=FIRING, at_ns=START_NS, data=data)
        )
    )
    return [block["text"]["text"] for block in body["blocks"]]


def stop_links(folder: Path, policy: Policy, before: Callable[[Parts], object] = lambda _: None) -> Any:  # noqa: ANN401 - JSON
    """The stop link that a message about a finding has."""
    with closing(Parts(folder, policy=policy, alerts=AlertParts(links=LINKS))) as parts:
        before(parts)
        Spool(folder / "spool.db", parts.clock).add(STUCK)
        parts.decide_all()
        with parts.db.reading() as connection:
            alert = get_alert(connection, f"al_{STUCK.id}")
        tells = Notices(LINKS, lambda _tx, _session, _finding: (), lambda _session: None)
        with parts.db.transaction() as tx:
            links: Any = tells(tx, alert, FIRING).data["links"]
    return links["stop"]


@pytest.mark.parametrize(
    ("reach", "action", "shadow", "offered"),
    [
        (Reach.SESSION, Action.HALT, False, False),
        (Reach.SESSION, Action.HALT, True, True),
        (Reach.SESSION, Action.DENY, False, True),
        (Reach.SESSION_TOOL, Action.HALT, False, True),
        (None, Action.HALT, False, True),
    ],
)
def test_a_session_that_is_halted_is_offered_no_stop(
    tmp_path: Path, reach: Reach | None, action: Action, *, shadow: bool, offered: bool
) -> None:
    policy = Policy(rules=(Rule(name="r", reach=reach, action=action, trip_in_shadow=shadow),))
    assert (stop_links(tmp_path, policy) is not None) is offered


def test_a_halt_by_hand_counts_until_it_is_reset(tmp_path: Path) -> None:
    def halted(parts: Parts) -> str:
        scope = Scope(session=STUCK.session_id)
        return parts.breakers.act(scope, Event.TRIP, PERSON, "x", action=Action.HALT).id

    for name, reset in (("held", False), ("reset", True)):
        folder = tmp_path / name
        folder.mkdir()

        def before(parts: Parts, *, reset: bool = reset) -> None:
            key = halted(parts)
            if reset:
                parts.breakers.act(key, Event.RESET, PERSON, "well")

        assert (stop_links(folder, Policy(), before) is not None) is reset


@pytest.mark.parametrize("part", ["text", "slack", "brief"])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_alerts_about_ourselves_have_words_of_their_own(kind: str, part: str) -> None:
    data = notice(alert_of(about_us(kind, service="shop")), ()).data
    said = Wording("any", plain).render(part, data).replace("*", "").replace("(since", "Since")
    assert "tuck" not in said
    assert "ried" not in said
    assert "unknown" not in said
    assert "Since 2023-11-14 22:13:20 UTC" in said
    if part != "brief":
        assert "Suggested next step" in said
        assert "shop" in said


def test_what_is_known_of_a_run_that_goes_on_is_told() -> None:
    finding = about_us(STILL_RUNNING, session_id="chat-17", agent="buyer", service="shop")
    data = notice(alert_of(finding), (), notes=Notes(session_id="chat-17", calls=12)).data
    said = Wording("any", plain).render("text", data).splitlines()
    assert said[1:4] == [
        "Since 2023-11-14 22:13:20 UTC: still_running, critical",
        "About: buyer, shop, session chat-17",
        "So far: 12 calls, unknown tokens, cost unknown",
    ]
    assert said[4].startswith("Suggested next step: End its process")


def test_what_has_no_scope_is_about_nobody() -> None:
    said = Wording("any", plain).render("text", notice(alert_of(about_us(NO_DATA)), ()).data)
    assert "About" not in said


@pytest.mark.parametrize(
    "calls",
    [
        [("fetch_page", {"url": "a"})] * 6,
        [("fetch_page", {"url": f"a{number}"}) for number in range(9)],
    ],
)
def test_an_error_is_quoted_twice_at_most(calls: list[tuple[str, Any]]) -> None:
    stream = Stream(session="chat-17", agent="buyer").user(text="buy it")
    for tool, arguments in calls:
        stream.call(tool, arguments, error=ERROR)
    judge = Engine(detectors())
    found = [finding for step in stream.steps for finding in judge.apply(StepSeen(step))]
    finding = [one for one in found if one.severity.rank][-1]
    notes = book_of(stream, finding).notes("chat-17")
    assert notes is not None
    data = notice(alert_of(finding), (), notes=notes, handoff=brief(finding, notes)).data
    assert ERROR[:30] in str(data["cause"])
    whole = "\n".join(slack(data))
    assert 1 <= whole.count(ERROR[:30]) <= 2, whole


def test_a_summary_is_repeated_only_when_the_header_had_no_room() -> None:
    data = {**notice(alert_of(STUCK), ()).data, "summary": "x" * 120}
    assert "x" * 120 in slack(data)[0]
    assert not any("x" * 120 in text for text in slack(data)[1:])
    long = {**data, "summary": "y" * 200}
    assert slack(long)[1] == "y" * 200


def test_what_the_summary_says_is_no_cause() -> None:
    causes: Any = {
        "causes": {"confirmed": [], "suspected": [{"text": STUCK.summary}, {"text": "a gate is shut"}]}
    }
    assert notice(alert_of(STUCK), (), handoff=causes).data["cause"] == "a gate is shut (suspected)"
    causes["causes"]["suspected"].pop()
    assert notice(alert_of(STUCK), (), handoff=causes).data["cause"] is None
