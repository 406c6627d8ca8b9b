"""The life of alerts through all of control: waiting, flapping, acknowledged, routed, over."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from control import flapping
from control.actor import Actor
from control.alerts import AlertSettings, AlertState, IllegalAlertTransition, UnknownAlert, get_alert
from control.alerts.book import firing_of_kind
from control.alerts.desk import AlertParts
from control.alerts.rounds import SLICE
from control.alerts.system import FLAPPING
from control.facts import Fact
from control.notices import notice
from control.notifiers.protocol import Audience, Capabilities, Delivered
from control.policy import Policy, Rule
from detectors.notes import Minute, Notes
from detectors.protocol import Severity
from tests.control.support import STUCK, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from collector.step import Json
    from control.alerts import Alert
    from control.notifiers.protocol import Message, Notice
    from detectors.protocol import Finding

SECOND_NS = 1_000_000_000
PERSON = Actor(type="person", id="on-call")
AL = f"al_{STUCK.id}"


@dataclass
class Kept:
    """A destination that keeps what was rendered for it."""

    name: str
    capabilities: Capabilities
    rendered: list[Notice] = field(default_factory=list)

    @property
    def address(self) -> str:
        return self.name

    def render(self, notice: Notice) -> bytes:
        self.rendered.append(notice)
        return notice.type.encode()

    async def send(self, _message: Message, _at_s: int) -> Delivered:
        return Delivered(200)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class Stage:
    """Control, its spool, and two destinations."""

    parts: Parts
    spool: Spool
    pager: Kept
    chat: Kept

    def find(self, *findings: Finding) -> None:
        self.spool.add(*findings)
        self.parts.decide_all()

    def pass_time(self, seconds: float) -> None:
        self.parts.clock.advance(seconds)
        self.parts.look_after()

    def alert(self, finding: Finding = STUCK) -> Alert:
        with self.parts.db.reading() as connection:
            return get_alert(connection, f"al_{finding.id}")

    def told(self, destination: str = "pager") -> list[str]:
        with self.parts.db.reading() as connection:
            rows = connection.execute(
                "SELECT message_id FROM outbox WHERE destination = ? ORDER BY seq", (destination,)
            ).fetchall()
        return [row["message_id"].removeprefix("msg_").lstrip("0") for row in rows]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[..., Stage]]:
    made: list[Parts] = []

    def build(policy: Policy | None = None, **settings: Any) -> Stage:  # noqa: ANN401 - any settings
        pager = Kept("pager", Capabilities(audience=Audience.PAGER, acknowledges=True))
        chat = Kept("chat", Capabilities(audience=Audience.CHAT))
        notes: dict[str, Notes] = {}
        parts = Parts(
            tmp_path,
            policy=policy,
            notifiers={"pager": pager, "chat": chat},
            alerts=AlertParts(
                settings=AlertSettings(**{"delivery_lag_s": 0.0, **settings}), notes_of=notes.get
            ),
        )
        parts.notes = notes
        made.append(parts)
        return Stage(parts, Spool(tmp_path / "spool.db", parts.clock), pager, chat)

    yield build
    for parts in made:
        parts.close()


def short(finding: Finding, episode: int, state: str) -> str:
    return f"{finding.id}_{episode}_{state}".lstrip("0")


def test_with_a_time_to_wait_it_is_pending_first(stage: Callable[..., Stage]) -> None:
    on = stage(min_firing_s=30.0)
    on.find(STUCK)
    assert (on.alert().state, on.told()) == (AlertState.PENDING, [])
    on.pass_time(29)
    assert on.alert().state is AlertState.PENDING
    on.pass_time(1)
    assert (on.alert().state, on.told()) == (AlertState.FIRING, [short(STUCK, 1, "firing")])


def test_what_is_over_while_it_waits_is_announced_to_nobody(stage: Callable[..., Stage]) -> None:
    on = stage(min_firing_s=30.0)
    on.find(STUCK)
    on.parts.notes["session-1"] = Notes(session_id="session-1", ended_ns=on.parts.clock.now)
    on.pass_time(10)
    assert (on.alert().state, on.told()) == (AlertState.RESOLVED, [])
    assert on.alert().resolved_by == Actor(type="system", id="run_ended")


def test_it_ends_by_itself_once_it_has_been_over_for_long_enough(stage: Callable[..., Stage]) -> None:
    on = stage(keep_firing_s=60.0)
    on.find(STUCK)
    on.parts.notes["session-1"] = Notes(session_id="session-1", last_user_ns=on.parts.clock.now)
    on.pass_time(1)
    on.pass_time(59)
    assert on.alert().state is AlertState.FIRING
    on.find(replace(STUCK, revision=1, detected_at=on.parts.clock.now))  # it goes on: all of it again
    on.pass_time(1)
    on.parts.notes["session-1"] = Notes(session_id="session-1", last_user_ns=on.parts.clock.now)
    on.pass_time(1)
    on.pass_time(59)
    assert on.alert().state is AlertState.FIRING
    on.pass_time(1)
    assert on.alert().state is AlertState.RESOLVED
    assert on.told() == on.told("chat") == [short(STUCK, 1, "firing"), short(STUCK, 1, "resolved")]


def ended(at_ns: int) -> Fact:
    return Fact(1, "ended", "session-1", {"run_id": "run-1", "at_ns": at_ns}, at_ns)


def test_a_fact_that_comes_late_ends_nothing_that_was_found_after_it(stage: Callable[..., Stage]) -> None:
    on = stage()
    on.find(STUCK)
    with on.parts.db.transaction() as tx:
        on.parts.control.desk.take_fact(tx, ended(STUCK.detected_at - 1))
    on.pass_time(61)
    on.pass_time(61)
    assert on.alert().state is AlertState.FIRING


def test_a_fact_ends_the_alerts_of_its_run(stage: Callable[..., Stage]) -> None:
    on = stage()
    other = another(7, run_id="run-2", tool="x")
    on.find(STUCK, other)
    with on.parts.db.transaction() as tx:
        on.parts.control.desk.take_fact(tx, ended(on.parts.clock.now))
        on.parts.control.desk.take_fact(tx, Fact(2, "worked", "session-1", {}, 5))
    on.pass_time(1)
    on.pass_time(60)
    assert (on.alert().state, on.alert(other).state) == (AlertState.RESOLVED, AlertState.FIRING)


def test_a_revision_takes_the_end_of_its_run_back(stage: Callable[..., Stage]) -> None:
    on = stage()
    on.find(STUCK)
    with on.parts.db.transaction() as tx:
        on.parts.control.desk.take_fact(tx, ended(on.parts.clock.now))
    on.find(replace(STUCK, revision=1))
    on.pass_time(61)
    on.pass_time(61)
    assert on.alert().state is AlertState.FIRING


def test_an_alert_that_comes_and_goes_becomes_one_that_says_so(stage: Callable[..., Stage]) -> None:
    on = stage(flap_threshold=3, flap_window_s=600.0)
    for number in range(8):
        on.find(another(number))
        on.parts.clock.advance(1)
        on.parts.control.resolve_alert(f"al_{another(number).id}", PERSON, "over")
    flapping = firing(on, FLAPPING)
    assert len(flapping) == 1
    assert flapping[0].finding.evidence["key"] == on.alert(another(0)).key
    assert on.told() == [
        short(another(0), 1, "firing"),
        short(another(0), 1, "resolved"),
        short(another(1), 1, "firing"),
        short(another(1), 1, "resolved"),
        short(flapping[0].finding, 1, "firing"),
    ]
    assert on.alert(another(5)).covered_by == flapping[0].id
    on.pass_time(601)
    assert firing(on, FLAPPING) == []
    assert on.told()[5:] == [short(flapping[0].finding, 1, "resolved")]


def test_what_flaps_is_calm_only_well_below_what_made_it_flap(tmp_path: Path) -> None:
    settings = AlertSettings(flap_threshold=4, flap_window_s=100.0)
    with closing(Parts(tmp_path)) as parts, parts.db.transaction() as tx:
        for at_s in (0, 10, 20):
            flapping.count_episode(tx, "k", at_s * SECOND_NS, settings)
        calm = [flapping.is_calm(tx, "k", at_s * SECOND_NS, settings) for at_s in (20, 101, 111)]
    assert calm == [False, False, True]


def test_what_still_fires_when_it_flaps_no_more_is_announced(stage: Callable[..., Stage]) -> None:
    on = stage(flap_threshold=2, flap_window_s=600.0)
    on.find(STUCK)
    on.parts.control.resolve_alert(AL, PERSON, "over")
    on.find(replace(STUCK, revision=1))
    assert on.alert().covered_by
    (flapping,) = firing(on, FLAPPING)
    on.parts.control.resolve_alert(flapping.id, PERSON, "I know")
    on.pass_time(60)
    assert on.told()[-1] == short(STUCK, 2, "firing")
    on.parts.control.resolve_alert(AL, PERSON, "over")
    assert on.told()[-1] == short(STUCK, 2, "resolved")
    on.find(replace(STUCK, revision=2))  # the person's word counts: it is counted anew
    assert on.told()[-1] == short(STUCK, 3, "firing")


def test_an_acknowledged_alert_shows_who_and_tells_those_who_can_use_it(stage: Callable[..., Stage]) -> None:
    on = stage()
    on.find(STUCK)
    alert = on.parts.control.desk.acknowledge(AL, PERSON, "on it")
    assert (alert.state, alert.acked_by, alert.ack_note) == (AlertState.FIRING, PERSON, "on it")
    assert on.told() == [short(STUCK, 1, "firing"), short(STUCK, 1, "acknowledged")]
    assert on.told("chat") == [short(STUCK, 1, "firing")]
    assert on.pager.rendered[-1].data["acknowledged_by"] == "on-call"
    on.parts.control.resolve_alert(AL, PERSON, "done")
    with pytest.raises(IllegalAlertTransition):
        on.parts.control.desk.acknowledge(AL, PERSON, "again")
    with pytest.raises(UnknownAlert):
        on.parts.control.desk.acknowledge("al_0", PERSON, "again")
    on.find(replace(STUCK, revision=1))
    assert on.alert().acked_by is None


def test_policy_says_who_is_told_of_what(stage: Callable[..., Stage]) -> None:
    on = stage(
        Policy(
            rules=(
                Rule(
                    name="chatty",
                    min_severity=Severity.WARNING,
                    alert=("chat",),
                    tools=("search",),
                    reach=None,
                ),
                Rule(name="nobody", tools=("noise",), alert=(), reach=None),
            )
        )
    )
    warning = another(1, tool="search", severity=Severity.WARNING, session_id="s1")
    lesser = another(2, severity=Severity.WARNING, session_id="s2")
    unwanted = another(3, tool="noise", session_id="s3")
    on.find(warning, lesser, unwanted, STUCK)
    assert on.told("chat") == [short(warning, 1, "firing"), short(STUCK, 1, "firing")]
    assert on.told() == [short(STUCK, 1, "firing")]
    assert on.alert(warning).rules == ("chatty",)
    for finding in (lesser, unwanted):
        with pytest.raises(UnknownAlert):
            on.alert(finding)
    on.parts.control.resolve_alert(f"al_{warning.id}", PERSON, "done")
    assert on.told("chat")[2:] == [short(warning, 1, "resolved")]
    assert on.told() == [short(STUCK, 1, "firing")]


def test_a_destination_that_does_not_exist_is_passed_over(stage: Callable[..., Stage]) -> None:
    on = stage(Policy(rules=(Rule(name="r", alert=("gone", "chat"), reach=None),)))
    on.find(STUCK)
    on.parts.control.resolve_alert(AL, PERSON, "done")
    assert on.told("chat") == [short(STUCK, 1, "firing"), short(STUCK, 1, "resolved")]
    assert on.told() == []


def test_a_message_says_what_it_cost_what_was_tried_and_what_helps(stage: Callable[..., Stage]) -> None:
    on = stage()
    on.parts.notes["session-1"] = Notes(
        session_id="session-1",
        calls=17,
        input_tokens=1000,
        output_tokens=200,
        cost_usd=0.5,
        first_ns=STUCK.detected_at - 600 * SECOND_NS,
        last_ns=STUCK.detected_at,
        goal="buy milk",
        minutes=(Minute(STUCK.detected_at - 60 * SECOND_NS, 17, 1200, 0.5),),
    )
    on.find(replace(STUCK, evidence={"prescription": "replan", "error_class": "timeout"}))
    data = on.pager.rendered[-1].data
    assert (data["calls"], data["tokens"], data["cost_usd"], data["goal"]) == (17, 1200, 0.5, "buy milk")
    assert data["burn"] == {"tokens_per_minute": 240.0, "usd_per_hour": 6.0}
    assert data["cause"] == "timeout"
    assert "another plan" in str(data["next_step"])
    assert data["labels"] == {
        "kind": "doom_loop",
        "severity": "critical",
        "service": "shop",
        "agent": "buyer",
        "tool": "fetch_page",
        "session_id": "session-1",
        "alert_id": AL,
    }
    assert data["dedup_key"] == on.alert().key


def test_a_turn_looks_at_a_slice_and_a_round_at_all(stage: Callable[..., Stage]) -> None:
    on = stage(keep_firing_s=60.0)
    many = [another(n, session_id=f"s{n}") for n in range(1, 2 * SLICE + 51)]
    on.find(*many)
    for finding in many:
        session = finding.session_id
        on.parts.notes[session] = Notes(session_id=session, last_user_ns=on.parts.clock.now)
    rounds, pauses = on.parts.control.desk.duties[0], []
    for _ in range(3):  # a round: all seem over
        on.pass_time(1)
        pauses.append(rounds.every_s)
    assert pauses == [0.25, 0.25, 1.0]
    assert len(firing(on, "doom_loop")) == len(many)
    on.pass_time(60)
    assert len(firing(on, "doom_loop")) == SLICE + 50
    on.pass_time(1)
    on.pass_time(1)
    assert firing(on, "doom_loop") == []
    assert len(on.told()) == 2 * len(many)


def test_after_a_restart_what_seemed_over_has_to_seem_so_again(
    stage: Callable[..., Stage], tmp_path: Path
) -> None:
    on = stage()
    on.find(STUCK)
    on.parts.notes["session-1"] = Notes(session_id="session-1", last_user_ns=on.parts.clock.now)
    on.pass_time(1)
    on.parts.close()
    with closing(
        Parts(tmp_path, clock=on.parts.clock, alerts=AlertParts(notes_of=on.parts.notes.get))
    ) as again:
        again.clock.advance(60)
        again.look_after()
        assert on_disk(again).state is AlertState.FIRING
        again.clock.advance(60)
        again.look_after()
        assert on_disk(again).state is AlertState.RESOLVED


def on_disk(parts: Parts) -> Alert:
    with parts.db.reading() as connection:
        return get_alert(connection, AL)


def firing(on: Stage, kind: str) -> list[Alert]:
    with on.parts.db.reading() as connection:
        return firing_of_kind(connection, kind)


def test_a_flapping_alert_that_nobody_wants_speaks_for_the_others_all_the_same(
    stage: Callable[..., Stage],
) -> None:
    nobody = Rule(name="quiet", kinds=frozenset({FLAPPING}), alert=(), reach=None)
    on = stage(Policy(rules=(nobody,)), flap_threshold=2)
    on.find(STUCK)
    on.parts.control.resolve_alert(AL, PERSON, "over")
    on.find(replace(STUCK, revision=1))
    assert on.alert().covered_by == firing(on, FLAPPING)[0].id
    assert on.told() == [short(STUCK, 1, "firing"), short(STUCK, 1, "resolved")]


def test_what_the_report_says_of_cause_and_next_step_is_told(stage: Callable[..., Stage]) -> None:
    on = stage()
    alert = replace(on_found(on), told=())
    report: dict[str, Json] = {
        "causes": {"confirmed": [], "suspected": [{"text": "the page is gone"}]},
        "next_step": {"text": "Ask for the address.", "prescription": "replan"},
    }
    data = notice(alert, (), handoff=report).data
    assert (data["cause"], data["next_step"]) == ("the page is gone (suspected)", "Ask for the address.")
    unknown = notice(alert, (), handoff={"causes": "unknown", "next_step": "unknown"}).data
    assert unknown["cause"] is None
    assert "another plan" in str(unknown["next_step"])


def on_found(on: Stage) -> Alert:
    on.find(STUCK)
    return on.alert()
