"""The command `handoff`: of recorded traces, of a running sidecar, and what it says when there is none."""

from __future__ import annotations

import json
from pathlib import Path

import case_otlp
import pytest
from typer.testing import CliRunner, Result

from api.cli import app
from control.verbs import Verb
from tests.api.serving import served
from tests.control.support import STUCK, Spool

CASE = {
    "id": "team/chat-17",
    "calls": [{"tool": "read", "args": {"path": "a"}, "ok": False, "error": "no such file: a", "repeat": 6}],
}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["handoff", *arguments])


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "traces.jsonl"
    path.write_text(json.dumps(case_otlp.case_to_request(CASE, case_otlp.EPOCH_NS)) + "\n", encoding="utf-8")
    return path


def test_recorded_traces_are_judged_and_reported(traces: Path) -> None:
    text = run("team/chat-17", "--from", str(traces))
    assert text.exit_code == 0
    assert text.stdout.startswith("# Hand-off: session `team/chat-17`")
    told = json.loads(run("team/chat-17", "--from", str(traces), "--format", "json").stdout)
    assert told["goal"] == "Do what is to be done."
    assert (told["onset"]["number"], told["failing_paths"][0]["failures"]) == (3, 6)


def test_a_running_sidecar_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Spool(tmp_path / "spool.db").add(STUCK)
    with served(tmp_path) as sidecar:
        url = str(sidecar.client.base_url)
        while not sidecar.ask("GET", "/v1/findings").json()["findings"]:
            pass
        monkeypatch.setenv("RECLOSER_TOKEN", sidecar.token("boss", *Verb))
        found = run("session-1", "--url", url)
        assert found.exit_code == 0, found.stderr
        assert f"**{STUCK.kind}**" in found.stdout
        nobody = run("nobody", "--url", url)
        assert (nobody.exit_code, nobody.stdout) == (2, "")
        assert "nobody" in nobody.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("chat", "--url", "http://127.0.0.1:1"), "does not answer"),
        (("chat", "--url", "no address"), "does not answer"),
        (("chat", "--url", "http://127.0.0.1:1", "--since", "7d"), "give one of them"),
        (("chat", "--since", "soon"), "is no time"),
        (("chat", "--config", "/nowhere.toml"), "/nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], wanted: str) -> None:
    said = run(*arguments)
    assert (said.exit_code, said.stdout) == (2, "")
    assert wanted in said.stderr


def test_a_session_that_the_traces_do_not_have_is_said(traces: Path) -> None:
    said = run("nobody", "--from", str(traces))
    assert said.exit_code == 2
    assert "no session 'nobody'" in said.stderr


def test_the_sidecar_is_found_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECLOSER_URL", "http://127.0.0.1:1")
    assert "http://127.0.0.1:1 does not answer" in run("chat").stderr
