"""`recloser analyze`: recorded traces through the same decoder, reader and engine as live ones."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TextIO

import orjson
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from api.build import build_decode, build_engine, build_offline_reader
from api.config import ConfigError, Settings
from api.joining import groups, joined
from api.judging import Judge
from api.printable import printable
from collector.batch import Batch
from collector.consumer import Rejected
from collector.receivers.files import Body, read_files
from collector.step import Step, StepAmended, StepEvent, StepSeen
from detectors.notes_book import NotesBook
from detectors.protocol import Finding, Severity
from detectors.reading import Lens

FOUND: Final = 1
BAD_INPUT: Final = 2
MANY_TROUBLES: Final = 20  # different reasons that are told
STYLES: Final = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: ""}

FINDING_FIELDS: Final = (
    "id",
    "revision",
    "kind",
    "severity",
    "session_id",
    "session_ids",
    "run_id",
    "agent",
    "tool",
    "trace_id",
    "span_id",
    "first_span_id",
    "started_at",
    "detected_at",
    "occurrences",
    "evidence",
    "summary",
)


class Problems:
    """Bad input: said once on standard error, counted, never the end of the analysis."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.count = 0

    def __call__(self, path: Path, line: int, reason: str) -> None:
        """Report one of a file, `line` 0 when it is of the whole file."""
        self.about(f"{path}:{line}" if line else str(path), reason)

    def about(self, source: str, reason: str) -> None:
        """Report one of a source."""
        self.count += 1
        self._stream.write(f"recloser: {printable(source)}: {printable(reason)}\n")


def step_row(step: Step) -> dict[str, object]:
    """A step as `--format steps-jsonl` prints it."""
    return {
        "kind": step.kind.value,
        "session_id": step.session_id,
        "run_id": step.run_id,
        "agent": step.agent,
        "tool": step.tool,
        "arguments": step.arguments,
        "outcome": step.outcome.value,
        "error": step.error,
        "call_id": step.call_id,
        "model": step.model,
        "input_tokens": step.usage.input_tokens,
        "output_tokens": step.usage.output_tokens,
        "trace_id": step.trace_id,
        "span_id": step.span_id,
        "start_ns": step.start_ns,
        "end_ns": step.end_ns,
        "convention": step.convention,
    }


def finding_row(finding: Finding) -> dict[str, object]:
    """A finding as `--format findings-jsonl` prints it."""
    return {name: getattr(finding, name) for name in FINDING_FIELDS}


