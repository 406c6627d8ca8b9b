"""kill -9 at random moments: no accepted firing is lost, none changes its id, no breaker is released."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Final

from control.action import Action
from control.alerts import AlertState, list_alerts
from control.breakers.book import list_breakers
from control.breakers.states import State
from control.policy import Policy, Reach, Rule
from tests.control.support import Parts, Receiver, Reply, Spool, another, eventually

PROJECT: Final = Path(__file__).parents[2]
KILLS: Final = 5
FINDINGS: Final = 60
SEED: Final = 20261130
PROCESS: Final = """
import sys
from pathlib import Path
from api.controlprocess import ControlOptions, run_control
from control.notifiers.webhook import WebhookConfig
from control.action import Action
from control.breakers.settings import BreakerSettings
from control.policy import Policy, Reach, Rule
from control.retry import RetryPolicy
from control.service import LoopSettings
from tests.control.support import SECRET

folder = Path(sys.argv[1])
run_control(
    ControlOptions(
        spool_path=folder / "spool.db",
        control_path=folder / "control.db",
        policy=Policy(
            rules=(Rule(name="halt", reach=Reach.SESSION, action=Action.HALT),),
            breakers=BreakerSettings(blast_per_minute=0, blast_share=1.0, blast_min=1000),
        ),
        destinations=(WebhookConfig(name="hook", url=sys.argv[2], secrets=(SECRET,)),),
        retry=RetryPolicy(first_s=0.02, cap_s=0.1),
        loop=LoopSettings(poll_s=0.005),
    ),
    lambda port: print(port, flush=True),
)
"""


def start(folder: Path, receiver: Receiver) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(folder), receiver.url],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    return process


def end(process: subprocess.Popen[str], how: signal.Signals) -> None:
    process.send_signal(how)
    process.wait(30)
    assert process.stdout is not None
    process.stdout.close()


def test_kill_9_loses_no_page_and_releases_no_breaker(tmp_path: Path, receiver: Receiver) -> None:
    chance = random.Random(SEED)
    spool = Spool(tmp_path / "spool.db")
    receiver.script = [
        Reply(chance.choice((200, 200, 500, 503)), delay_s=chance.random() / 50) for _ in range(80)
    ]
    wanted = [another(n, session_id=f"session-{n}") for n in range(FINDINGS)]
    for round_ in range(KILLS):
        process = start(tmp_path, receiver)
        for finding in wanted[round_::KILLS]:
            spool.add(finding)
        time.sleep(chance.random() / 5)
        end(process, signal.SIGKILL)
    process = start(tmp_path, receiver)
    ids = {f"msg_{finding.id}_1_firing" for finding in wanted}
    try:
        eventually(lambda: _all_delivered(tmp_path, len(wanted)), timeout_s=60.0)
    finally:
        end(process, signal.SIGTERM)
    assert {request.id for request in receiver.received} == ids
    bodies = {(request.id, request.body) for request in receiver.received}
    assert len(bodies) == len(ids)
    policy = Policy(rules=(Rule(name="halt", reach=Reach.SESSION, action=Action.HALT),))
    with closing(Parts(tmp_path, policy=policy)) as parts, parts.db.reading() as connection:
        firing = list_alerts(connection, state=AlertState.FIRING, session_id=None, before=None, limit=999)
        opened = list_breakers(connection, session_id=None, state=State.OPEN, before=None, limit=999)
        events = connection.execute("SELECT count(*) FROM alert_events").fetchone()[0]
        assert sorted(alert.finding.id for _, alert in firing) == sorted(finding.id for finding in wanted)
        assert {b.scope.session for b in opened} == {finding.session_id for finding in wanted}
        assert len(parts.index.open_breakers()) == events == len(wanted)


def test_sigterm_ends_it_in_order(tmp_path: Path, receiver: Receiver) -> None:
    Spool(tmp_path / "spool.db").add(another(1))
    process = start(tmp_path, receiver)
    end(process, signal.SIGTERM)
    assert process.returncode == 0


def _all_delivered(folder: Path, count: int) -> bool:
    with closing(sqlite3.connect(f"file:{folder / 'control.db'}?mode=ro", uri=True)) as connection:
        (delivered,) = connection.execute("SELECT count(*) FROM outbox WHERE state = 'delivered'").fetchone()
    return bool(delivered == count)
