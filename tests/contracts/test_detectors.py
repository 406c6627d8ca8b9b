"""What every detector of the catalog must hold to."""

from __future__ import annotations

import copy
import dataclasses
import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from collector.step import Json, Kind, Outcome, Step, ToolDefinition, ToolDefinitions
from detectors.catalog import BUILT_IN, build
from detectors.engine import DetectorFactory, Engine, EngineLimits
from detectors.primary import PRECEDENCE
from detectors.protocol import Detector, Finding, Severity
from detectors.reading import Reading
from detectors.scope import estimated_bytes
from tests.detectors.case_steps import read_cases, steps_of
from tests.detectors.stream import Stream

FACTORIES = build()
DOCS = Path(__file__).parents[2] / "docs"
SINGLE = {kind for kind, rank in PRECEDENCE.items() if rank == 1}
EVERY = pytest.mark.parametrize("name", sorted(FACTORIES))


def _offered(version: str, parameter: str) -> ToolDefinitions:
    schema: Json = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return ToolDefinitions(version, {"read_file": ToolDefinition("read_file", parameters=schema)}, 90)


OFFERED = (_offered("1", "path"), _offered("2", "file"))


def detector(name: str) -> Detector:
    return FACTORIES[name].make()


def busy(count: int, *, seed: int = 1) -> list[Step]:
    """A stream in which everything happens: repeats, failures, batches, late steps, gaps."""
    dice = random.Random(seed)
    stream = Stream()
    for n in range(count):
        arguments: Json = dice.choice(
            [None, {}, {"path": f"{dice.randrange(6)}.py"}, {"offset": n % 50, "limit": 9, "p": 1}]
        )
        stream.call(
            dice.choice(["read_file", "edit", "bash", "job_status", "mystery"]),
            arguments,
            ok=dice.choice([None, "ok", f"x = {dice.randrange(3)}", '{"state": "running"}']),
            outcome=dice.choice(list(Outcome)),
            attempt_id=dice.choice([None, f"m{n // 3}"]),
            late=dice.random() < 0.05,
            after=dice.choice([0.1, 2.0, 400.0]),
            service="shop",
            service_version=dice.choice(["1", "2"]),
            target=dice.choice([None, "db.example:5432"]),
        )
        if dice.random() < 0.1:
            stream.model(10, service="shop", definitions=dice.choice([None, *OFFERED]))
        if dice.random() < 0.02:
            stream.user(text=dice.choice([None, "see order ord_8f3k2"]))
    return stream.steps


def calm(count: int) -> list[Step]:
    """Honest work: everything is looked at once, then changed, then tested with another outcome."""
    stream = Stream()
    for n in range(count):
        stream.model(10).call("read_file", {"path": f"{n}.py"}, ok=f"x = {n}")
        stream.model(10).call("edit", {"path": f"{n}.py", "new": f"x = {n + 1}"}, ok="1 edit applied")
        stream.model(10).call("bash", {"command": "pytest -q"}, ok=f"{n} passed")
    return stream.steps


def alarms(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.severity is not Severity.INFO]


def observe(judge: Detector, steps: Sequence[Step]) -> list[Finding]:
    return [finding for step in steps for finding in judge.observe(Reading(step))]


def through_json(state: Json) -> Json:
    restored: Json = json.loads(json.dumps(state))
    return restored


@EVERY
def test_it_leaves_steps_as_they_are(name: str) -> None:
    steps = busy(300)
    before = copy.deepcopy(steps)
    observe(detector(name), steps)
    assert steps == before


@EVERY
@pytest.mark.parametrize("seed", range(3))
def test_the_same_steps_give_the_same_findings(name: str, seed: int) -> None:
    steps = busy(500, seed=seed)
    assert observe(detector(name), steps) == observe(detector(name), steps)


@EVERY
@pytest.mark.parametrize("seed", range(5))
def test_it_goes_on_from_a_snapshot_as_if_nothing_had_happened(name: str, seed: int) -> None:
    steps = busy(400, seed=seed)
    whole = detector(name)
    expected = observe(whole, steps)
    found: list[Finding] = []
    judge = detector(name)
    for at in range(0, len(steps), 37):
        found += observe(judge, steps[at : at + 37])
        state = through_json(judge.snapshot())
        judge = detector(name)
        judge.restore(state)
    assert found == expected
    assert through_json(judge.snapshot()) == through_json(whole.snapshot())


@EVERY
def test_its_state_is_bounded(name: str) -> None:
    judge = detector(name)
    stream, sizes = Stream(), []
    for n in range(20_000):
        stream.call(f"tool_{n % 5000}", {"path": f"{n}.py", "offset": n, "limit": 5}, ok=f"x = {10_000 + n}")
        if len(stream.steps) == 2_000:
            observe(judge, stream.steps)
            stream.steps.clear()
            sizes.append(estimated_bytes(judge.snapshot()))
    assert sizes[-1] < 256 * 1024
    assert sizes[-1] < 1.1 * sizes[0]


