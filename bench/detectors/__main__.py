"""CPU per step of the detectors, and memory per scope.

Usage: ``python bench/detector_cost.py [--steps 20000]``.

A folder, because a file of this name would hide the package that it measures from the other scripts here.

One process, no store, no receivers: steps are made beforehand and handed to the engine. Result texts are 500
characters; every call is new, so that all that can be computed is computed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence

import orjson

from api.fitting import FitProcess
from api.garbage import look_for_garbage_rarely
from collector.step import Json, Kind, Outcome, Step, StepSeen, Usage
from detectors.catalog import BUILT_IN, build
from detectors.engine import DetectorFactory, Engine
from detectors.notes_book import NotesBook
from detectors.reading import Lens, Reading
from detectors.result_baseline import ResultBaseline
from detectors.signature import call_of, information
from detectors.tool_role import role_of

WORDS = [
    f"{start}{middle}{end}"
    for start in ("re", "con", "de", "pro", "in", "ex", "ab", "sub", "per", "ad")
    for middle in ("ta", "li", "no", "se", "ru", "ma", "vo", "pi", "fe", "do", "ca", "tu")
    for end in ("", "tion", "ment", "ble", "ly", "ness", "s", "ed", "ing", "er")
]
SECOND_NS = 1_000_000_000


def prose(dice: random.Random) -> str:
    """About a hundred characters that read like a line of a file: words, names, a number now and then."""
    line = " ".join(dice.choices(WORDS, k=11))
    return f"{line}, {dice.choice(WORDS)}_{dice.choice(WORDS)} = {dice.randrange(1000)}.\n"


def record(dice: random.Random) -> str:
    """About a hundred characters of a JSON object with keys that change from call to call by themselves."""
    name, number = dice.choice(WORDS), dice.randrange(1000)
    return f'{{"status": "completed", "exitCode": 0, "durationMs": {number}, "id": 7, "name": "{name}"}}, '


def result(line: Callable[[random.Random], str], number: int, size: int = 500) -> str:
    """A text of a size that occurs nowhere else."""
    dice, text = random.Random(number), ""
    while len(text) < size:
        text += line(dice)
    return text[:size]


def steps(count: int, sessions: int, line: Callable[[random.Random], str], size: int = 500) -> Iterator[Step]:
    """A model call and a tool call by turns, over sessions by turns; one call in seven fails."""
    for n in range(count):
        session = f"session-{n % sessions}"
        start = n * SECOND_NS
        kind = Kind.MODEL_CALL if n % 2 else Kind.TOOL_CALL
        fails = kind is Kind.TOOL_CALL and n % 14 == 0
        yield Step(
            step_id=f"{n:048x}",
            kind=kind,
            session_id=session,
            run_id=session,
            service="bench",
            agent="main",
            tool="read_file" if kind is Kind.TOOL_CALL else None,
            arguments={"path": f"src/module_{n}.py", "limit": 40},
            result=None if fails else result(line, n, size),
            error=f"FileNotFoundError: src/module_{n}.py\n{result(line, n, size)}"[:size] if fails else None,
            outcome=Outcome.ERROR if fails else Outcome.OK,
            usage=Usage(input_tokens=100, output_tokens=10),
            start_ns=start,
            end_ns=start + SECOND_NS // 10,
            trace_id=session,
            span_id=f"{n:016x}",
            attempt_id=f"message-{n}",
        )


def microseconds(work: Callable[[], object], rounds: int) -> float:
    """The best CPU time of three goes, for each of `rounds`."""
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best / rounds * 1e6


def judging(made: Sequence[Step], factories: Mapping[str, DetectorFactory]) -> float:
    """CPU of one go over all steps, in µs a step."""
    engine = Engine(factories)
    begin = time.process_time()
    for step in made:
        engine.observe(step)
    took = time.process_time() - begin
    if engine.errors:
        raise RuntimeError(f"a detector failed: {engine.errors}")
    return took / len(made) * 1e6


def measure_engine(count: int) -> None:
    """CPU of a step on its way through all detectors, and what each adds."""
    look_for_garbage_rarely()
    fitter = FitProcess()
    kinds = dict(BUILT_IN)
    kinds["result_baseline"] = dataclasses.replace(
        kinds["result_baseline"], make=lambda tuned: ResultBaseline(tuned, fitter)
    )
    factories = build(kinds=kinds)
    for size in (500, 2000):
        for name, line in (("prose", prose), ("json with volatile keys", record)):
            made = [step for step in steps(2 * count, 200, line, size) if step.kind is Kind.TOOL_CALL]
            goes = sorted(judging(made, factories) for _ in range(5))
            print(
                f"all {len(factories)} detectors, tool calls, {size} characters of {name}: "
                f"{statistics.median(goes):.1f} µs a step ({goes[0]:.1f} to {goes[-1]:.1f})"
            )
    for size in (500, 2000):
        mixed = list(steps(count, 200, prose, size))
        goes = sorted(judging(mixed, factories) for _ in range(5))
        print(
            f"all {len(factories)} detectors, model and tool calls by turns, {size} characters: "
            f"{statistics.median(goes):.1f} µs a step ({goes[0]:.1f} to {goes[-1]:.1f})"
        )
    mixed = list(steps(count, 200, prose))
    nothing = min(judging(mixed, {}) for _ in range(3))
    for name, factory in factories.items():
        alone = min(judging(mixed, {name: factory}) for _ in range(3))
        print(f"{name} alone: {alone - nothing:.1f} µs a step")
    fitter.close()


def measure_notes(count: int) -> None:
    """CPU of noting sessions and facts once detectors have read the steps, and of a checkpoint."""
    look_for_garbage_rarely()
    engine = Engine(build(kinds=BUILT_IN))
    shared = _Read(engine)
    made = list(steps(count, 200, prose))
    for step in made:
        engine.observe(step)
        shared.readings.append(engine.lens.read(step))
    book = NotesBook(lens=shared)
    begin = time.process_time()
    for step in made:
        book.apply(StepSeen(step))
    took = time.process_time() - begin
    print(f"notes and facts, read through the detectors' lens: {took / count * 1e6:.1f} µs a step")
    begin = time.process_time()
    pieces = [orjson.dumps(state) for state in book.changed().values()]
    took = time.process_time() - begin
    size = statistics.mean(map(len, pieces))
    print(f"a session's notes at a checkpoint: {took / len(pieces) * 1e6:.0f} µs, {size:.0f} bytes of JSON")


class _Read(Lens):
    """A lens that gives what was read before, in order."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.lens.policy)
        self.readings: list[Reading] = []
        self._at = itertools.count()

    def read(self, step: Step) -> Reading:
        del step
        return self.readings[next(self._at)]


