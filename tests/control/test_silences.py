from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from control.actor import Actor
from control.alerts import AlertState, get_alert
from control.notifiers.webhook import Webhook, WebhookConfig
from control.silences import (
    MAX_PATTERN,
    Matcher,
    Op,
    Silence,
    SilenceOver,
    Silences,
    UnknownSilence,
    list_silences,
    silence_from_json,
)
from tests.control.support import SECRET, START_NS, STUCK, Parts, Spool, another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECOND_NS = 1_000_000_000
PERSON = Actor(type="person", id="on-call")
LABELS = {"kind": "doom_loop", "service": "shop", "agent": "buyer"}


def matcher(name: str, op: str, value: str) -> Matcher:
    return Matcher(name=name, op=Op(op), value=value)


def silence(*matchers: Matcher, seconds: int = 600, **changes: Any) -> Silence:  # noqa: ANN401 - any fields
    fields: dict[str, Any] = {
        "id": "si_1",
        "matchers": matchers or (matcher("service", "=", "shop"),),
        "starts_at": START_NS,
        "ends_at": START_NS + seconds * SECOND_NS,
        "comment": "maintenance",
        "created_by": PERSON,
        "created_at": START_NS,
    }
    return Silence(**(fields | changes))


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    hook = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:9/hook", secrets=(SECRET,)))
    with closing(Parts(tmp_path, notifiers={"hook": hook})) as made:
        yield made


def messages(parts: Parts) -> list[str]:
    with parts.db.reading() as connection:
        rows = connection.execute(
            "SELECT message_id FROM outbox WHERE type LIKE 'alert.%' ORDER BY seq"
        ).fetchall()
    return [row["message_id"] for row in rows]


@pytest.mark.parametrize(
    ("name", "op", "value", "holds"),
    [
        ("kind", "=", "doom_loop", True),
        ("kind", "=", "doom", False),
        ("kind", "!=", "flail", True),
        ("kind", "!=", "doom_loop", False),
        ("kind", "=~", "doom_.*|flail", True),
        ("kind", "=~", "doom", False),
        ("kind", "!~", "doom", True),
        ("kind", "!~", "doom.+", False),
        ("tool", "=", "", True),
        ("tool", "=~", ".+", False),
        ("agent", "=~", "(?:buyer|seller)", True),
    ],
)
def test_matchers(name: str, op: str, value: str, *, holds: bool) -> None:
    assert matcher(name, op, value).matches(LABELS) is holds


@pytest.mark.parametrize(
    ("name", "op", "value", "problem"),
    [
        ("color", "=", "red", "name: 'color' is no label"),
        ("kind", "=~", "(", "no regular expression"),
        ("kind", "=~", "(a+)+b", "repeated groups"),
        ("kind", "=~", "(a|aa)*b", "repeated groups"),
        ("kind", "!~", "(a)\\1", "back references"),
        ("kind", "=~", "(?=a)", "look-around"),
        ("kind", "=~", "a?a?a?a?aaaa", "repetitions"),
        ("kind", "=~", "a*a*a*a*b", "repetitions"),
        ("kind", "=~", "a" * (MAX_PATTERN + 1), "characters at most"),
        ("kind", "=", "a" * 501, "more than 500"),
    ],
)
def test_matchers_that_make_no_sense_say_so(name: str, op: str, value: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        matcher(name, op, value)


def test_the_worst_pattern_that_is_allowed_ends_soon() -> None:
    worst = matcher("kind", "=~", ".*.*.*x")
    before = time.process_time()
    assert not worst.matches({"kind": "a" * 100_000})
    assert time.process_time() - before < 5  # minutes without bounds


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"matchers": ()}, "at least one"),
        ({"matchers": (matcher("kind", "!=", "x"),)}, "must not match an empty value"),
        ({"matchers": (matcher("kind", "=~", ".*"),)}, "must not match an empty value"),
        ({"matchers": (matcher("kind", "=", "x"),) * 17}, "16 at most"),
        ({"ends_at": START_NS}, "later than starts_at"),
        ({"ends_at": START_NS + 31 * 86_400 * SECOND_NS}, "30 days"),
    ],
)
def test_silences_that_make_no_sense_say_so(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        silence(**changes)


def test_a_silenced_alert_fires_and_tells_nobody_until_the_silence_ends(parts: Parts, tmp_path: Path) -> None:
    parts.control.desk.silence(silence(), PERSON)
    Spool(tmp_path / "spool.db").add(STUCK)
    parts.decide_all()
    assert messages(parts) == []
    with parts.db.reading() as connection:
        alert = get_alert(connection, f"al_{STUCK.id}")
    assert (alert.state, alert.silenced_by) == (AlertState.FIRING, ("si_1",))
    parts.clock.advance(599)
    parts.look_after()
    assert messages(parts) == []
    parts.clock.advance(1)
    parts.look_after()
    assert messages(parts) == [f"msg_{STUCK.id}_1_firing"]


def test_what_was_announced_gets_its_resolve_although_it_is_silenced(parts: Parts, tmp_path: Path) -> None:
    Spool(tmp_path / "spool.db").add(STUCK)
    parts.decide_all()
    parts.control.desk.silence(silence(), PERSON)
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "done")
    assert messages(parts) == [f"msg_{STUCK.id}_1_firing", f"msg_{STUCK.id}_1_resolved"]


