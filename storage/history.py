"""The stored steps of a window in the order in which detectors saw them, a page at a time.

What a live detector saw of a step in pieces (first seen, amended later) is told once, by its newest revision;
steps of sessions that turned out to be one have the later session's id from the beginning; the end of a run
comes after the last step that ended before its root did. So detectors that are shown a history say what they
said live, unless they were shown steps of which more became known later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final

from collector.step import RunEnded, Step, StepEvent, StepSeen, ToolDefinitions
from storage.client import StoreClient, Value
from storage.queries import STEP_COLUMNS, Queries, step_of

PAGE_BYTES: Final = 8 * 1024 * 1024
"""About as much text as a page of steps holds, in characters."""
FIRST_PAGE: Final = 1_000  # steps
LARGEST_PAGE: Final = 20_000
SMALLEST_PAGE: Final = 64
KEPT_NAMES: Final = 50_000
"""Sessions and runs that are remembered, and at most as many sets of definitions in all."""

_MERGE_DEPTH: Final = 16
_IDS_A_QUERY: Final = 2_000
_FINDINGS_A_QUERY: Final = 5_000
_DAY_NS: Final = 86_400 * 10**9
_LAST_NS: Final = 2**63 - 1
_NAMES: Final = STEP_COLUMNS.split(", ")
_TEXTS: Final = ("arguments", "result", "error", "text")
_KEPT_DEFINITIONS: Final = 512
_WITHIN: Final = (
    "start_time >= fromUnixTimestamp64Nano({since:Int64})"
    " AND start_time < fromUnixTimestamp64Nano({until:Int64})"
)
_ENDS: Final = """
WITH roots AS
(
    SELECT trace, max(ended) AS root_ns FROM
    (
        SELECT TraceId AS trace, toUnixTimestamp64Nano(Timestamp) + toInt64(Duration) AS ended
        FROM otel_traces
        WHERE TraceId IN {traces:Array(String)} AND ParentSpanId = ''
            AND Timestamp >= fromUnixTimestamp64Nano({near:Int64})
            AND Timestamp < fromUnixTimestamp64Nano({far:Int64})
        UNION ALL
        SELECT trace_id AS trace, toUnixTimestamp64Nano(end_time) AS ended FROM steps
        WHERE trace_id IN {traces:Array(String)} AND parent_span_id = '' AND kind = 'agent_run'
            AND start_time >= fromUnixTimestamp64Nano({near:Int64})
            AND start_time < fromUnixTimestamp64Nano({far:Int64})
    )
    GROUP BY trace
)
SELECT trace, any(root_ns), maxIf(engine_seq, toUnixTimestamp64Nano(end_time) <= root_ns AND NOT late)
FROM steps INNER JOIN roots ON steps.run_id = roots.trace
WHERE trace_id IN {traces:Array(String)} AND start_time >= fromUnixTimestamp64Nano({near:Int64})
    AND start_time < fromUnixTimestamp64Nano({far:Int64})
GROUP BY trace"""

_FINDINGS: Final = """
SELECT id, kind, if(JSONExtractBool(evidence, 'shadow'), 'shadow', severity), detector, session_id, summary,
    toUnixTimestamp64Nano(started_at), toUnixTimestamp64Nano(detected_at)
FROM (SELECT * FROM findings ORDER BY id, revision DESC LIMIT 1 BY id)
WHERE id > {after:String} AND detected_at >= fromUnixTimestamp64Nano({since:Int64})
    AND detected_at < fromUnixTimestamp64Nano({until:Int64})
