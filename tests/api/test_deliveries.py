"""The ledger, destinations and tests of them, over HTTP and by command line."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from api.cli import app
from control.ledger import list_deliveries
from control.notifiers.protocol import Failed, Gone
from control.outbox import Due
from tests.api.conftest import SECRETS
from tests.control.support import SECRET, STUCK, Receiver, Reply, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from control.notifiers.protocol import Result
    from tests.api.conftest import Api


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


def fire(api: Api) -> None:
    api.spool.add(STUCK)
    api.parts.decide_all()


def attempt(api: Api, result: Result) -> None:
    """Make the attempt that is due, with this result."""
    due = api.parts.outbox.next("hook")
    assert isinstance(due, Due)
    api.parts.outbox.begin(due)
    api.parts.outbox.settle("hook", due, result, api.parts.clock())


def test_the_ledger_tells_every_message_and_attempt(api: Api) -> None:
    fire(api)
    attempt(api, Failed("HTTP 503", 503))
    ledger = api.ask("GET", "/v1/deliveries?destination=hook&state=pending").json()
    (entry,) = ledger["deliveries"]
    assert (entry["type"], entry["attempts"], entry["last_error"]) == ("alert.firing", 1, "HTTP 503")
    assert api.ask("GET", f"/v1/deliveries?order_key={entry['order_key']}").json() == ledger
    assert api.ask("GET", "/v1/deliveries?state=dead").json()["deliveries"] == []
    (tried,) = api.ask("GET", f"/v1/deliveries/{entry['seq']}/attempts").json()["attempts"]
    assert (tried["status"], tried["result"], len(tried["body_sha256"])) == (503, "retry", 64)
    assert api.ask("GET", "/v1/deliveries/999/attempts").status_code == 404


def test_a_message_is_sent_again_once_it_is_finished(api: Api) -> None:
    fire(api)
    assert api.ask("POST", "/v1/deliveries/1/replay").status_code == 409
    with api.parts.db.transaction() as tx:
        tx.execute("UPDATE outbox SET state = 'dead'")
    again = api.ask("POST", "/v1/deliveries/1/replay", json={"reason": "it was down"}).json()
    assert [entry["state"] for entry in again["deliveries"]] == ["pending"]
    assert api.ask("POST", "/v1/deliveries/999/replay").status_code == 404
    verbs = [entry["verb"] for entry in api.ask("GET", "/v1/audit").json()["entries"]]
    assert "delivery.replay" in verbs


def test_a_destination_that_said_goodbye_is_shown_and_can_be_used_again(api: Api) -> None:
    fire(api)
    attempt(api, Gone("410 Gone", 410))
    (place,) = api.ask("GET", "/v1/destinations").json()["destinations"]
    assert (place["state"], place["reason"], place["pending"], place["configured"]) == (
        "disabled",
        "410 Gone",
        1,
        True,
    )
    again = api.ask("POST", "/v1/destinations/hook/enable", json={"reason": "it is back"})
    assert (again.status_code, again.json()["state"]) == (200, "ok")
    assert api.ask("POST", "/v1/destinations/nobody/enable").status_code == 404


def test_a_test_is_sent_told_and_written_down(api: Api) -> None:
    trial = api.ask("POST", "/v1/destinations/hook/test").json()
    assert (trial["delivered"], trial["status"]) == (False, None)
    assert "ConnectError" in trial["problem"]
    (entry,) = api.ask("GET", "/v1/deliveries").json()["deliveries"]
    assert (entry["type"], entry["state"], entry["attempts"]) == ("test", "dead", 1)
    assert api.ask("POST", "/v1/destinations/nobody/test").status_code == 404


def test_a_test_goes_past_what_waits_while_the_workers_run(api: Api) -> None:
    fire(api)
    api.parts.delivery.start()
    try:
        assert api.ask("POST", "/v1/destinations/hook/test").json()["delivered"] is False
    finally:
        api.parts.delivery.stop()


@pytest.mark.parametrize("verb", ["read", "check", "trip", "ingest", "admin"])
def test_only_who_may_overrule_may_send(guarded: Api, verb: str) -> None:
    token = SECRETS[verb]  # type: ignore[index]  # verbs are strings
    for path in ("/v1/destinations/hook/test", "/v1/destinations/hook/enable", "/v1/deliveries/1/replay"):
        assert guarded.ask("POST", path, token=token).status_code == 403


def settings_file(folder: Path, receiver: Receiver, extra: str = "") -> Path:
    path = folder / "recloser.toml"
    path.write_text(
        f'data_dir = "{folder}"\napi_port = 1\n'
        f'[[webhooks]]\nname = "hook"\nurl = "{receiver.url}"\nsecrets = ["{SECRET}"]\nfallback = "am"\n'
        f'[[alertmanagers]]\nname = "am"\nurls = ["{receiver.url}"]\n'
        f'[[slack]]\nname = "chat"\nurl = "{receiver.url}"\n{extra}',
        encoding="utf-8",
    )
    return path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["notify", *arguments])
    return done.exit_code, done.output


def test_destinations_are_listed_and_tested_without_a_sidecar(tmp_path: Path, receiver: Receiver) -> None:
    config = str(settings_file(tmp_path, receiver))
    assert run("list", "--config", config) == (
        0,
        "am: not running\nchat: not running\nhook: not running, then am\n",
    )
    code, said = run("test", "hook", "--config", config)
    assert (code, said.split(" in ")[0]) == (0, "hook: delivered")
    assert receiver.received[0].json["type"] == "test"
    assert run("test", "am", "--config", config)[0] == 0
    ends = [alert["endsAt"] > alert["startsAt"] for r in receiver.received[1:] for alert in r.json]
    assert ends == [True, False]


def test_a_test_that_fails_says_why(tmp_path: Path, receiver: Receiver) -> None:
    config = str(settings_file(tmp_path, receiver))
    receiver.script = [Reply(404, body=b"no_service")]
    code, said = run("test", "chat", "--config", config)
    assert (code, "NOT delivered" in said, "HTTP 404: no_service" in said) == (1, True, True)
    code, said = run("test", "nobody", "--config", config)
    assert (code, "no destination is named 'nobody'" in said) == (2, True)


def test_a_test_tells_of_a_broken_template(tmp_path: Path, receiver: Receiver) -> None:
    mine = tmp_path / "mine.j2"
    mine.write_text("{% if %}")
    config = str(settings_file(tmp_path, receiver, f'[templates]\nslack = "{mine}"\n'))
    receiver.script = [Reply(body=b"ok")]
    code, said = run("test", "chat", "--config", config, "--json")
    told: dict[str, Any] = json.loads(said[said.index("{\n") :])
    assert (code, told["delivered"]) == (1, True)
    assert "line 1" in told["template_problem"]


def test_what_stands_in_the_ledger_survives(api: Api) -> None:
    api.ask("POST", "/v1/destinations/hook/test")
    with closing(api.parts), api.parts.db.reading() as connection:
        assert len(list_deliveries(connection, "test_hook")) == 1
