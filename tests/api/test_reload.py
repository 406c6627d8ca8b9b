from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from prometheus_client import CollectorRegistry

from api.policyfile import PolicyError
from api.reload import NoPolicyFile, PolicyKeeper, PolicyPlace
from control.actor import Actor
from control.db import ControlDb
from control.metrics import ControlMetrics
from control.policy import Policy, PolicyHolder
from tests.control.support import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PERSON = Actor(type="person", id="ann")
ONE = '[[rule]]\nname = "one"\ntrip = {}\n'
TWO = '[[rule]]\nname = "two"\nalert = ["pager"]\n'
BROKEN = "[[rule]]\nnme = 'x'\nstop = true\n"
SAID = "rule.1.nme: there is no such key; did you mean 'name'?"


class World:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "policy.toml"
        self.clock = ManualClock()
        self.folder = folder
        self.registry = CollectorRegistry()
        self.metrics = ControlMetrics(self.registry)
        self._written = 0

    def write(self, text: str) -> None:
        """Write as an editor does: another file is moved over the old one, times may be equal."""
        beside = self.file.with_suffix(".new")
        beside.write_text(text)
        self._written += 1
        os.utime(beside, ns=(self._written, self._written))
        beside.replace(self.file)

    def start(self, text: str | None = None, *, destinations: tuple[str, ...] | None = ("pager",)) -> None:
        if text is not None:
            self.write(text)
        self.db = ControlDb(self.folder / "control.db")
        self.holder = PolicyHolder()
        place = PolicyPlace(path=self.file, destinations=destinations)
        try:
            self.keeper = PolicyKeeper(self.holder, place, self.db, self.metrics, self.clock)
        except BaseException:
            self.db.close()
            raise

    def restart(self, text: str | None = None, **changes: Any) -> None:  # noqa: ANN401 - as of start
        self.db.close()
        self.start(text, **changes)

    def close(self) -> None:
        self.db.close()

    @property
    def rules(self) -> list[str]:
        return [rule.name for rule in self.holder.current.rules]

    def audit(self) -> list[Any]:
        with self.db.reading() as connection:
            rows = connection.execute("SELECT payload FROM audit ORDER BY seq").fetchall()
        return [orjson.loads(row["payload"]) for row in rows]

    def counted(self, result: str) -> float:
        return self.registry.get_sample_value("recloser_policy_reloads_total", {"result": result}) or 0.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path)) as made:
        yield made


def test_the_file_is_in_force_from_the_start(world: World) -> None:
    world.start(ONE)
    assert world.rules == ["one"]
    source = world.holder.source
    assert (source.path, source.loaded_at, len(source.sha256)) == (str(world.file), world.clock(), 64)
    assert world.keeper.aside() is None


def test_a_change_is_seen_and_put_in_force(world: World) -> None:
    world.start(ONE)
    world.keeper.turn()
    assert world.counted("loaded") == 1  # that of the start
    world.clock.advance(5)
    world.write(TWO)
    world.keeper.turn()
    world.keeper.turn()
    assert (world.rules, world.counted("loaded")) == (["two"], 2)
    assert world.holder.source.loaded_at == world.clock()


def test_the_same_text_again_is_no_change(world: World) -> None:
    world.start(ONE)
    before = world.holder.current
    world.write(ONE)
    world.keeper.turn()
    assert world.holder.current is before
    assert len(world.audit()) == 1


def test_a_broken_file_changes_nothing_and_is_shown_and_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.start(ONE)
    world.write(BROKEN)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            world.keeper.turn()
            world.keeper.ask()
    assert world.rules == ["one"]
    assert (world.keeper.aside() or "").endswith(f"{world.file}:2: {SAID}")
    assert (len(caplog.records), world.counted("broken")) == (1, 1)
    assert world.registry.get_sample_value("recloser_policy_broken") == 1
    world.write(TWO)
    world.keeper.turn()
    assert (world.rules, world.keeper.aside()) == (["two"], None)
    assert world.registry.get_sample_value("recloser_policy_broken") == 0


