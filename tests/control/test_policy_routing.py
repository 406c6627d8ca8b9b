"""Who hears of what by policy, through the whole of control."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from control.alerts.system import KINDS
from control.notifiers.webhook import Webhook, WebhookConfig
from control.policy import Policy, Rule
from detectors.protocol import Severity
from tests.control.support import SECRET, STUCK, Parts, Spool

if TYPE_CHECKING:
    from pathlib import Path

PAGER = Rule(name="critical", reach=None, alert=("pager",))
CHAT = Rule(name="warnings", reach=None, severities=frozenset({Severity.WARNING}), alert=("chat",))
NOBODY = Rule(name="quiet", reach=None, agents=("test-*",), alert=(), stop=True)
OURS = Rule(
    name="recloser", reach=None, kinds=KINDS, min_severity=Severity.WARNING, alert=("chat",), stop=True
)


def told(folder: Path, rules: tuple[Rule, ...], *, system: bool = False, **changes: Any) -> list[str]:  # noqa: ANN401 - fields
    """The names of the destinations that have a message waiting after one finding."""
    hooks = {
        name: Webhook(WebhookConfig(name=name, url="http://127.0.0.1:9/", secrets=(SECRET,)))
        for name in ("pager", "chat")
    }
    spool = Spool(folder / "spool.db")
    with closing(Parts(folder, policy=Policy(rules=rules), notifiers=hooks)) as parts:
        finding = replace(STUCK, **changes)
        if system:
            with parts.db.transaction() as tx:
                parts.control.desk.alerting.raise_system(tx, finding)
        else:
            spool.add(finding)
            parts.decide_all()
        with parts.db.reading() as connection:
            rows = connection.execute("SELECT destination FROM outbox ORDER BY destination").fetchall()
    return [row["destination"] for row in rows]


@pytest.mark.parametrize(
    ("rules", "changes", "names"),
    [
        ((), {}, ["chat", "pager"]),
        ((PAGER,), {}, ["pager"]),
        ((PAGER, CHAT), {"severity": Severity.WARNING}, ["chat"]),
        ((PAGER,), {"severity": Severity.WARNING}, []),
        ((NOBODY, PAGER), {"agent": "test-1"}, []),
        ((NOBODY, PAGER), {"agent": "buyer"}, ["pager"]),
        ((replace(PAGER, alert=("gone", "chat")),), {}, ["chat"]),
        ((replace(PAGER, alert=("gone",)),), {}, []),
    ],
)
def test_findings_reach_whom_the_policy_names(
    tmp_path: Path, rules: tuple[Rule, ...], changes: dict[str, Any], names: list[str]
) -> None:
    assert told(tmp_path, rules, **changes) == names


@pytest.mark.parametrize(
    ("rules", "names"),
    [
        ((PAGER, CHAT), ["chat", "pager"]),
        ((CHAT,), ["chat", "pager"]),  # no rule says who hears of critical ones: all do
        ((replace(CHAT, severities=frozenset()),), ["chat"]),
        ((CHAT, replace(PAGER, alert=())), ["chat"]),
    ],
)
def test_a_warning_that_becomes_critical_reaches_those_whom_policy_names_then_each_once(
    tmp_path: Path, rules: tuple[Rule, ...], names: list[str]
) -> None:
    hooks = {
        name: Webhook(WebhookConfig(name=name, url="http://127.0.0.1:9/", secrets=(SECRET,)))
        for name in ("pager", "chat")
    }
    spool = Spool(tmp_path / "spool.db")
    with closing(Parts(tmp_path, policy=Policy(rules=rules), notifiers=hooks)) as parts:
        for revision, severity in enumerate((Severity.WARNING, Severity.CRITICAL, Severity.CRITICAL)):
            spool.add(replace(STUCK, severity=severity, revision=revision))
            parts.decide_all()
        with parts.db.reading() as connection:
            rows = connection.execute("SELECT destination FROM outbox ORDER BY destination").fetchall()
    assert [row["destination"] for row in rows] == names


@pytest.mark.parametrize(
    ("rules", "names"),
    [((), ["chat", "pager"]), ((OURS, PAGER), ["chat"]), ((replace(OURS, alert=()), PAGER), [])],
)
def test_so_do_alerts_about_recloser_itself(
    tmp_path: Path, rules: tuple[Rule, ...], names: list[str]
) -> None:
    changes = {"kind": "still_running", "detector": "recloser"}
    assert told(tmp_path, rules, system=True, **changes) == names
