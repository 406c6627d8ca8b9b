"""Alerts under everything that can happen to them, in any order, restarts included."""

from __future__ import annotations

import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from control.actor import Actor
from control.alerts import AlertSettings, AlertState, IllegalAlertTransition, UnknownAlert, list_alerts
from control.alerts.desk import AlertParts
from control.alerts.inhibition import came_of, covers
from control.notifiers.webhook import Webhook, WebhookConfig
from control.silences import Matcher, Op, Silence, new_id
from detectors.notes import Notes
from tests.control.support import SECRET, STUCK, ManualClock, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Callable

    from control.alerts import Alert
    from detectors.protocol import Finding

PERSON = Actor(type="person", id="on-call")
SECOND_NS = 1_000_000_000
SETTINGS = AlertSettings(
    min_firing_s=5.0,
    keep_firing_s=10.0,
    idle_s=200.0,
    flap_threshold=3,
    flap_window_s=120.0,
    delivery_lag_s=0.0,
)
STORM = replace(
    STUCK,
    id="f" * 16,
    kind="retry_storm",
    session_id="",
    detector="fleet_retry_storm",
    evidence={"fleet": True, "rule": "transient", "target": "api", "missing": []},
)
CASCADE = another(90, kind="cascade", detector="cascade", tool="login", started_at=STUCK.started_at - 1)
FINDINGS = (
    STORM,
    CASCADE,
    STUCK,
    another(1),
    another(2, session_id="session-2", evidence={"target": "api"}),
    another(3, session_id="session-3"),
    another(4, session_id="session-1", tool="search", detector="flail", kind="flail"),
)
SESSIONS = ("session-1", "session-2", "session-3")