def test_a_file_that_is_mended_to_what_is_in_force_is_no_trouble_any_more(world: World) -> None:
    world.start(ONE)
    world.write(BROKEN)
    world.keeper.turn()
    world.write(ONE)
    world.keeper.turn()
    assert (world.rules, world.keeper.aside(), len(world.audit())) == (["one"], None, 1)


def test_a_file_that_is_gone_is_trouble(world: World) -> None:
    world.start(ONE)
    world.file.unlink()
    world.keeper.turn()
    assert world.rules == ["one"]
    assert "No such file" in (world.keeper.aside() or "")


def test_a_signal_has_the_file_read_at_the_next_turn(world: World) -> None:
    world.start(ONE)
    status = world.file.stat()
    world.file.write_text(ONE.replace("one", "uno"))
    os.utime(world.file, ns=(status.st_atime_ns, status.st_mtime_ns))  # same size, same time
    world.keeper.turn()
    assert world.rules == ["one"]
    world.keeper.ask()
    world.keeper.turn()
    assert world.rules == ["uno"]
    assert world.audit()[-1]["actor"] == {"type": "system", "id": "SIGHUP"}


def test_a_person_has_it_read_and_is_told_what_is_wrong(world: World) -> None:
    world.start(ONE)
    world.write(TWO)
    assert world.keeper.reload(PERSON, "new pager").sha256 == world.holder.source.sha256
    assert world.rules == ["two"]
    world.write(BROKEN)
    with pytest.raises(PolicyError, match=r"policy\.toml:2: rule\.1\.nme"):
        world.keeper.reload(PERSON, "typo")
    assert world.rules == ["two"]
    started, loaded, refused = world.audit()
    assert (started["actor"]["id"], started["before"]) == ("start", None)
    assert (loaded["actor"], loaded["reason"]) == ({"type": "person", "id": "ann"}, "new pager")
    assert loaded["before"] == started["after"]
    assert loaded["extra"]["rules"] == ["two"]
    assert (refused["verb"], refused["reason"]) == ("policy_refused", "typo")
    assert SAID in refused["extra"]["error"]


def test_a_broken_file_at_the_first_start_ends_it(world: World) -> None:
    with pytest.raises(PolicyError, match=r"policy\.toml:2: rule\.1\.nme"):
        world.start(BROKEN)


def test_a_broken_file_at_a_restart_leaves_the_last_good_one_in_force(world: World) -> None:
    world.start(ONE)
    loaded = world.holder.source
    world.clock.advance(60)
    world.restart(BROKEN)
    assert (world.rules, world.holder.source) == (["one"], loaded)
    assert SAID in (world.keeper.aside() or "")
    world.write(TWO)
    world.keeper.turn()
    assert (world.rules, world.keeper.aside()) == (["two"], None)


def test_a_destination_that_is_gone_at_a_restart_breaks_the_file(world: World) -> None:
    world.start(TWO)
    world.restart(destinations=("chat",))
    assert world.rules == ["two"]
    assert "there is no destination 'pager'" in (world.keeper.aside() or "")


def test_a_restart_tells_only_what_changed_meanwhile(world: World) -> None:
    world.start(ONE)
    loaded = world.holder.source
    world.clock.advance(60)
    world.restart()
    assert (len(world.audit()), world.holder.source) == (1, loaded)
    world.restart(TWO)
    assert [entry["actor"]["id"] for entry in world.audit()] == ["start", "start"]
    assert world.audit()[1]["before"] == world.audit()[0]["after"]


def test_a_policy_of_the_settings_is_not_read_again(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.db = ControlDb(world.folder / "control.db")
    policy = Policy()
    keeper = PolicyKeeper(PolicyHolder(policy), None, world.db, world.metrics, world.clock)
    keeper.ask()
    keeper.turn()
    keeper.turn()
    assert keeper.holder.current is policy
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert keeper.aside() is None
    with pytest.raises(NoPolicyFile):
        keeper.reload(PERSON, "why not")


def test_a_disk_that_fails_leaves_the_old_policy_and_the_file_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:

    world.start(ONE)
    world.write(TWO)

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("api.reload.keep", full)
        with pytest.raises(sqlite3.OperationalError):
            world.keeper.turn()
    assert world.rules == ["one"]
    world.keeper.turn()
    assert world.rules == ["two"]
