"""A policy file under a real `recloser serve`: changed, signalled, broken, and control killed meanwhile."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.process import on_hangup
from tests.control.support import SECRET, Receiver, receiving

RECLOSER = Path(sys.executable).parent / "recloser"
PATIENCE_S = 30.0
RULE = '[[rule]]\nname = "{}"\ntrip = {{}}\n'


class Serving:
    """The sidecar, with a store that is away: it is not needed here."""

    def __init__(self, folder: Path, receiver: Receiver) -> None:
        self.receiver = receiver
        self.file = folder / "policy.toml"
        self.file.write_text(RULE.format("one"))
        settings = folder / "recloser.toml"
        settings.write_text(
            f'data_dir = "{folder}/data"\npolicy_file = "{self.file}"\n'
            'otlp_http_port = 0\notlp_grpc_port = 0\napi_port = 0\n[clickhouse]\nurl = "http://127.0.0.1:1"\n'
            f'[[actions]]\nname = "gate"\nurl = "{receiver.url}"\nsecrets = ["{SECRET}"]\n'
        )
        self.process = subprocess.Popen(
            [RECLOSER, "serve", "--config", settings],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.said = ""
        while "Then look" not in self.said:
            line = self.process.stdout.readline()
            assert line, self.said
            self.said += line
        (self.url,) = re.findall(r"API\s+(http://\S+)", self.said)

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON
        try:
            return httpx.get(self.url + path, timeout=5).json()
        except (httpx.HTTPError, json.JSONDecodeError):
            return {}

    def rules(self) -> list[str]:
        policy = self.get("/v1/policy").get("policy", {"rule": []})
        return [rule["name"] for rule in policy["rule"]]

    def write(self, text: str, *, unseen: bool = False) -> None:
        """Write the file; `unseen` leaves its size and time as they were."""
        before = self.file.stat()
        self.file.write_text(text)
        if unseen:
            os.utime(self.file, ns=(before.st_atime_ns, before.st_mtime_ns))

    def control_pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        tasks = Path(f"/proc/{self.process.pid}/task")
        every = {pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()}
        for pid in every | set(children):
            if b"api.controlprocess" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        raise AssertionError("control does not run")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


@pytest.fixture
def serving(tmp_path: Path, receiver: Receiver) -> Iterator[Serving]:
    made = Serving(tmp_path, receiver)
    yield made
    made.stop()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.accept
@pytest.mark.short
def test_a_policy_file_is_followed_and_outlives_its_mistakes(serving: Serving) -> None:
    assert "Stops      one" in serving.said
    assert serving.rules() == ["one"]

    serving.write(RULE.format("another"))
    until(lambda: serving.rules() == ["another"])

    serving.write(RULE.format("thirdly"), unseen=True)
    serving.process.send_signal(signal.SIGHUP)
    until(lambda: serving.rules() == ["thirdly"])

    serving.write("[[rule]]\nnmae = 'x'\n")
    until(lambda: "policy" in serving.get("/readyz").get("degraded", {}))
    assert "policy.toml:2: rule.1.nmae" in serving.get("/readyz")["degraded"]["policy"]
    assert serving.rules() == ["thirdly"]

    before = serving.control_pid()
    os.kill(before, signal.SIGKILL)
    until(lambda: serving.get("/healthz") and serving.control_pid() != before)
    until(lambda: serving.rules() == ["thirdly"])
    assert "policy.toml:2" in serving.get("/readyz")["degraded"]["policy"]

    answer = httpx.post(f"{serving.url}/v1/policy/reload", json={"reason": "try"}, timeout=5)
    assert answer.status_code == 422
    serving.write(RULE.format("mended"))
    assert httpx.post(f"{serving.url}/v1/policy/reload", timeout=5).status_code == 200
    assert serving.rules() == ["mended"]
    assert "policy" not in serving.get("/readyz")["degraded"]

    trip = {"scope": {"session": "s-1"}, "action": "halt", "reason": "too dear"}
    made = httpx.post(f"{serving.url}/v1/breakers", json=trip, timeout=5).json()
    httpx.post(f"{serving.url}/v1/breakers/{made['id']}/reset", json={"reason": "paid"}, timeout=5)
    told = serving.receiver.wait_for(2, PATIENCE_S)
    assert [each.json["type"] for each in told] == ["breaker.opened", "breaker.closed"]
    assert all(each.signed_with(SECRET) for each in told)
    assert told[0].json["data"]["session_id"] == "s-1"


@pytest.mark.accept
@pytest.mark.short
def test_a_broken_policy_at_the_first_start_is_said_and_ends_it(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("[[rule]]\nnmae = 'x'\n")
    settings = tmp_path / "recloser.toml"
    settings.write_text(
        f'data_dir = "{tmp_path}/data"\npolicy_file = "{tmp_path}/policy.toml"\n'
        'otlp_http_port = 0\notlp_grpc_port = 0\napi_port = 0\n[clickhouse]\nurl = "http://127.0.0.1:1"\n'
    )
    done = subprocess.run(
        [RECLOSER, "serve", "--config", settings], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"{tmp_path}/policy.toml:2: rule.1.nmae: there is no such key; did you mean 'name'?" in done.stderr


def test_a_hangup_reloads_and_ends_only_when_the_terminal_went(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    before = signal.getsignal(signal.SIGHUP)
    try:
        for in_terminal, there, what in (
            (False, False, "reload"),
            (True, True, "reload"),
            (True, False, "end"),
        ):
            monkeypatch.setattr("sys.stdin", Terminal(in_terminal=in_terminal))
            monkeypatch.setattr("api.process._terminal_is_there", lambda there=there: there)
            on_hangup(lambda: heard.append("reload"), lambda: heard.append("end"))
            signal.raise_signal(signal.SIGHUP)
            assert heard[-1] == what
    finally:
        signal.signal(signal.SIGHUP, before)


class Terminal:
    def __init__(self, *, in_terminal: bool) -> None:
        self._in_terminal = in_terminal

    def isatty(self) -> bool:
        return self._in_terminal
