"""One page for a fleet: alerts of sessions that a fleet-wide alert speaks for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from control.actor import Actor
from control.alerts import AlertState, covers, get_alert, list_alerts
from control.alerts.inhibition import came_of
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Rule
from control.silences import Matcher, Op, Silence
from detectors.notes import Notes
from detectors.protocol import Finding, Severity
from tests.control.support import SECRET, STUCK, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND_NS = 1_000_000_000
PERSON = Actor(type="person", id="on-call")
STORM = replace(
    STUCK,
    id="f" * 16,
    kind="retry_storm",
    session_id="",
    session_ids=("session-1", "session-2"),
    detector="fleet_retry_storm",
    summary="anthropic: compaction failed 20 times in 5 sessions",
    evidence={
        "fleet": True,
        "rule": "same_step",
        "target": "anthropic",
        "step": "compaction",
        "services": ["shop"],
        "missing": [],
    },
)


def suffering(number: int, **changes: Any) -> Finding:  # noqa: ANN401 - any fields
    """A session's finding that the storm explains."""
    evidence = {"target": "anthropic", "step": "compaction", "missing": []}
    fields: dict[str, Any] = {"session_id": f"session-{number}", "evidence": evidence, **changes}
    return another(number, **fields)


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    hook = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:9/hook", secrets=(SECRET,)))
    policy = Policy(rules=(Rule(name="deny", kinds=frozenset({"doom_loop"})),))
    with closing(Parts(tmp_path, policy=policy, notifiers={"hook": hook})) as made:
        yield made


def decide(parts: Parts, tmp_path: Path, *findings: Finding) -> None:
    spool = Spool(tmp_path / "spool.db")
    spool.add(*findings)
    parts.decide_all()


def messages(parts: Parts) -> list[str]:
    with parts.db.reading() as connection:
        rows = connection.execute("SELECT message_id, order_key FROM outbox ORDER BY seq").fetchall()
        ours = [row for row in rows if not get_alert(connection, row["order_key"]).is_system]
    return [row["message_id"] for row in ours]


def states(parts: Parts) -> dict[str, tuple[AlertState, str]]:
    with parts.db.reading() as connection:
        found = list_alerts(connection, state=None, session_id=None, before=None, limit=999)
    return {a.finding.id: (a.state, a.covered_by) for _, a in found if not a.is_system}


def test_a_storm_pages_once_however_many_sessions_suffer(parts: Parts, tmp_path: Path) -> None:
    many = [suffering(n) for n in range(1, 101)]
    decide(parts, tmp_path, STORM, *many, replace(STORM, revision=1))
    assert messages(parts) == [f"msg_{STORM.id}_1_firing"]
    assert states(parts) == {
        STORM.id: (AlertState.FIRING, ""),
        **{finding.id: (AlertState.FIRING, f"al_{STORM.id}") for finding in many},
    }


def test_what_fired_before_the_storm_was_seen_stays_as_it_is(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, suffering(1), STORM, replace(suffering(1), revision=1), suffering(2))
    assert sorted(messages(parts)) == sorted([f"msg_{STORM.id}_1_firing", f"msg_{suffering(1).id}_1_firing"])


def test_breakers_open_all_the_same_and_not_for_the_storm(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    assert {breaker.scope.session for breaker in parts.index.open_breakers()} == {"session-1", "session-2"}


def test_what_goes_on_when_the_root_is_over_is_announced_and_what_does_not_is_not(
    parts: Parts, tmp_path: Path
) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    parts.control.resolve_alert(f"al_{STORM.id}", PERSON, "the provider is back")
    assert {state for state, _ in states(parts).values()} == {AlertState.FIRING, AlertState.RESOLVED}
    ended = [f"msg_{STORM.id}_1_firing", f"msg_{STORM.id}_1_resolved"]
    parts.look_after()
    assert messages(parts) == ended
    parts.notes["session-1"] = Notes(session_id="session-1", last_ns=parts.clock.now + 30 * SECOND_NS)
    parts.notes["session-2"] = Notes(session_id="session-2", last_ns=parts.clock.now - 30 * SECOND_NS)
    parts.clock.advance(61)
    parts.look_after()
    assert messages(parts) == [*ended, f"msg_{suffering(1).id}_1_firing"]
    assert states(parts)[suffering(2).id] == (AlertState.FIRING, "")
    parts.clock.advance(1861)
    parts.look_after()
    parts.clock.advance(61)
    parts.look_after()
    assert {state for state, _ in states(parts).values()} == {AlertState.RESOLVED}
    assert messages(parts)[3:] == [f"msg_{suffering(1).id}_1_resolved"]


def test_a_new_revision_after_the_root_is_over_is_announced(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1))
    parts.control.resolve_alert(f"al_{STORM.id}", PERSON, "the provider is back")
    parts.notes["session-1"] = Notes(session_id="session-1")
    parts.clock.advance(61)
    parts.look_after()
    assert f"msg_{suffering(1).id}_1_firing" not in messages(parts)
    Spool.of(tmp_path / "spool.db", parts.clock).add(replace(suffering(1), revision=1))
    parts.decide_all()
    assert f"msg_{suffering(1).id}_1_firing" in messages(parts)


