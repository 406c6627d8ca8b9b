from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from control.action import Action
from control.actor import Actor
from control.alerts import AlertState, list_alerts
from control.breakers.verdict import Decision
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Reach, Rule
from control.scope import Asked
from control.service import ControlLoop, LoopSettings
from detectors.protocol import Severity
from tests.control.support import (
    SECRET,
    STUCK,
    ManualClock,
    Parts,
    Receiver,
    Reply,
    Spool,
    another,
    eventually,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HALT = Policy(rules=(Rule(name="halt", reach=Reach.SESSION, action=Action.HALT),))
DENY = Policy(rules=(Rule(name="deny"),))
PERSON = Actor(type="person", id="on-call")


@pytest.fixture
def parts(tmp_path: Path, receiver: Receiver, clock: ManualClock) -> Iterator[Parts]:
    hook = Webhook(WebhookConfig(name="hook", url=receiver.url, secrets=(SECRET,)))
    with closing(Parts(tmp_path, policy=HALT, notifiers={"hook": hook}, clock=clock)) as made:
        yield made


def firing(parts: Parts) -> list[str]:
    with parts.db.reading() as connection:
        found = list_alerts(connection, state=AlertState.FIRING, session_id=None, before=None, limit=99)
    return [alert.finding.id for _, alert in found]


def pending(parts: Parts, finding_id: str = STUCK.id) -> list[str]:
    with parts.db.reading() as connection:
        rows = connection.execute(
            "SELECT message_id FROM outbox WHERE state = 'pending' AND message_id LIKE ? ORDER BY seq",
            (f"msg_{finding_id}_%",),
        )
        return [row["message_id"] for row in rows]


def attempts(parts: Parts) -> int:
    with parts.db.reading() as connection:
        return int(connection.execute("SELECT count(*) FROM attempts").fetchone()[0])


def test_a_critical_finding_pages_and_stops_the_session(parts: Parts, spool: Spool) -> None:
    spool.add(STUCK)
    parts.decide_all()
    assert firing(parts) == [STUCK.id]
    assert pending(parts) == [f"msg_{STUCK.id}_1_firing"]
    assert parts.index.check(Asked(session="session-1", tool="anything")).decision is Decision.HALT


def test_without_a_policy_it_only_pages(tmp_path: Path, spool: Spool) -> None:
    spool.add(STUCK)
    with closing(Parts(tmp_path)) as parts:
        parts.decide_all()
        assert firing(parts) == [STUCK.id]
        assert parts.index.check(Asked(session="session-1", tool="fetch_page")).decision is Decision.ALLOW


def test_a_warning_neither_pages_nor_stops(parts: Parts, spool: Spool) -> None:
    spool.add(replace(STUCK, severity=Severity.WARNING))
    parts.decide_all()
    assert firing(parts) == []
    assert parts.index.check(Asked(session="session-1", tool="fetch_page")).decision is Decision.ALLOW


def test_findings_are_decided_once(parts: Parts, spool: Spool) -> None:
    spool.add(STUCK)
    parts.decide_all()
    spool.add(replace(STUCK, revision=1, occurrences=9))
    parts.decide_all()
    assert pending(parts) == [f"msg_{STUCK.id}_1_firing"]
    with parts.db.reading() as connection:
        ((_, alert),) = list_alerts(connection, state=None, session_id=None, before=None, limit=9)
        assert connection.execute("SELECT count(*) FROM breaker_events").fetchone()[0] == 1
    assert alert.finding.occurrences == 9


def test_after_a_restart_everything_is_as_before(
    tmp_path: Path, parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK)
    parts.decide_all()
    parts.close()
    with closing(Parts(tmp_path, policy=HALT, clock=clock)) as again:
        assert again.control.step() == 0
        assert firing(again) == [STUCK.id]
        assert pending(again) == [f"msg_{STUCK.id}_1_firing"]
        assert again.index.check(Asked(session="session-1", tool="x")).decision is Decision.HALT
        assert again.index.revision == parts.index.revision


def test_a_replaced_spool_is_read_anew_and_nothing_is_decided_twice(
    tmp_path: Path, parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK, another(1), another(2))
    parts.decide_all()
    for file in tmp_path.glob("spool.db*"):
        file.unlink()
    Spool(tmp_path / "spool.db", clock).add(STUCK, another(3))
    parts.decide_all()
    assert sorted(firing(parts)) == sorted([STUCK.id, *(another(n).id for n in (1, 2, 3))])
    assert pending(parts) == [f"msg_{STUCK.id}_1_firing"]


def test_a_replaced_spool_that_has_more_findings_than_were_read_is_read_from_its_start(
    tmp_path: Path, parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK)
    parts.decide_all()
    parts.close()
    for file in tmp_path.glob("spool.db*"):
        file.unlink()
    Spool(tmp_path / "spool.db", clock).add(another(1), another(2), another(3))
    with closing(Parts(tmp_path, policy=HALT, clock=clock)) as again:
        again.decide_all()
        assert sorted(firing(again)) == sorted([STUCK.id, *(another(n).id for n in (1, 2, 3))])
    with closing(Parts(tmp_path, policy=HALT, clock=clock)) as restarted:
        assert restarted.control.step() == 0


def test_rows_that_are_no_findings_are_passed_over_and_counted(parts: Parts, spool: Spool) -> None:
    spool.add_raw("{")
    spool.add(STUCK)
    parts.decide_all()
    assert firing(parts) == [STUCK.id]
    assert parts.registry.get_sample_value("recloser_control_findings_malformed_total") == 1


def test_a_row_that_cannot_be_decided_leaves_nothing_behind_and_stops_no_other(
    parts: Parts, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = parts.control.desk.alerting.take
    calls: list[int] = []

    def breaks_once(*given: Any) -> Any:  # noqa: ANN401 - passed through
        calls.append(1)
        taken = take(*given)
        if len(calls) == 1:
            raise RuntimeError("defect")
        return taken

    monkeypatch.setattr(parts.control.desk.alerting, "take", breaks_once)
    spool.add(another(1), another(2))
    parts.decide_all()
    assert firing(parts) == [another(2).id]
    assert parts.registry.get_sample_value("recloser_control_findings_malformed_total") == 1


def test_what_was_found_before_a_reset_does_not_trip_again(
    parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK)
    parts.decide_all()
    spool.add(replace(STUCK, revision=1))
    clock.advance(1)
    (breaker,) = parts.index.open_breakers()
    parts.control.reset_breaker(breaker.id, PERSON, "looked at it")
    parts.decide_all()
    assert parts.index.open_breakers() == []
    clock.advance(1)
    spool.add(replace(STUCK, revision=2))
    parts.decide_all()
    assert [b.episode for b in parts.index.open_breakers()] == [2]


def test_a_resolve_follows_its_firing(parts: Parts, spool: Spool) -> None:
    spool.add(STUCK)
    parts.decide_all()
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "done")
    assert pending(parts) == [f"msg_{STUCK.id}_1_firing", f"msg_{STUCK.id}_1_resolved"]


def test_what_is_over_is_forgotten_in_the_end_and_what_is_not_is_kept(
    parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK, another(1, session_id="session-2"))
    parts.decide_all()
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "done")
    (breaker,) = (b for b in parts.index.open_breakers() if b.scope.session == "session-2")
    parts.control.reset_breaker(breaker.id, PERSON, "done")
    clock.advance(31 * 86_400)
    spool.add(another(1, session_id="session-2", revision=1))
    parts.decide_all()
    parts.index.check(Asked(session="session-1", tool="x"))
    parts.control.settle()
    parts.control.housekeep(30 * 86_400.0)
    assert firing(parts) == [another(1).id]
    assert {b.scope.session for b in parts.index.open_breakers()} == {"session-1", "session-2"}
    assert counts(parts) == {
        "findings": 1,
        "alerts": 1,
        "alert_events": 1,
        "breakers": 2,
        "breaker_events": 1,
        "outbox": 3,  # given up a moment ago
    }


