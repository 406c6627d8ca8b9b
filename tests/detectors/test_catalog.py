"""Detectors by name, their settings, and those of third parties."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from api.config import load
from collector.step import Json
from detectors import catalog
from detectors.catalog import BUILT_IN, Kind, build, tool_policy, unknown_findings
from detectors.doom_loop import DoomLoop
from detectors.protocol import Finding
from detectors.reading import Reading
from detectors.tool_policy import ToolPolicy
from detectors.tuning import Tuned
from tests.detectors.stream import Stream, first, judged


@dataclass(frozen=True)
class QuietConfig:
    shadow: bool = True


class Quiet:
    def __init__(self, tuned: Tuned[QuietConfig]) -> None:
        self.config = tuned.base

    def observe(self, _: Reading) -> tuple[Finding, ...]:
        return ()

    def snapshot(self) -> Json:
        return None

    def restore(self, state: Json) -> None:
        pass


QUIET = Kind(QuietConfig, Quiet, finds=("silence",))
NO_KIND = object()


def test_settings_reach_the_detector() -> None:
    detector = build({"doom_loop": {"successes": 3, "suspect": 2}})["doom_loop"].make()
    assert isinstance(detector, DoomLoop)
    assert (
        first(judged(Stream().times(5, "read_file", {"path": "a"}, ok="x").steps, detector), "critical") == 3
    )


def test_every_scope_gets_a_detector_of_its_own() -> None:
    factory = build()["doom_loop"]
    assert factory.make() is not factory.make()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"doomloop": {}}, "detectors.doomloop"),
        ({"doom_loop": {"error": 3}}, "detectors.doom_loop.error"),
        ({"doom_loop": {"errors": "three"}}, "detectors.doom_loop.errors"),
        ({"doom_loop": {"errors": "3.5"}}, "detectors.doom_loop.errors"),
        ({"doom_loop": {"shadow": "perhaps"}}, "detectors.doom_loop.shadow"),
        ({"doom_loop": {"enabled": "perhaps"}}, "detectors.doom_loop.enabled"),
        ({"doom_loop": {"patience_s": "nan"}}, "detectors.doom_loop.patience_s"),
        ({"doom_loop": {"errors": True}}, "detectors.doom_loop.errors"),
        ({"doom_loop": {"errors": 1}}, "detectors.doom_loop.errors"),
        ({"doom_loop": {"patience_s": -1}}, "detectors.doom_loop.patience_s"),
        ({"doom_loop": {"tools": {"bash": {"errors": 1}}}}, "detectors.doom_loop.tools.bash.errors"),
        ({"doom_loop": {"agents": {"coder": {"error": 1}}}}, "detectors.doom_loop.agents.coder.error"),
        ({"doom_loop": {"agents": {"coder": 3}}}, "detectors.doom_loop.agents.coder"),
        (
            {"doom_loop": {"enabled": False, "agents": {"coder": {"enabled": True}}}},
            "detectors.doom_loop.agents",
        ),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, dict[str, object]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build(settings)


def test_an_agent_and_a_tool_can_be_set_apart() -> None:
    factory = build({"doom_loop": {"agents": {"coder": {"errors": 9}}, "tools": {"ci": {"enabled": False}}}})
    coder, other = factory["doom_loop"].of("coder"), factory["doom_loop"].of("other")
    assert coder is not None
    assert other is factory["doom_loop"]
    failing = Stream().times(12, "read_file", {"path": "a"}, error="bad").steps
    assert first(judged(failing, coder.make()), "critical") == 9
    assert first(judged(failing, other.make()), "critical") == 4
    assert factory["doom_loop"].tools == {"ci": None}
    assert build({"doom_loop": {"agents": {"coder": {"enabled": False}}}})["doom_loop"].of("coder") is None


def test_a_list_of_something_else_than_texts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"detectors\.tools\.ignore must be a list of texts"):
        tool_policy({"tools": {"ignore": [1]}})


def test_lists_and_whole_numbers_are_taken_as_settings() -> None:
    build({"doom_loop": {"patience_s": 60}, "tools": {"ignore": ["bash"]}})


def test_texts_that_spell_a_value_are_taken_as_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {
        "SUCCESSES": "3",
        "SUSPECT": "2",
        "PATIENCE_S": "60.5",
        "SHADOW": "TRUE",
    }.items():
        monkeypatch.setenv(f"RECLOSER_DETECTORS__DOOM_LOOP__{key}", value)
    factory = build(load({}, None).detectors)["doom_loop"]
    assert factory.shadow
    stream = Stream().times(5, "read_file", {"path": "a"}, ok="x")
    assert first(judged(stream.steps, factory.make()), "critical") == 3
    for told in ("bash, date", '["bash", "date"]'):
        monkeypatch.setenv("RECLOSER_DETECTORS__TOOLS__IGNORE", told)
        assert tool_policy(load({}, None).detectors) == ToolPolicy(ignore=("bash", "date"))
    monkeypatch.setenv("RECLOSER_DETECTORS__DOOM_LOOP__ENABLED", "false")
    assert "doom_loop" not in build(load({}, None).detectors)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    points: list[EntryPoint] = []
    monkeypatch.setattr(
        catalog, "entry_points", lambda group: EntryPoints(p for p in points if p.group == group)
    )
    return points


def test_a_third_party_adds_a_detector(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("quiet", f"{__name__}:QUIET", "recloser.detectors"))
    factories = build({"quiet": {"shadow": False}})
    assert sorted(factories) == sorted([*BUILT_IN, "quiet"])
    assert not factories["quiet"].shadow
    assert build()["quiet"].shadow


def test_what_nobody_finds_is_known(installed: list[EntryPoint]) -> None:
    built_in = {kind for detector in BUILT_IN.values() for kind in detector.finds}
    assert unknown_findings(built_in) == ([], sorted(built_in))
    assert unknown_findings(["silence"]) == (["silence"], sorted(built_in))
    installed.append(EntryPoint("quiet", f"{__name__}:QUIET", "recloser.detectors"))
    assert unknown_findings(["silence", "dom_loop"]) == (["dom_loop"], sorted({*built_in, "silence"}))


def test_what_is_no_kind_is_refused(installed: list[EntryPoint]) -> None:
    installed.append(EntryPoint("wrong", f"{__name__}:NO_KIND", "recloser.detectors"))
    with pytest.raises(TypeError, match="wrong"):
        build()


def test_all_built_in_detectors_have_defaults_for_everything() -> None:
    for kind in BUILT_IN.values():
        kind.config()
