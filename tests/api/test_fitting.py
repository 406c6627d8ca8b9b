"""Fits in a process of their own: the same answers, no scikit-learn here, no trouble when it goes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.fitting import FitProcess
from detectors.result_fit import Samples, fit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fits() -> Iterator[FitProcess]:
    process = FitProcess()
    yield process
    process.close()


def samples(seed: int) -> Samples:
    dice = random.Random(seed)
    rows = tuple(tuple(dice.randint(400, 600) for _ in range(7)) for _ in range(60))
    return Samples(tuple(n // 10 for n in range(60)), rows)


def test_its_answers_are_those_of_a_fit_in_place(fits: FitProcess) -> None:
    assert fits.pid is None
    answers = [(seed, fits(samples(seed))) for seed in range(3)]
    assert [answer() for _, answer in answers] == [fit(samples(seed)) for seed, _ in answers]
    assert fits.pid is not None


def test_a_process_that_is_gone_is_no_trouble(fits: FitProcess) -> None:
    fits(samples(1))()
    assert fits.pid is not None
    os.kill(fits.pid, signal.SIGKILL)
    assert fits(samples(2))() == fit(samples(2))


def test_scikit_learn_is_loaded_by_the_first_fit_and_not_before() -> None:
    script = """
import sys
import api.ingest
from api.fitting import FitProcess
from detectors.result_fit import Samples
heavy = {"sklearn", "scipy"}
samples = Samples((0, 1) * 30, tuple((n % 7, n % 5, 1, 2, 3, 4, 5) for n in range(60)))
before = heavy & set(sys.modules)
fits = FitProcess()
fits(samples)()
fits.close()
print(sorted(before), sorted(heavy & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[] []"


def test_the_end_waits_for_no_fit_and_loses_none(fits: FitProcess) -> None:
    answers = [(seed, fits(samples(seed))) for seed in range(20)]
    fits.close()
    assert fits.pid is None
    assert [answer() for _, answer in answers] == [fit(samples(seed)) for seed, _ in answers]
