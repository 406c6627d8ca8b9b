"""The measured part of docs/handoff.md: figures, and one report of a real run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from control.handoff import FIELDS, Handoff, to_markdown
from control.handoff.forms import to_dict
from evaluation.handoff import HandoffScore, reports, scores
from evaluation.markdown import table
from evaluation.shared import FURTHER, LABELS, ROOT, converter, path_of, read
from evaluation.streams import LABELLED, runs_of

PAGE: Final = ROOT / "docs" / "handoff.md"
BEGIN: Final = "<!-- measured: written by make eval -->"
END: Final = "<!-- end of what is measured -->"
EXAMPLE: Final = "tau/airline/gpt-4o/task13/trial0"


def write(path: Path = PAGE) -> list[tuple[str, HandoffScore]]:
    """Measure, and write the figures and the example between the page's two marks."""
    cases, tool = runs_of(LABELLED, quick=False), converter()
    told = scores(list(read(path_of(LABELS))), list(read(path_of(FURTHER))), cases, tool)
    example = reports([case for case in cases if case["id"] == EXAMPLE], tool)[EXAMPLE]
    text = path.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    path.write_text(f"{head}{BEGIN}\n\n{measured(told, example)}\n\n{END}{tail}", encoding="utf-8")
    return told


def measured(told: Sequence[tuple[str, HandoffScore]], example: Handoff) -> str:
    """The figures as tables, and the example."""
    rows = [
        [title, str(one.runs), f"{one.mean_filled:.0%}", f"{one.near.hits} of {one.near.total} ({one.near})"]
        for title, one in told
    ]
    figures = table(["stuck runs labelled by", "runs", "fields filled, mean", "onset within 2 calls"], rows)
    runs = sum(one.runs for _, one in told)
    missing = [
        [name, str(sum(one.unknown[name] for _, one in told))]
        for name in FIELDS
        if any(one.unknown[name] for _, one in told)
    ]
    unfilled = table(["field", f"unfilled, of {runs} runs"], missing)
    report = re.sub(r"(?m)^#", "###", to_markdown(to_dict(example)))
    return f"{figures}\n\n{unfilled}\n\n## A report\n\nOf a recorded run (`{EXAMPLE}`):\n\n{report.strip()}"
