"""What a judgement of an error costs: `python -m bench.classify`.

Judges the real messages of `tests/testdata/errors/`, remembered ones and with the cache emptied, and one text
of a megabyte. Prints microseconds a message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from detectors.errors import classify
from detectors.errors.classify import forget
from detectors.errors.model import shipped
from detectors.errors.subject import subject_of

DATA = Path(__file__).resolve().parents[1] / "tests/testdata/errors"
ROUNDS = 20


def main() -> None:
    """Run the benchmark."""
    lines = (DATA / "real-error-messages-with-their-class.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [(row["message"], row["tool"]) for row in map(json.loads, lines)]

    def judge() -> None:
        for message, tool in rows:
            classify(message, tool=tool)

    def judge_anew() -> None:
        forget()
        judge()

    def guess() -> None:
        for subject in subjects:
            model.judge(subject)

    judge()
    print(f"remembered   {_microseconds(judge) / len(rows):8.1f} us a message")
    print(f"by rules     {_microseconds(judge_anew) / len(rows):8.1f} us a message")
    model, subjects = shipped(), [subject_of(message, tool) for message, tool in rows]
    print(f"model alone  {_microseconds(guess) / len(rows):8.1f} us a message")
    long = "Error: failed to find the value at line 12 of the file\n" * 20_000

    def judge_long() -> None:
        forget()
        classify(long)

    print(f"a megabyte   {_microseconds(judge_long):8.1f} us")


def _microseconds(work: Callable[[], None]) -> float:
    """The best of some rounds: what else the machine does is not the code's cost."""
    spent = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begun)
    return min(spent) * 1e6


if __name__ == "__main__":
    main()
