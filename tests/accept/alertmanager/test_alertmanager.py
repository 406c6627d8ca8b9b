"""The real Alertmanager of Debian: its restart, a cluster of two, silences, inhibition, shared labels."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from harness import free_port
from prometheus_client import CollectorRegistry

from control.db import ControlDb
from control.delivery import Delivery
from control.metrics import ControlMetrics
from control.notifiers.alertmanager import Alertmanager, AlertmanagerConfig
from control.notifiers.protocol import FIRING, RESOLVED, Notice
from control.outbox import Outbox
from control.posting import Poster
from control.retry import RetryPolicy
from tests.control.support import Receiver, eventually, receiving

pytestmark = [pytest.mark.accept]
PATIENCE_S: Final = 30.0
CONFIG: Final = """
global: {{resolve_timeout: 5s}}
route:
  receiver: on-call
  group_by: [alertname, service, agent]
  group_wait: 200ms
  group_interval: 1s
  repeat_interval: 1h
inhibit_rules:
  - source_matchers: [kind = cascade]
    target_matchers: [kind = doom_loop]
    equal: [service]
receivers:
  - name: on-call
    webhook_configs: [{{url: "{url}", send_resolved: true}}]
"""


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    subprocess.run([Path(__file__).parent / "install"], check=True, timeout=300)


@pytest.fixture
def on_call() -> Iterator[Receiver]:
    yield from receiving()


class Member:
    """One Alertmanager on loopback that can be ended and started again on its data."""

    def __init__(self, folder: Path, on_call: Receiver, name: str = "a", peer: int | None = None) -> None:
        self.port, self.cluster_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._data = folder / name
        self._config = folder / f"{name}.yml"
        self._config.write_text(CONFIG.format(url=on_call.url), encoding="utf-8")
        self._log = folder / f"{name}.log"
        self._peer = [] if peer is None else [f"--cluster.peer=127.0.0.1:{peer}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            "prometheus-alertmanager",
            f"--config.file={self._config}",
            f"--storage.path={self._data}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            f"--cluster.listen-address=127.0.0.1:{self.cluster_port}",
            "--cluster.settle-timeout=1s",
            "--cluster.gossip-interval=50ms",
            *self._peer,
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self.ready, PATIENCE_S)

    def ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text(encoding="utf-8")[-2000:]
        try:
            return httpx.get(f"{self.url}/-/ready", trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_S)
            self._process = None

    def alerts(self) -> dict[str, str]:
        """State of every alert by its kind."""
        found = httpx.get(f"{self.url}/api/v2/alerts", trust_env=False).json()
        return {alert["labels"]["kind"]: alert["status"]["state"] for alert in found}

    def silence(self, name: str, value: str) -> str:
        now = datetime.now(UTC)
        body = {
            "matchers": [{"name": name, "value": value, "isRegex": False, "isEqual": True}],
            "startsAt": now.isoformat(),
            "endsAt": (now + timedelta(hours=1)).isoformat(),
            "createdBy": "test",
            "comment": "test",
        }
        answer = httpx.post(f"{self.url}/api/v2/silences", json=body, trust_env=False)
        return str(answer.json()["silenceID"])

    def unsilence(self, silence_id: str) -> None:
        httpx.delete(f"{self.url}/api/v2/silence/{silence_id}", trust_env=False).raise_for_status()


class Sender:
    """Our outbox and delivery with one destination: the cluster. Refreshes every second."""

    def __init__(self, folder: Path, *members: Member) -> None:
        config = AlertmanagerConfig(
            name="am", urls=tuple(one.url for one in members), refresh_s=1.0, timeout_s=2.0
        )
        notifiers = {"am": Alertmanager(config)}
        self.db = ControlDb(folder / "control.db")
        retry = RetryPolicy(first_s=0.1, cap_s=0.5)
        outbox = Outbox(self.db, retry, now_ns=time.time_ns, random=random.random)
        self._poster = Poster(outbox, notifiers)
        self._delivery = Delivery(outbox, notifiers, ControlMetrics(CollectorRegistry()), now_ns=time.time_ns)
        self._delivery.start()

    def tell(self, what: str, alert: str = "al_1", **data: str) -> None:
        given = {
            "alert_id": alert,
            "state": what.rpartition(".")[2],
            "kind": "doom_loop",
            "severity": "critical",
            "summary": "stuck",
            "service": "shop",
            "agent": "buyer",
            "session_id": f"session of {alert}",
        }
        notice = Notice(type=what, at_ns=time.time_ns(), data=given | data)
        with self.db.transaction() as tx:
            self._poster.tell(tx, "am", alert, f"msg_{alert}_{what.rpartition('.')[2]}", notice)
            tx.after_commit(self._delivery.wake)

    def close(self) -> None:
        self._delivery.stop()
        self.db.close()


@pytest.fixture
def made(tmp_path: Path, on_call: Receiver) -> Iterator[tuple[Member, Sender]]:
    member = Member(tmp_path, on_call)
    member.start()
    sender = Sender(tmp_path, member)
    yield member, sender
    sender.close()
    member.end(signal.SIGKILL)


def paged(on_call: Receiver, kind: str = "doom_loop") -> list[str]:
    """What on-call heard of alerts of a kind: firing or resolved, in order."""
    told: list[dict[str, Any]] = [json.loads(request.body) for request in list(on_call.received)]
    return [a["status"] for group in told for a in group["alerts"] if a["labels"]["kind"] == kind]


def await_pages(on_call: Receiver, *wanted: str, kind: str = "doom_loop") -> None:
    eventually(lambda: paged(on_call, kind) == list(wanted), PATIENCE_S)


def test_a_restart_loses_neither_what_fires_nor_its_end(
    made: tuple[Member, Sender], on_call: Receiver
) -> None:
    member, sender = made
    sender.tell(FIRING)
    await_pages(on_call, "firing")
    member.end(signal.SIGTERM)
    member.start()
    eventually(lambda: member.alerts() == {"doom_loop": "active"}, PATIENCE_S)
    member.end(signal.SIGTERM)
    sender.tell(RESOLVED)
    member.start()
    await_pages(on_call, "firing", "resolved")


def test_after_kill_9_it_knows_again_what_fires_and_tells_its_end(
    made: tuple[Member, Sender], on_call: Receiver
) -> None:
    member, sender = made
    sender.tell(FIRING)
    await_pages(on_call, "firing")
    member.end(signal.SIGKILL)
    member.start()
    eventually(lambda: member.alerts() == {"doom_loop": "active"}, PATIENCE_S)
    eventually(lambda: paged(on_call)[-1] == "firing", PATIENCE_S)
    time.sleep(0.5)  # it has forgotten that it told on-call, and tells it again
    sender.tell(RESOLVED)
    eventually(lambda: paged(on_call)[-1] == "resolved", PATIENCE_S)


def test_what_fires_for_longer_than_its_own_timeout_stays_and_ends_once(
    made: tuple[Member, Sender], on_call: Receiver
) -> None:
    member, sender = made
    sender.tell(FIRING)
    await_pages(on_call, "firing")
    deadline = time.monotonic() + 8.0  # its resolve_timeout is 5 s, and we say 4 s at each refresh
    while time.monotonic() < deadline:
        assert member.alerts() == {"doom_loop": "active"}
        time.sleep(0.5)
    sender.tell(RESOLVED)
    await_pages(on_call, "firing", "resolved")


def test_both_members_of_a_cluster_know_and_on_call_hears_once(tmp_path: Path, on_call: Receiver) -> None:
    first = Member(tmp_path, on_call, "a")
    second = Member(tmp_path, on_call, "b", peer=first.cluster_port)
    for member in (first, second):
        member.start()
    sender = Sender(tmp_path, first, second)
    try:
        sender.tell(FIRING)
        for member in (first, second):
            eventually(lambda member=member: member.alerts() == {"doom_loop": "active"}, PATIENCE_S)  # type: ignore[misc]  # bound at once
        await_pages(on_call, "firing")
        second.end(signal.SIGKILL)
        sender.tell(FIRING, "al_2", kind="flail")
        await_pages(on_call, "firing", kind="flail")
        second.start()
        eventually(lambda: second.alerts() == {"doom_loop": "active", "flail": "active"}, PATIENCE_S)
        sender.tell(RESOLVED)
        sender.tell(RESOLVED, "al_2", kind="flail")
        eventually(lambda: paged(on_call)[-1] == "resolved", PATIENCE_S)
        eventually(lambda: paged(on_call, "flail")[-1] == "resolved", PATIENCE_S)
        assert paged(on_call)[0] == "firing"
    finally:
        sender.close()
        for member in (first, second):
            member.end(signal.SIGKILL)


def test_its_silences_match_our_labels(made: tuple[Member, Sender], on_call: Receiver) -> None:
    member, sender = made
    silence = member.silence("service", "shop")
    sender.tell(FIRING)
    eventually(lambda: member.alerts() == {"doom_loop": "suppressed"}, PATIENCE_S)
    sender.tell(FIRING, "al_2", service="bank", kind="flail")
    await_pages(on_call, "firing", kind="flail")
    assert paged(on_call) == []
    member.unsilence(silence)
    await_pages(on_call, "firing")


def test_its_inhibition_works_with_our_labels(made: tuple[Member, Sender], on_call: Receiver) -> None:
    member, sender = made
    sender.tell(FIRING, "al_root", kind="cascade")
    await_pages(on_call, "firing", kind="cascade")
    sender.tell(FIRING, "al_child")
    eventually(lambda: member.alerts() == {"cascade": "active", "doom_loop": "suppressed"}, PATIENCE_S)
    assert paged(on_call) == []
    sender.tell(RESOLVED, "al_root", kind="cascade")
    await_pages(on_call, "firing")


def test_alerts_with_equal_labels_end_with_the_last_of_them(
    made: tuple[Member, Sender], on_call: Receiver
) -> None:
    member, sender = made
    sender.tell(FIRING, "al_1")
    sender.tell(FIRING, "al_2")
    await_pages(on_call, "firing")
    sender.tell(RESOLVED, "al_1")
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        assert member.alerts() == {"doom_loop": "active"}
        time.sleep(0.3)
    sender.tell(RESOLVED, "al_2")
    await_pages(on_call, "firing", "resolved")
