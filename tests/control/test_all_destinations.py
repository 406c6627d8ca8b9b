"""One alert from its finding to every kind of destination and back to its end, by the real parts."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from control.actor import Actor
from control.notifiers.catalog import build, configs
from tests.control.support import SECRET, STUCK, ManualClock, Parts, Receiver, Reply, Spool, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = Actor(type="person", id="on-call")
SECTIONS = ("webhooks", "alertmanagers", "alertmanager_webhooks", "pagerduty", "slack")


@pytest.fixture
def receivers() -> Iterator[dict[str, Receiver]]:
    running = {section: receiving() for section in SECTIONS}
    yield {section: next(one) for section, one in running.items()}
    for one in running.values():
        next(one, None)


@pytest.fixture
def parts(tmp_path: Path, receivers: dict[str, Receiver], clock: ManualClock) -> Iterator[Parts]:
    receivers["slack"].script = [Reply(body=b"ok") for _ in range(9)]
    given: dict[str, list[dict[str, Any]]] = {
        section: [{"name": section, "url": receiver.url}] for section, receiver in receivers.items()
    }
    given["webhooks"][0]["secrets"] = [SECRET]
    given["pagerduty"][0]["routing_key"] = "k" * 32
    given["alertmanagers"][0]["urls"] = [receivers["alertmanagers"].url.removesuffix("/hook")]
    with closing(Parts(tmp_path, notifiers=build(configs(given)), clock=clock)) as made:
        yield made


def deliver_all(parts: Parts) -> None:
    async def turns() -> None:
        for name, notifier in parts.notifiers.items():
            while await parts.delivery.attempt_next(name) == 0.0:
                pass
            await notifier.close()

    asyncio.run(turns())


def test_every_kind_hears_of_an_alert_its_acknowledgement_and_its_end(
    parts: Parts, spool: Spool, receivers: dict[str, Receiver], clock: ManualClock
) -> None:
    spool.add(STUCK)
    parts.decide_all()
    deliver_all(parts)
    clock.advance(2)
    parts.control.desk.acknowledge(f"al_{STUCK.id}", PERSON, "looking")
    deliver_all(parts)
    clock.advance(2)
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "restarted it")
    deliver_all(parts)
    heard = {section: [request.json for request in one.received] for section, one in receivers.items()}
    assert [told["type"] for told in heard["webhooks"]] == [
        "alert.firing",
        "alert.acknowledged",
        "alert.resolved",
    ]
    assert [told["event_action"] for told in heard["pagerduty"]] == ["trigger", "acknowledge", "resolve"]
    assert len({told["dedup_key"] for told in heard["pagerduty"]}) == 1
    assert [told["status"] for told in heard["alertmanager_webhooks"]] == ["firing", "resolved"]
    assert len({told["alerts"][0]["fingerprint"] for told in heard["alertmanager_webhooks"]}) == 1
    begin, end = (alerts[0] for alerts in heard["alertmanagers"])
    assert begin["labels"] == end["labels"]
    assert (begin["endsAt"] > begin["startsAt"], end["endsAt"]) == (True, "2023-11-14T22:13:24.000Z")
    texts = [told["text"] for told in heard["slack"]]
    assert [text.split()[1] for text in texts] == ["buyer", "Acknowledged:", "Resolved:"]
    assert "on-call: restarted it" in str(heard["slack"][2]["blocks"])