def test_what_nothing_happens_to_ends_by_itself_and_is_forgotten_then(
    parts: Parts, spool: Spool, clock: ManualClock
) -> None:
    spool.add(STUCK)
    parts.decide_all()
    clock.advance(29 * 86_400)
    parts.control.housekeep(30 * 86_400.0)
    assert firing(parts) == [STUCK.id]
    clock.advance(2 * 86_400)
    parts.control.housekeep(30 * 86_400.0)
    assert firing(parts) == []
    assert parts.index.check(Asked(session="session-1", tool="x")).decision is Decision.ALLOW
    assert pending(parts) == [f"msg_{STUCK.id}_1_resolved"]
    with parts.db.reading() as connection:
        for table in ("alert_events", "breaker_events"):
            rows = connection.execute(f"SELECT event FROM {table}").fetchall()
            assert [row["event"] for row in rows] == ["expire"]
    revision = parts.index.revision
    clock.advance(31 * 86_400)
    parts.control.housekeep(30 * 86_400.0)
    parts.control.housekeep(-1)
    assert set(counts(parts).values()) == {0}
    parts.db.close()
    with closing(Parts(parts.db.path.parent, policy=HALT, clock=clock)) as again:
        assert again.index.revision == revision


def counts(parts: Parts) -> dict[str, int]:
    """How many rows there are, by table."""
    tables = ("findings", "alerts", "alert_events", "breakers", "breaker_events", "outbox")
    with parts.db.reading() as connection:
        return {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


def test_the_threads_deliver_a_signed_page_with_the_breaker_in_it(
    parts: Parts, spool: Spool, receiver: Receiver
) -> None:
    receiver.script = [Reply(503, {"retry-after": "0"})]
    loop = ControlLoop(parts.control, LoopSettings(poll_s=0.01), time.monotonic)
    parts.delivery.start()
    loop.start()
    try:
        spool.add(STUCK)
        first = receiver.wait_for(1)[0]
        eventually(lambda: attempts(parts) == 1)
        parts.clock.advance(10)
        parts.delivery.wake()
        second = receiver.wait_for(2)[1]
        eventually(lambda: pending(parts) == [])
    finally:
        loop.stop()
        parts.delivery.stop()
        parts.delivery.stop()
    assert (first.id, first.body) == (second.id, second.body)
    assert second.signed_with(SECRET)
    told = second.json["data"]
    assert [b["action"] for b in told["breakers"]] == ["halt"]
    assert second.json["type"] == "alert.firing"
    assert not loop.alive
    assert not parts.delivery.alive


def test_a_slow_destination_holds_up_no_other(tmp_path: Path, spool: Spool, receiver: Receiver) -> None:
    other = Receiver()
    hooks = {
        name: Webhook(WebhookConfig(name=name, url=place.url, secrets=(SECRET,)))
        for name, place in (("slow", receiver), ("fast", other))
    }
    receiver.script = [Reply(delay_s=60.0)]
    with closing(Parts(tmp_path, notifiers=hooks)) as parts, closing(other):
        spool.add(*(another(n, session_id=f"s{n}") for n in range(5)))
        parts.decide_all()
        parts.delivery.start()
        assert len(other.wait_for(5)) == 5
        assert len(receiver.received) == 1
        parts.delivery.stop()
