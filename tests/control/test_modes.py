from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest
from prometheus_client import CollectorRegistry

from control.actor import Actor
from control.db import ControlDb
from control.metrics import ControlMetrics
from control.modes import MAX_TTL_S, Modes
from control.policy import Mode, ModeRule, Policy, PolicyHolder
from detectors.protocol import Finding, Severity
from tests.control.support import STUCK, ManualClock, another

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = Actor(type="person", id="ann")
MINIMAL = ModeRule(name="small", agents=("buy*",), tools=2, hold_s=600)
STRICT = ModeRule(name="none", agents=("*",), services=("shop",), tools=3, mode=Mode.DETERMINISTIC, hold_s=60)


def degraded(number: int, tool: str, service: str = "shop") -> Finding:
    return another(
        number,
        kind="tool_degraded",
        severity=Severity.WARNING,
        session_id="",
        agent=None,
        service=service,
        tool=tool,
    )


class World:
    def __init__(self, folder: Path, *rules: ModeRule) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.holder = PolicyHolder(Policy(modes=rules))
        self.registry = CollectorRegistry()
        self.metrics = ControlMetrics(self.registry)
        self.open()

    def open(self) -> None:
        self.db = ControlDb(self.folder / "control.db")
        self.modes = Modes(self.db, self.holder, self.metrics, self.clock)

    def restart(self) -> None:
        self.db.close()
        self.open()

    def close(self) -> None:
        self.db.close()

    def find(self, *findings: Finding) -> None:
        with self.db.transaction() as tx:
            for finding in findings:
                self.modes.take(tx, finding, self.clock())

    def audit(self) -> list[tuple[str, str, str]]:
        with self.db.reading() as connection:
            rows = connection.execute("SELECT payload FROM audit ORDER BY seq").fetchall()
        entries = [orjson.loads(row["payload"]) for row in rows]
        return [(e["verb"], e["subject"], (e["after"] or {})["mode"]) for e in entries]

    def counted(self, event: str) -> float | None:
        return self.registry.get_sample_value("recloser_mode_changes_total", {"event": event})


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path, MINIMAL, STRICT)) as made:
        yield made


def test_everybody_may_do_all_by_default(world: World) -> None:
    now = world.modes.now("buyer")
    assert (now.mode, now.cause, now.until) == (Mode.FULL, "default", None)
    assert world.modes.mode_of("buyer") == "full"


def test_enough_degraded_tools_shrink_what_an_agent_may_do(world: World) -> None:
    world.find(degraded(1, "search"), degraded(2, "search"))
    assert world.modes.mode_of("buyer") is Mode.FULL  # one tool, twice
    world.find(degraded(3, "fetch"))
    assert world.modes.now("buyer").cause == "rule:small"
    assert world.modes.mode_of("buyer", "shop") is Mode.MINIMAL
    assert world.modes.mode_of("buyer", "another service") is Mode.FULL
    assert world.modes.mode_of("seller") is Mode.FULL


def test_the_strictest_rule_counts(world: World) -> None:
    world.find(degraded(1, "a"), degraded(2, "b"), degraded(3, "c"))
    assert world.modes.now("buyer").cause == "rule:none"
    assert world.modes.mode_of("seller") is Mode.DETERMINISTIC


def test_tools_of_different_services_do_not_add_up(world: World) -> None:
    world.find(degraded(1, "a", "shop"), degraded(2, "b", "billing"))
    assert world.modes.mode_of("buyer") is Mode.FULL


def test_a_finding_counts_until_its_time_without_revision_has_passed(world: World) -> None:
    world.find(degraded(1, "a"), degraded(2, "b"))
    world.clock.advance(599)
    world.find(degraded(1, "a"))
    assert world.modes.mode_of("buyer") is Mode.MINIMAL
    world.clock.advance(1)
    assert world.modes.mode_of("buyer") is Mode.FULL
    world.find(degraded(2, "b"))
    assert world.modes.mode_of("buyer") is Mode.MINIMAL


@pytest.mark.parametrize(
    "other",
    [
        replace(degraded(9, "b"), kind="doom_loop"),
        replace(degraded(9, "b"), tool=None),
        replace(degraded(9, "b"), evidence={"shadow": True}),
        STUCK,
    ],
)
def test_other_findings_change_nothing(world: World, other: Finding) -> None:
    world.find(degraded(1, "a"), other)
    assert world.modes.mode_of("buyer") is Mode.FULL
    assert len(world.modes.degraded()) == 1