@EVERY
def test_it_is_quiet_on_a_calm_stream(name: str) -> None:
    assert observe(detector(name), calm(300)) == []


@EVERY
def test_findings_say_what_they_must(name: str) -> None:
    steps = {step.step_id: step for step in busy(2000)}
    for finding in observe(detector(name), list(steps.values())):
        completing = steps[finding.step_id]
        assert (finding.span_id, finding.trace_id) == (completing.span_id, completing.trace_id)
        assert finding.detected_at == completing.end_ns
        assert finding.started_at <= finding.detected_at
        assert finding.occurrences >= (1 if finding.kind in SINGLE else 2)
        assert finding.summary
        assert isinstance(finding.evidence["missing"], list)
        assert not (finding.evidence["missing"] and finding.severity is Severity.CRITICAL)
        assert len(json.dumps(finding.evidence)) < 4096


@EVERY
def test_the_id_does_not_depend_on_the_session(name: str) -> None:
    for case in read_cases()[:20]:
        steps = [step for _, step in steps_of(case)]
        renamed = [dataclasses.replace(step, session_id="another") for step in steps]
        one, other = observe(detector(name), steps), observe(detector(name), renamed)
        assert [finding.id for finding in one] == [finding.id for finding in other]


@EVERY
def test_it_takes_every_kind_of_step_however_bare(name: str) -> None:
    judge = detector(name)
    for kind in Kind:
        for outcome in Outcome:
            bare = Step(
                step_id=f"{kind}{outcome}", kind=kind, session_id="s", start_ns=0, end_ns=0, outcome=outcome
            )
            observe(
                judge,
                [bare, dataclasses.replace(bare, tool="t"), dataclasses.replace(bare, arguments=[1, None])],
            )


@EVERY
@pytest.mark.parametrize("seed", range(2))
def test_it_is_quiet_on_a_calm_stream_out_of_order(name: str, seed: int) -> None:
    dice = random.Random(seed)
    places = [(n + dice.choice([0, 0, 0, 0, 5]), step) for n, step in enumerate(calm(200))]
    latest, steps = 0, []
    for _, step in sorted(places, key=lambda place: place[0]):
        steps.append(dataclasses.replace(step, late=step.end_ns < latest))
        latest = max(latest, step.end_ns)
    assert any(step.late for step in steps)
    assert alarms(observe(detector(name), steps)) == []


@EVERY
def test_its_state_is_bounded_over_many_scopes(name: str) -> None:
    many_scopes(Engine({name: FACTORIES[name]}, EngineLimits(max_bytes=1024 * 1024)), 1_000)


@pytest.mark.accept
@pytest.mark.short
def test_the_state_of_all_is_bounded_over_a_hundred_thousand_scopes() -> None:
    many_scopes(Engine(FACTORIES, EngineLimits(max_bytes=64 * 1024 * 1024)), 100_000)


def many_scopes(engine: Engine, count: int) -> None:
    """Show an engine more scopes than it may keep; the newest work, the bound holds, what went is counted."""
    limit = engine.limits.max_bytes
    stream = Stream()
    for n in range(count):
        stream.session, stream.agent, stream.run = f"session-{n}", f"agent-{n}", f"run-{n}"
        stream.steps.clear()
        stream.model(10).call(
            f"tool_{n}", {"path": f"{n}.py"}, error=f"no such file: {n}.py", target=f"host-{n}", after=0.01
        )
        for step in stream.steps:
            engine.observe(step)
        assert engine.estimated_bytes <= limit + 64 * 1024
    assert engine.errors == {}
    assert engine.evicted > 0
    assert len(engine) > 1


@EVERY
def test_it_is_documented_with_every_setting(name: str) -> None:
    page = (DOCS / "detectors" / f"{name}.md").read_text()
    told: dict[str, str] = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    for field in dataclasses.fields(BUILT_IN[name].config):
        if field.name != "shadow":
            assert json.loads(told[field.name]) == field.default, field.name
        elif field.name in told:
            assert told[field.name] == str(field.default).lower(), field.name
    assert f"(detectors/{name}.md)" in (DOCS / "detectors.md").read_text()
    assert type(detector(name)).__doc__
    assert sys.modules[type(detector(name)).__module__].__doc__


@EVERY
def test_it_does_not_suffer_from_a_neighbour_that_fails(name: str) -> None:
    class Failing:
        def observe(self, _: Reading) -> Sequence[Finding]:
            raise RuntimeError("always")

        def snapshot(self) -> Json:
            raise RuntimeError("always")

        def restore(self, _: Json) -> None:
            raise RuntimeError("always")

    steps = busy(300)
    alone = Engine({name: FACTORIES[name]})
    beside = Engine({"failing": DetectorFactory(Failing), name: FACTORIES[name]})
    expected = [finding for step in steps for finding in alone.observe(step)]
    assert [finding for step in steps for finding in beside.observe(step)] == expected
    beside.dirty_scopes()
    assert "failing" in beside.errors