class Analysis:
    """Bodies in; steps (those of `keep_steps` only: they are many) and findings out, in engine order.

    With `notes`, which makes the book, all sessions are noted, too.
    """

    def __init__(
        self,
        settings: Settings,
        problems: Problems,
        *,
        keep_steps: bool = False,
        notes: Callable[[Lens], NotesBook] | None = None,
    ) -> None:
        self._decode = build_decode(settings)
        self._reader = build_offline_reader(settings)
        self._engine = build_engine(settings)
        self._judge = Judge(self._engine, self._trouble)
        self.notes = notes(self._engine.lens) if notes is not None else None
        self._problems = problems
        self._troubles: set[str] = set()
        self._keep = keep_steps
        self.bodies = 0
        self.step_count = 0
        self.steps: dict[str, Step] = {}
        self.latest: dict[str, Finding] = {}

    def feed(self, bodies: Iterable[Body]) -> Iterator[Finding]:
        """Analyze all bodies as one stream; yield each finding, again when kind or severity changes."""
        for events in self._read(bodies):
            yield from self._judged(events)

    def events(self, bodies: Iterable[Body]) -> Iterator[StepEvent]:
        """Read all bodies as one stream, and judge nothing."""
        for events in self._read(bodies):
            yield from events

    def _read(self, bodies: Iterable[Body]) -> Iterator[Sequence[StepEvent]]:
        for group in groups(bodies):
            self.bodies += len(group)
            for batch in self._batches(group):
                yield self._reader.push(batch, 0)
            self._engine.forget_changes()
            if self.notes is not None:
                self.notes.forget_changes()
        yield self._reader.drain()

    def _batches(self, group: Sequence[Body]) -> Iterator[Batch]:
        """What a group holds: decoded together, or, when anything in it is bad, one by one to say what."""
        together = joined(group) if len(group) > 1 else None
        if together is not None:
            try:
                decoded = self._decode(group[0][0], "json", together)
            except Rejected:
                decoded = None
            if decoded is not None and not decoded.message:
                if decoded.batch is not None:
                    yield decoded.batch
                return
        for kind, encoding, body, source in group:
            try:
                decoded = self._decode(kind, encoding, body)
            except Rejected as error:
                self._problems.about(source, str(error))
                continue
            if decoded.message:
                self._problems.about(source, decoded.message)
            if decoded.batch is not None:
                yield decoded.batch

    def _trouble(self, what: str, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if reason not in self._troubles and len(self._troubles) < MANY_TROUBLES:
            self._troubles.add(reason)
            self._problems.about(f"one {what}", f"could not be judged: {reason}")

    def _judged(self, events: Sequence[StepEvent]) -> Iterator[Finding]:
        for event in events:
            if isinstance(event, StepSeen):
                self.step_count += 1
            if self._keep and isinstance(event, StepSeen | StepAmended):
                self.steps[event.step.step_id] = event.step
            if self.notes is not None:
                self.notes.apply(event)
            for finding, _ in self._judge.apply(event):
                if self.notes is not None:
                    self.notes.found(finding)
                before = self.latest.get(finding.id)
                self.latest[finding.id] = finding
                if before is None or (before.kind, before.severity) != (finding.kind, finding.severity):
                    yield finding


def _size(path: Path) -> int:
    """Bytes of a file or of all in a folder, for the progress bar; what cannot be looked at has none."""
    if not os.path.isdir(path):  # noqa: PTH112 - never raises
        return os.path.getsize(path) if os.path.isfile(path) else 0  # noqa: PTH113, PTH202 - as above
    inner = (Path(folder, name) for folder, _, names in os.walk(path) for name in names)
    return sum(_size(file) for file in inner)


def _progress(bodies: Iterable[Body], total: int, console: Console) -> Iterator[Body]:
    """Bodies, with a bar that moves on a file at a time."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("analyzing", total=total or None)
        current, completed = "", 0
        for body in bodies:
            path = body[3].rpartition(":")[0] or body[3]
            if path != current and current:
                completed += _size(Path(current))
                progress.update(task, completed=completed)
            current = path
            yield body


def _table(latest: Sequence[Finding]) -> Table:
    """Worst first; who and where below what, because names of sessions are long."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("severity", no_wrap=True)
    table.add_column("calls", justify="right", no_wrap=True)
    table.add_column("finding", overflow="fold")
    for finding in sorted(latest, key=lambda f: (-f.severity.rank, f.started_at)):
        started = datetime.fromtimestamp(finding.started_at // 10**9, UTC)
        who = f"{finding.agent}, " if finding.agent else ""
        scope = f"session {finding.session_id}" if finding.session_id else "all sessions"
        shadow = ", in shadow" if finding.evidence.get("shadow") else ""
        where = f"{finding.kind}{shadow}, {who}{scope}, {started:%Y-%m-%d %H:%M:%S}"
        table.add_row(
            Text(finding.severity.value, style=STYLES[finding.severity]),
            str(finding.occurrences),
            Text.assemble(
                f"{printable(finding.summary)}\n",
                (printable(where), "dim"),
            ),
        )
    return table


def _print_table(latest: Sequence[Finding], steps: int) -> None:
    console = Console(highlight=False)
    if latest:
        console.print(_table(latest))
        console.print()
    counts = Counter(finding.severity for finding in latest)
    by_severity = ", ".join(f"{counts[severity]} {severity.value}" for severity in reversed(Severity))
    plural = "" if len(latest) == 1 else "s"
    console.print(f"{len(latest)} finding{plural} in {steps} steps" + (f": {by_severity}" if latest else ""))


def analyze(paths: Sequence[Path], output: str, fail_on: str | None, settings: Settings) -> int:
    """Analyze `paths` and print; the exit status: 2 for bad input, 1 for a finding of `fail_on`, else 0."""
    stderr = Console(stderr=True)
    problems = Problems(sys.stderr)
    try:
        analysis = Analysis(settings, problems, keep_steps=output == "steps-jsonl")
    except ConfigError as error:
        sys.stderr.write(f"recloser: {error}\n")
        return BAD_INPUT
    out = sys.stdout.buffer
    bodies = _progress(read_files(paths, problems), sum(map(_size, paths)), stderr)
    worst = -1
    for finding in analysis.feed(bodies):
        if not finding.evidence.get("shadow"):
            worst = max(worst, finding.severity.rank)
        if output == "findings-jsonl":
            out.write(orjson.dumps(finding_row(finding)) + b"\n")
    if output == "steps-jsonl":
        for step in analysis.steps.values():
            out.write(orjson.dumps(step_row(step), default=str) + b"\n")
    out.flush()
    if output == "table":
        _print_table(list(analysis.latest.values()), analysis.step_count)
    _mind_nothing(paths, analysis, problems)
    if problems.count:
        return BAD_INPUT
    if fail_on is not None and worst >= Severity(fail_on).rank:
        return FOUND
    return 0


def _mind_nothing(paths: Sequence[Path], analysis: Analysis, problems: Problems) -> None:
    """Say when nothing was judged, lest a check of nothing passes as a clean one."""
    if problems.count or analysis.step_count:
        return
    if analysis.bodies:
        sys.stderr.write("recloser: none of these spans and logs tells of an agent; nothing was judged\n")
    else:
        problems.about(", ".join(map(str, paths)), "no recorded traces in it")