def measure_parts(count: int) -> None:
    """CPU of the parts of a judgement."""
    arguments: Json = {"path": "src/module.py", "limit": 40}
    command: Json = {"command": "cd /srv && grep -rn 'name' src | head -20"}
    new = itertools.count()  # equal texts are remembered
    text, data = result(prose, 1), result(record, 1)
    parts: dict[str, Callable[[], object]] = {
        "signature of two arguments": lambda: call_of("read_file", arguments),
        "signature of a shell command": lambda: call_of("bash", command),
        "role of a shell command": lambda: role_of("bash", command),
        "information of 500 characters of prose": lambda: information(f"{next(new)} {text}"),
        "information of 500 characters of json": lambda: information(f"{next(new)} {data}"),
        "information of 100,000 characters": lambda: information(f"{next(new)} {text * 200}"),
        "information of a text that was just there": lambda: information(text),
    }
    for name, work in parts.items():
        rounds = count if "100,000" not in name else max(1, count // 20)

        def run(work: Callable[[], object] = work, rounds: int = rounds) -> None:
            for _ in range(rounds):
                work()

        print(f"{name}: {microseconds(run, rounds):.1f} µs")


def measure_memory(sessions: int) -> None:
    """Memory and checkpoint of scopes that are full."""
    made = list(steps(sessions * 400, sessions, prose))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    engine = Engine(build())
    for step in made:
        engine.observe(step)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    estimate = engine.estimated_bytes
    kib = 1024 * len(engine)
    print(f"memory of a full scope: {used / kib:.0f} KiB, estimated {estimate / kib:.0f} KiB")
    begin = time.process_time()
    snapshots = engine.dirty_scopes()
    took = (time.process_time() - begin) / len(snapshots)
    print(f"snapshot of a full scope: {took * 1e6:.0f} µs")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=20_000)
    options = parser.parse_args()
    measure_engine(options.steps)
    measure_notes(options.steps)
    measure_parts(options.steps)
    measure_memory(sessions=20)


if __name__ == "__main__":
    main()
