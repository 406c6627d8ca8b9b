"""What fails for one alert, destination or session keeps nothing else from being told, ended or braked."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from control.alerts import AlertSettings, AlertState, list_alerts
from control.alerts.desk import AlertParts
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Rule
from detectors.notes import Notes
from tests.control.support import SECRET, STUCK, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from control.notifiers.protocol import Notice, Notifier


class Broken(Webhook):
    """Cannot write anything."""

    def render(self, notice: Notice) -> bytes:
        raise ValueError(notice.type)


def hooks(broken: str = "") -> Mapping[str, Notifier]:
    return {
        name: (Broken if name == broken else Webhook)(
            WebhookConfig(name=name, url="http://127.0.0.1:9/", secrets=(SECRET,))
        )
        for name in ("chat", "pager")
    }


def states(parts: Parts) -> list[AlertState]:
    with parts.db.reading() as connection:
        found = list_alerts(connection, state=None, session_id=None, before=None, limit=99)
    return [alert.state for _, alert in reversed(found)]


def messages(parts: Parts) -> list[tuple[str, str]]:
    with parts.db.reading() as connection:
        rows = connection.execute("SELECT destination, type FROM outbox ORDER BY seq").fetchall()
    return [(row["destination"], row["type"]) for row in rows]


def test_a_notifier_that_cannot_write_keeps_no_other_from_telling(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.db")
    with closing(Parts(tmp_path, notifiers=hooks(broken="chat"))) as parts:
        spool.add(STUCK)
        parts.decide_all()
        assert messages(parts) == [("pager", "alert.firing")]
        assert parts.registry.get_sample_value("recloser_outbox_expired_total") == 1


def test_a_report_that_cannot_be_written_keeps_no_alert_from_being_told(tmp_path: Path) -> None:
    def no_brief(*_: object) -> Mapping[str, Any]:
        raise KeyError("brief")

    spool = Spool(tmp_path / "spool.db")
    notes = Notes(session_id=STUCK.session_id)
    alerts = AlertParts(notes_of=lambda _: notes, brief_of=no_brief)
    with closing(Parts(tmp_path, notifiers=hooks(), alerts=alerts)) as parts:
        spool.add(STUCK)
        parts.decide_all()
        assert [name for name, _ in messages(parts)] == ["chat", "pager"]


def test_an_alert_that_fails_undoes_no_brake_and_a_brake_that_fails_no_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("defect")

    spool = Spool(tmp_path / "spool.db")
    policy = Policy(rules=(Rule(name="stop"),))
    with closing(Parts(tmp_path, policy=policy, notifiers=hooks())) as parts:
        with monkeypatch.context() as patch:
            patch.setattr(parts.control.desk.alerting, "take", fail)
            spool.add(STUCK)
            parts.decide_all()
        assert (parts.index.open_count, states(parts)) == (1, [])
        with monkeypatch.context() as patch:
            patch.setattr(parts.breakers, "trip", fail)
            spool.add(another(2, session_id="session-2", session_ids=("session-2",)))
            parts.decide_all()
        assert (parts.index.open_count, states(parts)) == (1, [AlertState.FIRING])
        assert parts.registry.get_sample_value("recloser_control_findings_malformed_total") == 2


def test_an_alert_that_cannot_be_looked_after_keeps_no_other_from_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    poisoned: set[str] = set()

    def notes_of(session_id: str) -> None:
        if session_id in poisoned:
            raise KeyError(session_id)

    spool = Spool(tmp_path / "spool.db")
    alerts = AlertParts(notes_of=notes_of, settings=AlertSettings(delivery_lag_s=0.0))
    with closing(Parts(tmp_path, notifiers=hooks(), alerts=alerts)) as parts:
        spool.add(*(another(n, session_id=f"s{n}", session_ids=(f"s{n}",)) for n in (1, 2, 3)))
        parts.decide_all()
        poisoned.add("s1")
        for _ in range(2):
            parts.clock.advance(4000)
            parts.look_after()
        assert states(parts) == [AlertState.FIRING, AlertState.RESOLVED, AlertState.RESOLVED]
        assert caplog.text.count("cannot be looked after") == 1
        poisoned.clear()
        for _ in range(2):
            parts.clock.advance(4000)
            parts.look_after()
        assert states(parts)[0] is AlertState.RESOLVED


def test_a_long_row_of_findings_lets_others_have_the_file_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(tmp_path / "spool.db")
    with closing(Parts(tmp_path, notifiers=hooks())) as parts:
        take = parts.control.desk.alerting.take

        def slowly(*given: Any) -> Any:  # noqa: ANN401 - passed on
            parts.clock.advance(0.03)
            return take(*given)

        monkeypatch.setattr(parts.control.desk.alerting, "take", slowly)
        spool.add(*(another(n, session_id=f"s{n}", session_ids=(f"s{n}",)) for n in range(5)))
        assert [parts.control.step() for _ in range(4)] == [2, 2, 1, 0]
