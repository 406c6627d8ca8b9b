from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pydantic import SecretStr

from api.auth import Token, Verb
from api.config import PolicyRule, Settings, Webhook, to_json
from api.config import Token as ApiToken
from api.controlprocess import ControlOptions, ControlProcess, Peer, options_from
from api.metrics import IngestMetrics
from api.policyfile import PolicyError
from api.reload import PolicyPlace
from control.action import Action
from control.notifiers.webhook import WebhookConfig
from control.policy import Reach
from detectors.protocol import Severity
from tests.control.support import SECRET, Receiver, receiving

PROJECT: Final = Path(__file__).parents[2]
HEAVY: Final = ("pyarrow", "numpy", "chdb", "clickhouse_connect", "grpc", "polars", "sklearn")
IMPORTS: Final = """
import sys
import api.controlprocess
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""
SETTINGS: Final = to_json(
    Settings(
        data_dir=Path("/var/lib/recloser"),
        tokens=(ApiToken(token=SecretStr("x" * 20), scopes=("ingest", "check")),),
        webhooks=(Webhook(name="pager", url="https://example.test/hook", secrets=(SecretStr(SECRET),)),),
        policy=(PolicyRule(action="halt"),),
    )
)
GIVEN: Final = {"settings": SETTINGS, "api_port": 4319, "metrics_port": 4320}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()


def test_it_imports_nothing_heavy() -> None:
    out = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    assert "control" in out
    assert [name for name in HEAVY if f"'{name}'" in out] == []


def test_strangers_are_not_served_without_tokens(tmp_path: Path) -> None:
    options = partial(ControlOptions, spool_path=tmp_path / "spool.db", control_path=tmp_path / "control.db")
    for host in ("127.0.0.1", "::1", "localhost"):
        options(host=host)
    for host in ("0.0.0.0", "::", "10.0.0.1", "recloser.example.test"):
        with pytest.raises(ValueError, match="set tokens"):
            options(host=host)
    options(host="0.0.0.0", tokens=(Token.of("t", "x" * 16, {Verb.READ}),))


def test_the_settings_become_options() -> None:
    options = options_from(GIVEN)
    assert (options.spool_path, options.port) == (Path("/var/lib/recloser/spool.db"), 4319)
    (rule,) = options.policy.rules
    assert (rule.name, rule.kinds, rule.min_severity, rule.reach, rule.action, rule.shadow) == (
        "rule-1",
        frozenset({"doom_loop"}),
        Severity.CRITICAL,
        Reach.SESSION,
        Action.HALT,
        False,
    )
    (hook,) = options.destinations
    assert isinstance(hook, WebhookConfig)
    assert (hook.name, hook.secrets) == ("pager", (SECRET,))
    assert [(token.name, token.verbs) for token in options.tokens] == [
        ("token-1", frozenset({Verb.INGEST, Verb.CHECK}))
    ]
    assert options.peers == (Peer(name="ingest", metrics_url="http://127.0.0.1:4320/metrics"),)


def test_a_rule_for_what_nothing_finds_is_refused() -> None:
    rules = (PolicyRule(), PolicyRule(kinds=("doom_loop", "dom_loop")), PolicyRule(kinds=()))
    with pytest.raises(
        ValueError, match=r"policy\.2\.kinds\.2: no detector finds 'dom_loop'; did you mean 'doom_loop'\?"
    ):
        options_from({**GIVEN, "settings": {**SETTINGS, "policy": [to_json(rule) for rule in rules]}})


def test_it_waits_for_the_spool_and_for_the_other_processes(tmp_path: Path, receiver: Receiver) -> None:
    options = ControlOptions(
        spool_path=tmp_path / "spool.db",
        control_path=tmp_path / "control.db",
        peers=(
            Peer(name="ingest", metrics_url=receiver.url),
            Peer(name="away", metrics_url="http://127.0.0.1:1/"),
        ),
    )
    process = ControlProcess(options)
    process.start()
    try:
        reasons = {name: probe() for name, probe in process.services.probes.items()}
    finally:
        process.stop()
        process.stop()
    assert reasons == {
        "control": "the spool to be created",
        "ingest": None,
        "away": "away to answer (ConnectError)",
    }
    assert [source() for source in process.services.metrics_sources] == [b"", b""]
    assert process.services.probes["control"]() == "the control loop to go on"


def test_it_says_why_ingest_takes_nothing_and_that_the_store_is_away(
    tmp_path: Path, receiver: Receiver
) -> None:
    metrics = IngestMetrics(CollectorRegistry())
    process = ControlProcess(
        ControlOptions(
            spool_path=tmp_path / "spool.db",
            control_path=tmp_path / "control.db",
            peers=(Peer(name="ingest", metrics_url=receiver.url),),
        )
    )

    def said() -> tuple[str | None, str | None]:
        receiver.page = generate_latest(metrics.registry)
        return process.services.probes["ingest"](), process.services.asides["store"]()

    try:
        assert said() == (None, "away; spans wait in the spool")
        metrics.store_up.set(1)
        for reason, word in (("full", "full spool"), ("disk", "disk")):
            metrics.spool_refuses.labels(reason).set(True)
            waits, away = said()
            assert word in str(waits)
            assert away is None
            metrics.spool_refuses.labels(reason).set(False)
        assert said() == (None, None)
    finally:
        process.stop()


def test_a_policy_that_is_broken_lets_go_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text("[[rule]]\n")
    options = ControlOptions(
        spool_path=tmp_path / "spool.db",
        control_path=tmp_path / "control.db",
        policy_place=PolicyPlace(path=file),
    )
    with pytest.raises(PolicyError, match=r"policy\.toml:1: rule\.1: says nothing"):
        ControlProcess(options)
    file.write_text("")
    ControlProcess(options).stop()


def test_the_port_in_use_is_an_error_and_lets_go_of_the_file(tmp_path: Path, receiver: Receiver) -> None:
    code = (
        "import sys; from pathlib import Path; from api.controlprocess import ControlOptions, run_control\n"
        "folder = Path(sys.argv[1])\n"
        "run_control(ControlOptions(spool_path=folder / 'spool.db', control_path=folder / 'control.db', "
        "port=int(sys.argv[2])), print)"
    )
    port = str(httpx.URL(receiver.url).port)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), port],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Address already in use" in done.stderr
