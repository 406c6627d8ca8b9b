"""CPU of reading steps, per agent record: columns, conventions, joining. Prints one line a capture.

python bench/steps.py [CAPTURE_FOLDER ...] [--times N]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from recorded import RECORDED, batches  # noqa: E402 - a script finds the project by its own place

from collector.conventions import catalog  # noqa: E402 - as above
from collector.reader import StepReader  # noqa: E402 - as above
from collector.record import records  # noqa: E402 - as above

DEFAULT = (
    "pydantic-ai/no-content-sub",
    "langgraph/otel-genai-content-returned-errors",
    "langgraph/openinference-returned-errors",
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("captures", type=Path, nargs="*")
    parser.add_argument("--times", type=int, default=40)
    options = parser.parse_args()
    folders = options.captures or [RECORDED / name for name in DEFAULT]
    for folder in folders:
        parts = batches(folder)
        count = sum(len(batch.agent_rows) for batch in parts) * options.times
        begun = time.process_time()
        for _ in range(options.times):
            for batch in parts:
                for _record in records(batch):
                    pass
        columns = time.process_time()
        for _ in range(options.times):
            for batch in parts:
                for record in records(batch):
                    catalog.read(record)
        read = time.process_time()
        for time_ns in range(options.times):
            reader = StepReader()
            for batch in parts:
                reader.push(batch, time_ns)
            reader.drain()
        joined = time.process_time()
        record_us, read_us, all_us = (
            1e6 * seconds / count for seconds in (columns - begun, read - columns, joined - read)
        )
        print(
            f"{folder.parent.name}/{folder.name}: {count // options.times} records, CPU us each: "
            f"columns {record_us:.1f}, conventions {read_us - record_us:.1f}, "
            f"joining {all_us - read_us:.1f}, all {all_us:.1f}"
        )


if __name__ == "__main__":
    main()
