"""The engine: scopes, bounds, isolation, merges, checkpoints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from collector.step import Json, RunEnded, SessionsMerged, Step, StepAmended, StepSeen
from detectors.bounds import bounded
from detectors.doom_loop import DoomLoop
from detectors.engine import DetectorFactory, Engine, EngineLimits, scope_key
from detectors.keys import Key, by_agent, by_session, by_target, by_tool
from detectors.protocol import Finding, Severity
from detectors.reading import Reading
from detectors.tool_policy import ToolPolicy
from tests.detectors.stream import Stream

READ: Json = {"path": "a.py"}


def engine(**limits: Any) -> Engine:  # noqa: ANN401 - fields of EngineLimits
    return Engine({"doom_loop": DetectorFactory(DoomLoop)}, EngineLimits(**limits))


def loop(count: int = 5, **more: Any) -> list[Step]:  # noqa: ANN401 - fields of Stream
    return Stream(**more).times(count, "read_file", READ, ok="x = 1").steps


def feed(to: Engine, steps: Sequence[Step]) -> list[Finding]:
    return [finding for step in steps for finding in to.apply(StepSeen(step))]


class Broken:
    """Raises at the third step."""

    def __init__(self) -> None:
        self.seen = 0

    def observe(self, _: Reading) -> Sequence[Finding]:
        self.seen += 1
        if self.seen == 3:
            raise KeyError("third")
        return ()

    def snapshot(self) -> Json:
        return self.seen

    def restore(self, state: Json) -> None:
        if not isinstance(state, int):
            raise TypeError("not a count")
        self.seen = state


class Says:
    """Says the same at every step."""

    def __init__(self, said: Any) -> None:  # noqa: ANN401 - nonsense, too
        self.said = said

    def observe(self, _: Reading) -> Sequence[Finding]:
        said: Sequence[Finding] = self.said
        return said

    def snapshot(self) -> Json:
        return None

    def restore(self, state: Json) -> None:
        """Nothing is kept."""


SAID = Finding(
    id="00ff",
    kind="odd",
    severity=Severity.CRITICAL,
    session_id="s",
    started_at=1,
    detected_at=2,
    occurrences=3,
    summary="odd",
)


def test_agents_of_one_session_are_judged_apart() -> None:
    mixed = [step for pair in zip(loop(3, agent="a"), loop(3, agent="b"), strict=True) for step in pair]
    assert {finding.severity for finding in feed(engine(), mixed)} == {Severity.INFO}


def test_a_turn_of_the_user_without_an_agent_reaches_every_agent_of_the_session() -> None:
    judge = engine()
    feed(judge, loop(4, agent="a"))
    feed(judge, Stream().user(agent=None).steps)
    assert feed(judge, loop(4, agent="a")[-1:]) == []


def test_a_detector_that_raises_is_left_out_and_the_others_go_on() -> None:
    judge = Engine({"broken": DetectorFactory(Broken), "doom_loop": DetectorFactory(DoomLoop)})
    found = feed(judge, loop(5))
    assert found[-1].severity is Severity.CRITICAL
    assert judge.errors["broken"].count == 1
    assert "third" in judge.errors["broken"].last
    feed(judge, loop(5, session="other"))
    assert judge.errors["broken"].count == 2


@pytest.mark.parametrize(
    "said",
    [
        5,
        ["a text"],
        [None],
        [replace(SAID, severity="critical")],  # type: ignore[arg-type]  # as a careless detector does
        [replace(SAID, occurrences="3")],  # type: ignore[arg-type]
        [replace(SAID, evidence={"a": object()})],  # type: ignore[dict-item]
        [replace(SAID, session_ids=(1,))],  # type: ignore[arg-type]
    ],
)
def test_a_detector_that_says_nonsense_is_left_out_and_the_others_are_heard(said: object) -> None:
    judge = Engine({"odd": DetectorFactory(lambda: Says(said)), "doom_loop": DetectorFactory(DoomLoop)})
    found = feed(judge, loop(5))
    assert found == feed(engine(), loop(5))
    assert judge.errors["odd"].count == 1


def test_what_a_detector_says_is_bounded() -> None:
    long = replace(
        SAID,
        summary="s" * 10_000,
        session_id="i" * 10_000,
        evidence={"span_ids": ["x" * 16] * 1000, "rule": "mine", "missing": ["result"]},
    )
    judge = Engine({"long": DetectorFactory(lambda: Says([long]))})
    found = feed(judge, loop(1))[0]
    assert (len(found.summary), len(found.session_id)) == (500, 1024)
    assert found.session_id != bounded(replace(long, session_id="i" * 9_999)).session_id
    assert found.evidence == {
        "truncated": True,
        "rule": "mine",
        "missing": ["result"],
        "target": "read_file",
        "step": "read_file",
    }


def test_users_of_one_server_whose_sessions_are_unknown_are_no_loop_to_stop() -> None:
    found = feed(engine(), loop(12, session="process:web-1"))
    assert max(finding.severity.rank for finding in found) == Severity.WARNING.rank
    assert all(finding.evidence["missing"] == ["session"] for finding in found)
    assert [finding.severity for finding in found].count(Severity.WARNING) == 2  # at 5, and at 8 doubled


def test_no_detector_is_sure_of_an_unknown_session() -> None:
    judge = Engine({"sure": DetectorFactory(lambda: Says([SAID]))})
    found = feed(judge, loop(1, session="process:web-1"))[0]
    assert (found.severity, found.evidence["missing"]) == (Severity.WARNING, ["session"])


def test_a_disabled_detector_stays_so_after_a_restart() -> None:
    factories = {"broken": DetectorFactory(Broken)}
    judge = Engine(factories)
    feed(judge, loop(4))
    again = Engine(factories)
    again.restore(saved(judge))
    feed(again, loop(9))
    assert again.errors == {}


def saved(judge: Engine) -> dict[str, Json]:
    """What a checkpoint would hold, after a trip through JSON."""
    return {
        key: json.loads(json.dumps(state)) for key, state in judge.dirty_scopes().items() if state is not None
    }


def test_a_state_that_cannot_be_read_is_counted_and_begun_anew() -> None:
    judge = Engine({"broken": DetectorFactory(Broken)})
    feed(judge, loop(2))
    states: Any = saved(judge)
    states[scope_key("s", "main")]["detectors"]["broken"] = "rubbish"
    again = Engine({"broken": DetectorFactory(Broken)})
    again.restore(states)
    assert again.errors["broken"].count == 1
    feed(again, loop(2))
    assert again.errors["broken"].count == 1


def test_a_shadow_marks_its_findings() -> None:
    judge = Engine({"doom_loop": DetectorFactory(DoomLoop, shadow=True)})
    assert all(finding.evidence["shadow"] is True for finding in feed(judge, loop(5)))


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 7])
def test_a_restart_in_the_middle_changes_nothing(cut: int) -> None:
    steps = loop(12)
    whole = feed(engine(), steps)
    before, after = engine(), engine()
    found = feed(before, steps[:cut])
    after.restore(saved(before))
    assert found + feed(after, steps[cut:]) == whole


def test_a_restart_changes_nothing_of_what_goes_for_lack_of_memory() -> None:
    """The one used last stays, though its clock is behind; sizes are those that were estimated last."""
    steps = [step for n in range(60) for step in loop(5, session=f"s{n * 7 % 60}", now_ns=(60 - n) * 10**12)]
    whole, restarted = engine(max_bytes=60_000), engine(max_bytes=60_000)
    kept: dict[str, Json] = {}
    for step in steps:
        assert whole.observe(step) == restarted.observe(step)
        changes = restarted.dirty_scopes()
        kept = {key: state for key, state in {**kept, **changes}.items() if state is not None}
        restarted = engine(max_bytes=60_000)
        assert restarted.restore(json.loads(json.dumps(kept))) == {}
        assert restarted.estimated_bytes == whole.estimated_bytes
    assert whole.evicted > 0


def test_what_cannot_be_or_need_not_be_restored_is_told_and_the_rest_is_restored() -> None:
    judge = Engine(
        {"counts": DetectorFactory(Counts, key=by_target), "doom_loop": DetectorFactory(DoomLoop)},
    )
    feed(judge, loop(5))
    states, mine = saved(judge), scope_key("s", "main")
    again = engine()
    assert again.restore(states) == {key: None for key in states if "target" in key}
    assert len(again) == 1
    other = engine()
    left = other.restore({**states, mine: {"of": "another version"}})
    assert isinstance(left[mine], KeyError)
    assert set(left) == set(states)
    assert (len(other), other.estimated_bytes) == (0, 0)


def test_only_scopes_that_changed_are_written_again() -> None:
    judge = engine()
    feed(judge, loop(2, session="a"))
    feed(judge, loop(2, session="b"))
    assert set(judge.dirty_scopes()) == {scope_key("a", "main"), scope_key("b", "main")}
    feed(judge, loop(2, session="b"))
    assert set(judge.dirty_scopes()) == {scope_key("b", "main")}
    assert judge.dirty_scopes() == {}


def test_memory_is_bounded_and_the_least_recent_scope_goes() -> None:
    judge = engine(max_bytes=60_000)
    for n in range(50):
        feed(judge, loop(3, session=f"s{n}"))
    assert judge.estimated_bytes <= 60_000
    assert judge.evicted == 50 - len(judge)
    assert judge.evicted > 0
    dirty = judge.dirty_scopes()
    assert dirty[scope_key("s0", "main")] is None
    assert dirty[scope_key("s49", "main")] is not None


def test_scopes_that_were_idle_for_long_expire_and_one_fast_clock_does_not_expire_the_others() -> None:
    judge = engine(idle_s=3600)
    feed(judge, loop(2, session="old"))
    late = Stream().now_ns + 7200 * 10**9
    for n in range(1100):
        feed(judge, loop(4, session=f"s{n % 100}", now_ns=late))
    assert judge.expired == 1
    feed(judge, loop(2, session="ahead", now_ns=late + 10**18))
    for n in range(1100):
        feed(judge, loop(4, session=f"s{n % 100}", now_ns=late))
    assert judge.expired == 1


def test_a_session_id_that_comes_late_merges_the_streak() -> None:
    judge = engine()
    early = feed(judge, loop(4, session="trace"))
    said_again = judge.apply(SessionsMerged("trace", "conversation"))
    steps = [dataclasses.replace(step, session_id="conversation") for step in loop(6, session="trace")[4:]]
    rest = feed(judge, steps)
    severities = [finding.severity for finding in early + rest]
    assert severities == [Severity.INFO, Severity.WARNING, Severity.CRITICAL]
    assert {finding.id for finding in early + said_again + rest} == {early[0].id}
    assert [finding.revision for finding in early + said_again + rest] == [0, 1, 2, 3]
    assert {finding.session_id for finding in said_again + rest} == {"conversation"}
    assert rest[-1].session_ids == ("conversation", "trace")
    scopes = {key for key in judge.dirty_scopes() if "said" not in key}
    assert scopes == {scope_key("trace", "main"), scope_key("conversation", "main")}


def test_two_halves_of_a_streak_become_one() -> None:
    judge = engine()
    steps = loop(6, session="x")
    feed(judge, [dataclasses.replace(step, session_id="old") for step in steps[:3]])
    feed(judge, [dataclasses.replace(step, session_id="new") for step in steps[3:5]])
    judge.apply(SessionsMerged("old", "new"))
    rest = feed(judge, [dataclasses.replace(step, session_id="new") for step in steps[5:]])
    assert [(finding.severity, finding.occurrences) for finding in rest] == [(Severity.CRITICAL, 6)]
    assert rest[0].first_span_id == "span-1"


def test_a_merge_of_what_is_unknown_is_nothing() -> None:
    judge = engine()
    feed(judge, loop(4, session="a"))
    assert judge.apply(SessionsMerged("x", "b")) == []
    assert judge.apply(SessionsMerged("a", "a")) == []
    assert len(judge) == 1


def test_the_end_of_a_run_ends_its_streaks() -> None:
    judge = engine()
    steps = loop(6)
    feed(judge, steps[:3])
    judge.apply(RunEnded("s", "another run", 0))
    assert len(judge) == 1
    judge.apply(RunEnded("s", "run-1", 0))
    assert len(judge) == 0
    assert [finding.severity for finding in feed(judge, steps[3:])] == [Severity.INFO]


def test_more_that_becomes_known_reaches_the_detector() -> None:
    judge = engine()
    found: list[Finding] = []
    for step in Stream().times(5, "read_file", None, ok="x").steps:
        found += judge.apply(StepSeen(step))
        found += judge.apply(StepAmended(dataclasses.replace(step, arguments=READ, revision=1)))
    assert found[-1].severity is Severity.CRITICAL
    assert [finding.revision for finding in found if finding.id == found[-1].id] == list(
        range(len([finding for finding in found if finding.id == found[-1].id])),
    )


def test_a_revision_is_never_less_severe() -> None:
    class Wavering(Broken):
        def observe(self, reading: Reading) -> Sequence[Finding]:
            step = reading.step
            self.seen += 1
            severity = Severity.CRITICAL if self.seen % 2 else Severity.INFO
            at = step.end_ns
            return [
                Finding(
                    id="f", kind="k", severity=severity, session_id="s", started_at=at, detected_at=at,
                    occurrences=self.seen, summary="",
                ),
            ]  # fmt: skip

    found = feed(Engine({"wavering": DetectorFactory(Wavering)}), loop(4))
    assert {finding.severity for finding in found} == {Severity.CRITICAL}
    assert [finding.revision for finding in found] == [0, 1, 2, 3]
    assert {finding.detector for finding in found} == {"wavering"}


@pytest.mark.parametrize("name", ["max_bytes", "idle_s"])
def test_a_limit_out_of_range_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"engine.{name}"):
        EngineLimits(**{name: 0})


@dataclass
class Counts:
    """Says how many steps it has seen, at every third."""

    seen: int = 0

    def observe(self, _: Reading) -> Sequence[Finding]:
        self.seen += 1
        return [] if self.seen % 3 else [replace(SAID, id=f"third-{self.seen}", kind="count")]

    def snapshot(self) -> Json:
        return self.seen

    def restore(self, state: Json) -> None:
        assert isinstance(state, int)
        self.seen = state


def calls(session: str, agent: str, *, target: str | None = None) -> list[Step]:
    return Stream(session=session, agent=agent, run=session).times(2, "t", {}, ok="x", target=target).steps


@pytest.mark.parametrize(
    ("key", "counts"),
    [
        (by_agent, []),
        (by_session, ["third-3"]),
        (by_target, ["third-3", "third-6"]),
        (by_tool, ["third-3", "third-6"]),
    ],
)
def test_a_key_says_whose_steps_a_detector_sees_together(key: Key, counts: list[str]) -> None:
    judge = Engine({"counts": DetectorFactory(Counts, key=key)})
    steps = [
        *calls("a", "one", target="db"),
        *calls("a", "two", target="db"),
        *calls("b", "one", target="db"),
    ]
    assert [finding.id for finding in feed(judge, steps)] == counts


@pytest.mark.parametrize("key", [by_session, by_target])
def test_scopes_of_every_key_survive_a_checkpoint(key: Key) -> None:
    judge = Engine({"counts": DetectorFactory(Counts, key=key)})
    feed(judge, calls("a", "one", target="db"))
    again = Engine({"counts": DetectorFactory(Counts, key=key)})
    again.restore(judge.dirty_scopes())
    assert [finding.id for finding in feed(again, calls("a", "two", target="db"))] == ["third-3"]


def test_a_session_scope_follows_its_session_and_a_fleet_scope_does_not_care() -> None:
    for key, seen in ((by_session, ["third-3"]), (by_target, ["third-3"])):
        judge = Engine({"counts": DetectorFactory(Counts, key=key)})
        feed(judge, calls("trace", "one", target="db"))
        judge.apply(SessionsMerged("trace", "conversation"))
        assert [finding.id for finding in feed(judge, calls("conversation", "one", target="db"))] == seen


def test_a_tool_can_be_switched_off_or_shadowed_on_its_own() -> None:
    off = Engine({"doom_loop": DetectorFactory(DoomLoop, tools={"read_file": None})})
    assert feed(off, loop(6)) == []
    shadow = Engine({"doom_loop": DetectorFactory(DoomLoop, tools={"read_file": True})})
    assert all(finding.evidence["shadow"] for finding in feed(shadow, loop(6)))


def test_ignored_tools_are_seen_by_no_detector() -> None:
    judge = Engine({"doom_loop": DetectorFactory(DoomLoop)}, policy=ToolPolicy(ignore=("read_file",)))
    assert feed(judge, loop(6)) == []
    assert len(judge) == 0


def test_findings_of_two_detectors_about_one_streak_are_one() -> None:
    class Flails(Counts):
        def observe(self, reading: Reading) -> Sequence[Finding]:
            self.seen += 1
            step = reading.step
            told = replace(
                SAID,
                id="flail-id",
                kind="flail",
                agent=step.agent,
                tool=step.tool,
                started_at=step.start_ns - 5_000_000_000,
                detected_at=step.end_ns,
            )
            return [told] if self.seen == 6 else []

    judge = Engine({"doom_loop": DetectorFactory(DoomLoop), "flail": DetectorFactory(Flails)})
    found = feed(judge, loop(9))
    assert len({finding.id for finding in found}) == 1
    assert [finding.kind for finding in found][-1] == "flail"
    assert [finding.revision for finding in found] == list(range(len(found)))