def test_what_was_never_announced_has_no_resolve(parts: Parts, tmp_path: Path) -> None:
    parts.control.desk.silence(silence(), PERSON)
    Spool(tmp_path / "spool.db").add(STUCK, another(1, session_id="s", service="other"))
    parts.decide_all()
    parts.control.resolve_alert(f"al_{STUCK.id}", PERSON, "done")
    parts.clock.advance(601)
    parts.look_after()
    assert messages(parts) == [f"msg_{another(1).id}_1_firing"]


def test_a_silence_that_is_ended_announces_what_still_fires(parts: Parts, tmp_path: Path) -> None:
    parts.control.desk.silence(silence(), PERSON)
    Spool(tmp_path / "spool.db").add(STUCK)
    parts.decide_all()
    parts.clock.advance(5)
    ended = parts.control.desk.unsilence("si_1", PERSON)
    assert ended.ends_at == parts.clock.now
    with pytest.raises(SilenceOver):
        parts.control.desk.unsilence("si_1", PERSON)
    with pytest.raises(UnknownSilence):
        parts.control.desk.unsilence("si_2", PERSON)
    parts.look_after()
    assert messages(parts) == [f"msg_{STUCK.id}_1_firing"]


def test_silences_survive_a_restart_and_are_forgotten_when_over(parts: Parts) -> None:
    later = silence(id="si_2", starts_at=START_NS + 100 * SECOND_NS)
    parts.control.desk.silence(silence(), PERSON)
    parts.control.desk.silence(later, PERSON)
    again = Silences(parts.db, parts.clock)
    assert again.of({"service": "shop"}) == ("si_1",)
    parts.clock.advance(100)
    assert again.of({"service": "shop"}) == ("si_1", "si_2")
    parts.clock.advance(500)
    again.forget()
    assert again.of({"service": "shop"}) == ()
    with parts.db.reading() as connection:
        found = list_silences(connection, ends_after=None, before=None, limit=9)
        active = list_silences(connection, ends_after=parts.clock.now, before=None, limit=9)
        verbs = [row[0] for row in connection.execute("SELECT payload ->> 'verb' FROM audit ORDER BY seq")]
    assert ([one for _, one in found], active) == ([later, silence()], [])
    assert verbs == ["silence.put", "silence.put"]


def test_a_silence_survives_its_json_form(parts: Parts) -> None:
    made = silence(matcher("kind", "=~", "a|b"), matcher("tool", "!=", "c"))
    parts.control.desk.silence(made, PERSON)
    with parts.db.reading() as connection:
        payload = connection.execute("SELECT payload FROM silences").fetchone()[0]
    assert silence_from_json(payload) == made
