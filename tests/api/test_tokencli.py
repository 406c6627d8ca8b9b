from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import app
from control.verbs import Verb
from tests.api.serving import Served, served

CUT_OFF = "from now on exporters, checks and guards without a token are refused (401)"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path) as plane:
        yield plane


@pytest.fixture(autouse=True)
def _no_token_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RECLOSER_TOKEN", "RECLOSER_URL"):
        monkeypatch.delenv(name, raising=False)


def run(*arguments: object, token: str | None = None) -> Result:
    environment = {"COLUMNS": "200"} | ({} if token is None else {"RECLOSER_TOKEN": token})
    return CliRunner().invoke(app, ["token", *map(str, arguments)], env=environment)


def listed(*arguments: object, token: str | None = None) -> list[tuple[str, str]]:
    found = json.loads(run("list", "--json", *arguments, token=token).stdout)
    return [(entry["name"], entry["state"]) for entry in found]


def test_tokens_are_made_before_the_first_start(tmp_path: Path) -> None:
    here = ("--data-dir", tmp_path / "new")
    none = run("list", *here)
    assert (none.exit_code, none.stdout) == (2, "")
    assert "is it another --data-dir?" in none.stderr
    refused = run("create", "bot", "--agent", *here)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "the first token must allow admin" in refused.stderr
    made = run("create", "boss", "--verbs", "all", *here)
    assert made.exit_code == 0
    assert made.stdout.startswith("rcl_")
    assert f"{tmp_path / 'new' / 'control.db'} (no sidecar is using it)" in made.stderr
    assert CUT_OFF in made.stderr
    assert "authorization=Bearer%20SECRET" in made.stderr
    bot = run("create", "bot", "--agent", "--expires", "30d", *here)
    assert "ingest, read, check" in bot.stderr
    assert CUT_OFF not in bot.stderr
    assert listed(*here) == [("boss", "valid"), ("bot", "valid")]
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    table = run("list", *here).stdout
    assert "boss" in table
    assert made.stdout.strip() not in table


def test_the_data_directory_is_named_when_nobody_named_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RECLOSER_DATA_DIR", raising=False)
    path = tmp_path / ".local/share/recloser/control.db"
    default = f"{path} (no sidecar is using it, the default --data-dir)"
    assert default in run("create", "boss", "--verbs", "all").stderr
    monkeypatch.setenv("RECLOSER_DATA_DIR", str(path.parent))
    assert f"{path} (no sidecar is using it)" in run("create", "other", "--verbs", "all").stderr


def test_a_running_sidecar_is_asked_and_wants_an_admin(plane: Served) -> None:
    url = ("--url", plane.client.base_url)
    first = run("create", "boss", "--verbs", "admin,read", *url)
    boss = first.stdout.strip()
    assert CUT_OFF in first.stderr
    refused = run("list", *url)
    assert refused.exit_code == 2
    assert "give an admin token as RECLOSER_TOKEN" in refused.stderr
    second = run("create", "bot", "--verbs", "check", "--service", "shop-*", *url, token=boss)
    bot = second.stdout.strip()
    assert CUT_OFF not in second.stderr
    assert plane.ask("GET", "/v1/whoami", bot).json()["only"]["services"] == ["shop-*"]
    (_, entry) = json.loads(run("list", "--json", *url, token=boss).stdout)
    ended = run("revoke", entry["id"], *url, token=boss)
    assert (ended.exit_code, "'bot' is revoked" in ended.stderr) == (0, True)
    assert plane.ask("GET", "/v1/whoami", bot).status_code == 401
    unknown = run("revoke", "nothing", *url, token=boss)
    assert (unknown.exit_code, "no token has the id" in unknown.stderr) == (2, True)


def test_the_sidecar_that_uses_the_data_directory_is_found_by_its_settings(
    plane: Served, tmp_path: Path
) -> None:
    config = tmp_path / "recloser.toml"
    config.write_text(f'data_dir = "{tmp_path}"\napi_port = {plane.client.base_url.port}\n')
    assert run("create", "boss", "--verbs", "all", "--config", config).exit_code == 0
    assert [token.name for token in plane.process.services.tokens.all()] == ["boss"]


def test_without_admin_left_the_file_is_the_way_in(tmp_path: Path) -> None:
    with served(tmp_path) as plane:
        plane.token("boss", Verb.ADMIN)
        plane.revoke("boss")
        assert plane.ask("GET", "/v1/whoami").status_code == 401
    assert run("create", "new", "--verbs", "admin", "--data-dir", tmp_path).exit_code == 0
    assert listed("--data-dir", tmp_path) == [("boss", "revoked"), ("new", "valid")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("create", "x"), "either --verbs or --agent"),
        (("create", "x", "--agent", "--verbs", "read"), "either --verbs or --agent"),
        (("create", "x", "--verbs", "operate"), "verbs.0"),
        (("create", "x", "--verbs", "admin", "--expires", "soon"), "--expires soon"),
        (("create", " ", "--verbs", "admin"), "name"),
        (("create", "x", "--verbs", "admin", "--url", "http://127.0.0.1:1"), "does not answer"),
        (("create", "x", "--verbs", "admin", "--url", "no address"), "does not answer"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments, *(() if "--url" in arguments else ("--data-dir", tmp_path)))
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