def test_one_that_is_resolved_alone_tells_nobody(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    parts.control.resolve_alert(f"al_{suffering(1).id}", PERSON, "seen")
    assert messages(parts) == [f"msg_{STORM.id}_1_firing"]
    assert states(parts)[suffering(2).id][0] is AlertState.FIRING


def test_all_expire_once(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    parts.clock.advance(100)
    assert parts.control.desk.expire(parts.clock.now) == 3
    assert parts.control.desk.expire(parts.clock.now) == 0
    assert {state for state, _ in states(parts).values()} == {AlertState.RESOLVED}
    assert messages(parts) == [f"msg_{STORM.id}_1_firing", f"msg_{STORM.id}_1_resolved"]


OTHERS = {
    "another target": suffering(1, evidence={"target": "openai", "step": "compaction"}),
    "another step": suffering(1, evidence={"target": "anthropic", "step": "model_call"}),
    "no target": suffering(1, evidence={}),
    "another service": suffering(1, service="billing"),
    "another kind": suffering(1, kind="cascade"),
    "no session": suffering(1, session_id=""),
    "long after it": suffering(1, detected_at=STORM.detected_at + 601 * SECOND_NS),
    "long before it": suffering(1, detected_at=STORM.detected_at - 601 * SECOND_NS),
}


@pytest.mark.parametrize("finding", OTHERS.values(), ids=OTHERS.keys())
def test_what_has_nothing_to_do_with_it_is_not_covered(finding: Finding) -> None:
    assert covers(STORM, suffering(1))
    assert not covers(STORM, finding)
    assert not covers(suffering(2), suffering(1))


def test_a_target_in_trouble_covers_whatever_was_asked_there() -> None:
    outage = replace(STORM, evidence={**STORM.evidence, "rule": "transient"})
    assert covers(outage, suffering(1, evidence={"target": "anthropic", "step": "model_call"}))


def test_a_storm_that_lasts_covers_for_longer() -> None:
    lasting = replace(STORM, started_at=STORM.detected_at - 3600 * SECOND_NS)
    assert covers(lasting, suffering(1, detected_at=STORM.detected_at + 5000 * SECOND_NS))


def test_a_warning_is_no_alert_covered_or_not(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1, severity=Severity.WARNING))
    assert list(states(parts)) == [STORM.id]


CASCADE = replace(
    STUCK,
    id="c" * 16,
    kind="cascade",
    detector="cascade",
    tool="login",
    started_at=STUCK.started_at - SECOND_NS,
    evidence={"root_step_id": "r", "dependents": ["a"], "root_tool": "login"},
)


def test_a_cascade_speaks_for_what_came_of_it_in_its_run(parts: Parts, tmp_path: Path) -> None:
    flail = another(5, kind="flail", detector="flail", tool="fetch")
    decide(parts, tmp_path, CASCADE, STUCK, flail)
    assert messages(parts) == [f"msg_{CASCADE.id}_1_firing"]
    assert states(parts)[STUCK.id] == states(parts)[flail.id] == (AlertState.FIRING, f"al_{CASCADE.id}")


NOT_OF_IT = {
    "another run": {"run_id": "run-2"},
    "another session": {"session_id": "session-2"},
    "older than the root": {"started_at": CASCADE.started_at - 1},
    "of a kind of its own": {"kind": "budget"},
    "a cascade too": {"kind": "cascade"},
}


@pytest.mark.parametrize("change", NOT_OF_IT.values(), ids=NOT_OF_IT.keys())
def test_what_did_not_come_of_a_cascade_is_announced(change: dict[str, Any]) -> None:
    assert came_of(CASCADE, STUCK)
    assert not came_of(CASCADE, replace(STUCK, **change))


def test_what_a_silence_held_back_is_not_announced_when_its_root_fires_by_then(
    parts: Parts, tmp_path: Path
) -> None:
    parts.control.desk.silence(
        Silence(
            id="si_1",
            matchers=(Matcher(name="kind", op=Op.EQUAL, value="doom_loop"),),
            starts_at=parts.clock.now,
            ends_at=parts.clock.now + 60 * SECOND_NS,
            comment="a look at it",
            created_by=PERSON,
            created_at=parts.clock.now,
        ),
        PERSON,
    )
    decide(parts, tmp_path, STUCK, CASCADE)
    assert messages(parts) == [f"msg_{CASCADE.id}_1_firing"]
    assert states(parts)[STUCK.id] == (AlertState.FIRING, "")
    parts.clock.advance(60)
    parts.look_after()
    assert messages(parts) == [f"msg_{CASCADE.id}_1_firing"]
    assert states(parts)[STUCK.id] == (AlertState.FIRING, f"al_{CASCADE.id}")


def test_a_cascade_does_not_hold_itself_back(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, CASCADE, replace(CASCADE, revision=1))
    assert not came_of(CASCADE, CASCADE)
    assert messages(parts) == [f"msg_{CASCADE.id}_1_firing"]


def test_alerts_of_one_key_are_announced_one_after_the_other(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STUCK, another(1), another(2))
    first, second = f"msg_{STUCK.id}_1", f"msg_{another(1).id}_1"
    assert messages(parts) == [f"{first}_firing"]
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "seen")
    parts.clock.advance(61)
    parts.look_after()
    assert messages(parts) == [f"{first}_firing", f"{first}_resolved", f"{second}_firing"]
    with parts.db.reading() as connection:
        assert len({get_alert(connection, f"al_{f.id}").key for f in (STUCK, another(1), another(2))}) == 1
    assert states(parts)[another(2).id] == (AlertState.FIRING, f"al_{another(1).id}")