def test_what_is_rolled_back_was_never_degraded(world: World) -> None:
    with world.db.transaction() as tx, suppress(ZeroDivisionError), tx.savepoint():
        world.modes.take(tx, degraded(1, "a"), world.clock())
        world.modes.take(tx, degraded(2, "b"), world.clock())
        raise ZeroDivisionError
    assert world.modes.mode_of("buyer") is Mode.FULL


def test_modes_survive_a_restart(world: World) -> None:
    world.find(degraded(1, "a"), degraded(2, "b"))
    world.modes.turn()
    world.modes.set_by_hand("seller", Mode.DETERMINISTIC, PERSON, "broken", 60)
    before = [world.modes.now("buyer"), world.modes.now("seller"), world.modes.holding()]
    world.restart()
    assert [world.modes.now("buyer"), world.modes.now("seller"), world.modes.holding()] == before
    world.modes.turn()
    assert world.counted("began") == 1  # told once, not again after the restart


def test_changes_are_audited_and_counted_once(world: World) -> None:
    world.modes.turn()
    assert world.audit() == []
    world.find(degraded(1, "a"), degraded(2, "b"))
    world.modes.turn()
    world.modes.turn()
    (holding,) = world.modes.holding()
    assert (holding.services, holding.tools, holding.since) == (("shop",), ("a", "b"), world.clock())
    world.clock.advance(600)
    world.modes.turn()
    world.modes.turn()
    assert world.audit() == [("mode", "rule small", "minimal"), ("mode", "rule small", "full")]
    assert (world.counted("began"), world.counted("ended")) == (1, 1)


def test_a_mode_by_hand_wins_in_both_directions_until_its_time(world: World) -> None:
    world.find(degraded(1, "a"), degraded(2, "b"), degraded(3, "c"))
    told = world.modes.set_by_hand("buyer", Mode.FULL, PERSON, "we know", 30)
    assert (told.mode, told.cause, told.until) == (Mode.FULL, "person:ann", world.clock() + 30 * 10**9)
    world.modes.set_by_hand("other", Mode.MINIMAL, PERSON, "careful", 60)
    assert world.modes.mode_of("other", "any service") is Mode.MINIMAL
    assert [each.agent for each in world.modes.by_hand()] == ["buyer", "other"]
    world.clock.advance(30)
    assert world.modes.mode_of("buyer") is Mode.DETERMINISTIC
    world.modes.turn()
    assert world.audit()[:2] == [("mode", "agent buyer", "full"), ("mode", "agent other", "minimal")]
    assert ("mode", "agent buyer", "by the rules") in world.audit()
    assert world.counted("expired") == 1


def test_a_mode_by_hand_is_handed_back(world: World) -> None:
    world.modes.set_by_hand("buyer", Mode.MINIMAL, PERSON, "careful", 60)
    assert world.modes.set_by_hand("buyer", None, PERSON, "fine", 0).cause == "default"
    world.restart()
    assert world.modes.by_hand() == []


@pytest.mark.parametrize("ttl_s", [0, -1, MAX_TTL_S + 1, float("nan")])
def test_a_mode_by_hand_needs_an_end(world: World, ttl_s: float) -> None:
    with pytest.raises(ValueError, match="ttl_s: must be more than 0"):
        world.modes.set_by_hand("buyer", Mode.MINIMAL, PERSON, "careful", ttl_s)
    with pytest.raises(ValueError, match="agent"):
        world.modes.set_by_hand("", Mode.MINIMAL, PERSON, "careful", 1)
    assert world.audit() == []


def test_another_policy_counts_at_once(world: World) -> None:
    world.find(degraded(1, "a"), degraded(2, "b"))
    world.modes.turn()
    world.holder.swap(Policy(modes=(replace(MINIMAL, mode=Mode.DETERMINISTIC),)), world.holder.source)
    assert world.modes.mode_of("buyer") is Mode.DETERMINISTIC
    world.modes.turn()
    world.holder.swap(Policy(), world.holder.source)
    assert world.modes.mode_of("buyer") is Mode.FULL
    world.modes.turn()
    assert [mode for _, _, mode in world.audit()] == ["minimal", "deterministic", "full"]


def test_what_is_long_over_is_forgotten(world: World) -> None:
    world.find(degraded(1, "a"))
    world.clock.advance(86_401)
    world.modes.turn()
    assert world.modes.degraded() == []
    world.restart()
    assert world.modes.degraded() == []