class Alerts(RuleBasedStateMachine):
    """Findings, notes, silences, persons, time and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.path = Path(self._folder.name)
        self.clock = ManualClock()
        self.notes: dict[str, Notes] = {}
        self.revisions: Counter[str] = Counter()

    @initialize()
    def begin(self) -> None:
        self.spool = Spool(self.path / "spool.db", self.clock)
        self.parts = self._start()

    @rule(finding=st.sampled_from(FINDINGS))
    def find(self, finding: Finding) -> None:
        revision = self.revisions[finding.id]
        self.revisions[finding.id] += 1
        at_ns = self.clock.now if revision else finding.detected_at
        self.spool.add(replace(finding, revision=revision, detected_at=at_ns))
        self._watched(self.parts.decide_all)

    @rule(session=st.sampled_from(SESSIONS), ended=st.booleans(), spoke=st.booleans())
    def note(self, session: str, ended: bool, spoke: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        now = self.clock.now
        self.notes[session] = Notes(
            session_id=session,
            last_ns=now,
            ended_ns=now if ended else 0,
            last_user_ns=now if spoke else 0,
        )

    @rule(seconds=st.sampled_from([1, 6, 11, 30, 130, 201]), turns=st.integers(1, 3))
    def pass_time(self, seconds: int, turns: int) -> None:
        for _ in range(turns):
            self.clock.advance(seconds)
            self._watched(self.parts.look_after)

    @rule(name=st.sampled_from(["session_id", "kind"]), value=st.sampled_from([*SESSIONS, "doom_loop"]))
    def silence(self, name: str, value: str) -> None:
        silence = Silence(
            id=new_id(),
            matchers=(Matcher(name=name, op=Op.EQUAL, value=value),),
            starts_at=self.clock.now,
            ends_at=self.clock.now + 60 * SECOND_NS,
            comment="x",
            created_by=PERSON,
            created_at=self.clock.now,
        )
        self.parts.control.desk.silence(silence, PERSON)

    @rule(finding=st.sampled_from(FINDINGS), acknowledge=st.booleans())
    def act(self, finding: Finding, acknowledge: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        desk = self.parts.control.desk
        change = desk.acknowledge if acknowledge else desk.resolve
        with suppress(UnknownAlert, IllegalAlertTransition):
            self._watched(lambda: change(f"al_{finding.id}", PERSON, "seen"))

    @rule()
    def restart(self) -> None:
        self.parts.close()
        self.parts = self._start()

    @invariant()
    def each_announced_firing_has_one_end_after_it_and_only_then(self) -> None:
        if not hasattr(self, "parts"):
            return
        messages = [kind for kind in self._messages() if not kind.endswith("_acknowledged")]
        assert len(set(messages)) == len(messages)
        for position, message in enumerate(messages):
            if message.endswith("_resolved"):
                assert message.replace("_resolved", "_firing") in messages[:position]
        for alert in self._alerts():
            told = f"msg_{alert.finding.id}_{alert.episode}_firing" in messages
            over = f"msg_{alert.finding.id}_{alert.episode}_resolved" in messages
            assert told is alert.was_told
            assert over is (told and alert.state is AlertState.RESOLVED)
        for message in messages:  # of episodes before the present one
            of, episode, state = message.removeprefix("msg_").split("_")
            present = next(a.episode for a in self._alerts() if a.finding.id == of)
            if state == "firing" and int(episode) < present:
                assert f"msg_{of}_{episode}_resolved" in messages

    @invariant()
    def one_alert_of_a_key_is_announced_at_a_time(self) -> None:
        if not hasattr(self, "parts"):
            return
        firing = [a for a in self._alerts() if a.state is AlertState.FIRING]
        assert max(Counter(a.key for a in firing if a.was_told).values(), default=1) == 1
        flapping = [a for a in firing if a.finding.kind == "flapping"]
        assert max(Counter(a.finding.evidence["key"] for a in flapping).values(), default=1) == 1
        by_id = {a.id: a for a in self._alerts()}
        for alert in firing:
            if alert.covered_by:
                assert not alert.was_told
                assert by_id[alert.covered_by].state is AlertState.FIRING

    def teardown(self) -> None:
        if hasattr(self, "parts"):
            self.parts.close()
        self._folder.cleanup()

    def _watched(self, change: Callable[[], object]) -> None:
        """Do something; nothing that a silence or a cover holds back may be announced by it."""
        before, roots = set(self._messages()), self._roots()
        change()
        roots = [root for root in self._roots() if root.id in {other.id for other in roots}]
        new = {m for m in self._messages() if m not in before and m.endswith("_firing")}
        of = self.parts.control.desk.silences.of
        for alert in self._alerts():
            if f"msg_{alert.finding.id}_{alert.episode}_firing" in new:
                assert not alert.covered_by
                assert not of(_labels(alert))
                finding = alert.finding
                assert not any(covers(r.finding, finding) or came_of(r.finding, finding) for r in roots)

    def _roots(self) -> list[Alert]:
        """The alerts that speak for others, as long as they fire."""
        return [a for a in self._alerts() if a.state is AlertState.FIRING and not a.is_system]

    def _start(self) -> Parts:
        hook = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:9/hook", secrets=(SECRET,)))
        return Parts(
            self.path,
            notifiers={"hook": hook},
            clock=self.clock,
            alerts=AlertParts(settings=SETTINGS, notes_of=self.notes.get),
        )

    def _messages(self) -> list[str]:
        with self.parts.db.reading() as connection:
            rows = connection.execute("SELECT message_id FROM outbox ORDER BY seq").fetchall()
        return [row["message_id"] for row in rows]

    def _alerts(self) -> list[Alert]:
        with self.parts.db.reading() as connection:
            found = list_alerts(connection, state=None, session_id=None, before=None, limit=999)
        return [alert for _, alert in found]


def _labels(alert: Alert) -> dict[str, str]:
    return {"session_id": alert.finding.session_id, "kind": alert.finding.kind}


class Thorough(Alerts):
    """The same for longer."""


Alerts.TestCase.settings = settings(max_examples=10, stateful_step_count=25, deadline=None)
Thorough.TestCase.settings = settings(max_examples=250, stateful_step_count=40, deadline=None)
TestAlerts = Alerts.TestCase
TestThorough = pytest.mark.accept(Thorough.TestCase)
