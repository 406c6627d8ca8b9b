"""One page for a fleet: alerts of sessions that a fleet-wide alert speaks for."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from control.actor import Actor
from control.alerts import AlertState, covers, expire, get_alert, list_alerts
from control.notifiers.webhook import Webhook, WebhookConfig
from control.outbox import list_deliveries
from control.policy import Policy, Rule
from detectors.protocol import Finding, Severity
from tests.control.support import SECRET, START_NS, STUCK, Parts, Spool, another

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
        found = list_alerts(connection, state=None, session_id=None, before=None, limit=999)
        return [message.message_id for _, alert in found for message in list_deliveries(connection, alert.id)]


def states(parts: Parts) -> dict[str, tuple[AlertState, str]]:
    with parts.db.reading() as connection:
        found = list_alerts(connection, state=None, session_id=None, before=None, limit=999)
    return {alert.finding.id: (alert.state, alert.covered_by) for _, alert in found}


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


def test_they_end_with_it_silently_and_may_fire_on_their_own_afterwards(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    parts.control.resolve_alert(f"al_{STORM.id}", PERSON, "the provider is back")
    assert {state for state, _ in states(parts).values()} == {AlertState.RESOLVED}
    assert messages(parts) == [f"msg_{STORM.id}_1_firing", f"msg_{STORM.id}_1_resolved"]
    with parts.db.reading() as connection:
        ended = get_alert(connection, f"al_{suffering(1).id}")
    assert (ended.resolved_by, ended.note) == (PERSON, f"ended with al_{STORM.id}")
    parts.source.close()
    spool = tmp_path / "spool.db"
    spool.unlink()
    for rest in tmp_path.glob("spool.db-*"):
        rest.unlink()
    decide(parts, tmp_path, replace(suffering(1), revision=1))
    assert states(parts)[suffering(1).id] == (AlertState.FIRING, "")
    assert f"msg_{suffering(1).id}_2_firing" in messages(parts)


def test_one_that_is_resolved_alone_tells_nobody(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    parts.control.resolve_alert(f"al_{suffering(1).id}", PERSON, "seen")
    assert messages(parts) == [f"msg_{STORM.id}_1_firing"]
    assert states(parts)[suffering(2).id][0] is AlertState.FIRING


def test_all_expire_once(parts: Parts, tmp_path: Path) -> None:
    decide(parts, tmp_path, STORM, suffering(1), suffering(2))
    with parts.db.transaction() as tx:
        ended = expire(tx, START_NS * 2, 99, START_NS)
    assert [alert.finding.id for alert in ended] == [STORM.id]
    with parts.db.reading() as connection:
        rows = connection.execute("SELECT event, count(*) FROM alert_events GROUP BY event").fetchall()
    assert {row[0]: row[1] for row in rows} == {"fire": 1, "cover": 2, "expire": 3}


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