ORDER BY id LIMIT {some:UInt32}"""


@dataclass(frozen=True, slots=True)
class StoredFinding:
    """What is stored of a finding, its newest revision. Times are unix nanoseconds."""

    id: str
    kind: str
    severity: str
    detector: str
    session_id: str
    summary: str
    started_ns: int
    detected_ns: int


class History:
    """The steps that began from `since_ns` on and before `until_ns`, unix nanoseconds.

    Every method raises `Unavailable` when the store is away and `Rejected` when it refuses.
    """

    def __init__(
        self, client: StoreClient, since_ns: int, until_ns: int, *, page_bytes: int = PAGE_BYTES
    ) -> None:
        self._client = client
        self._queries = Queries(client)
        self._window: dict[str, Value] = {"since": since_ns, "until": until_ns}
        self._page_bytes = page_bytes
        self._sessions: dict[str, str] = {}
        self._ends: dict[str, tuple[int, int]] = {}
        self._definitions: dict[tuple[str, int], ToolDefinitions] = {}

    def count(self) -> int:
        """How many rows of steps there are, revisions included: what a progress bar needs."""
        return int(self._client.rows(f"SELECT count() FROM steps WHERE {_WITHIN}", self._window)[0][0])  # noqa: S608 - constants

    def events(self) -> Iterator[StepEvent]:
        """Every step, and the ends of runs, in the order in which they were said."""
        for page in self._pages():
            ends = self._ends_of(page)
            for _, same in groupby(page, key=lambda step: step.engine_seq):
                steps = list(same)
                yield from map(StepSeen, steps)
                yield from _ended(steps, ends)

    def findings(self) -> Iterator[StoredFinding]:
        """The findings that were last said in the window, in the order of their ids."""
        after = ""
        while True:
            rows = self._client.rows(_FINDINGS, {**self._window, "after": after, "some": _FINDINGS_A_QUERY})
            yield from (StoredFinding(*row) for row in rows)
            if len(rows) < _FINDINGS_A_QUERY:
                return
            after = rows[-1][0]

    def _pages(self) -> Iterator[list[Step]]:
        wanted, start = FIRST_PAGE, 0
        while True:
            last, found = self._bound(start, wanted)
            if not found:
                return
            told = self._rows(start, last)
            size = sum(map(_size, told))
            yield self._steps(told)
            if found < wanted:
                return
            start = last + 1
            wanted = next_page(wanted, size, self._page_bytes)

    def _bound(self, start: int, wanted: int) -> tuple[int, int]:
        """The number of the last of the next rows, and how many rows there are up to it, at most `wanted`."""
        [(last, found)] = self._client.rows(
            "SELECT max(engine_seq), count() FROM"  # noqa: S608 - constants
            f" (SELECT engine_seq FROM steps WHERE {_WITHIN} AND engine_seq >= {{start:UInt64}}"
            " ORDER BY engine_seq LIMIT {wanted:UInt32})",
            {**self._window, "start": start, "wanted": wanted},
        )
        return int(last), int(found)

    def _rows(self, start: int, last: int) -> list[dict[str, Any]]:
        rows = self._client.rows(
            f"SELECT {STEP_COLUMNS} FROM steps WHERE {_WITHIN}"  # noqa: S608 - constants
            " AND engine_seq >= {start:UInt64} AND engine_seq <= {last:UInt64}"
            " ORDER BY engine_seq, step_id, revision DESC LIMIT 1 BY step_id",
            {**self._window, "start": start, "last": last},
        )
        return [dict(zip(_NAMES, row, strict=True)) for row in rows]

    def _steps(self, told: Sequence[dict[str, Any]]) -> list[Step]:
        known = self._definitions_of(told)
        self._learn_sessions({step["session_id"] for step in told})
        return [step_of(step, self._sessions[step["session_id"]], known) for step in told]

    def _definitions_of(self, told: Sequence[dict[str, Any]]) -> dict[str, ToolDefinitions]:
        chars = {step["definitions_hash"]: step["definitions_chars"] for step in told}
        chars.pop("", None)
        if len(self._definitions) > _KEPT_DEFINITIONS:
            self._definitions.clear()
        new = {of: count for of, count in chars.items() if (of, count) not in self._definitions}
        for of, definitions in self._queries.definitions(new).items():
            self._definitions[of, chars[of]] = definitions
        pairs = ((of, self._definitions.get((of, count))) for of, count in chars.items())
        return {of: definitions for of, definitions in pairs if definitions is not None}

    def _learn_sessions(self, names: set[str]) -> None:
        """Find out under which id sessions were known in the end."""
        if len(self._sessions) > KEPT_NAMES:
            self._sessions.clear()
        final = {name: name for name in names if name not in self._sessions}
        for _ in range(_MERGE_DEPTH):
            later = self._merged(set(final.values()))
            if not later:
                break
            final = {name: later.get(now, now) for name, now in final.items()}
        self._sessions.update(final)

    def _merged(self, names: set[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for some in _some(sorted(names)):
            rows = self._client.rows(
                "SELECT old, argMax(new, merged_at) FROM session_merges WHERE old IN {names:Array(String)}"
                " GROUP BY old",
                {"names": some},
            )
            found.update((old, new) for old, new in rows if old != new)
        return found

    def _ends_of(self, page: Sequence[Step]) -> dict[str, tuple[int, int]]:
        """Where runs end: by run the number of its last step, and when; (0, 0) if it did not."""
        if len(self._ends) > KEPT_NAMES:
            self._ends.clear()
        runs = {step.run_id for step in page if step.run_id and step.run_id == step.trace_id}
        near = max(0, min((step.start_ns for step in page), default=0) - _DAY_NS)
        far = min(_LAST_NS, max((step.start_ns for step in page), default=0) + _DAY_NS)
        for some in _some(sorted(runs - self._ends.keys())):
            self._ends.update(dict.fromkeys(some, (0, 0)))
            rows = self._client.rows(_ENDS, {"traces": some, "near": near, "far": far})
            self._ends.update((trace, (int(last), int(ended))) for trace, ended, last in rows)
        return self._ends


def next_page(wanted: int, size: int, page_bytes: int) -> int:
    """How many steps the next page should have, after one of `wanted` steps and `size` characters of text.

    Pages grow to at most twice the last, so that steps that suddenly are large do not fill the memory.

    >>> next_page(1000, 400_000, 8_000_000), next_page(1000, 64_000_000, 8_000_000)
    (2000, 125)
    """
    fitting = wanted * page_bytes // max(1, size)
    return max(SMALLEST_PAGE, min(fitting, 2 * wanted, LARGEST_PAGE))


def _ended(steps: Iterable[Step], ends: dict[str, tuple[int, int]]) -> Iterator[RunEnded]:
    for step in steps:
        last, at_ns = ends.get(step.run_id, (0, 0))
        if last and last == step.engine_seq and step.run_id == step.trace_id:
            yield RunEnded(step.session_id, step.run_id, at_ns)


def _some(names: Sequence[str]) -> Iterator[list[str]]:
    remaining = iter(names)
    while some := list(islice(remaining, _IDS_A_QUERY)):
        yield some


def _size(told: dict[str, Any]) -> int:
    return sum(len(told[name] or "") for name in _TEXTS)
