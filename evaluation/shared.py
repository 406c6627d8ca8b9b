"""The cases, trajectories and labels that all is measured on, and the tool that turns them into OTLP."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, cast

ROOT: Final = Path(__file__).resolve().parents[1]
SHARED: Final = ROOT.parent / "shared"
BUILD: Final = ROOT / "build" / "evaluation"
TESTDATA: Final = ROOT / "tests" / "testdata"
SETS: Final = (
    "msa_gemini3",
    "tau",
    "livemcp",
    "intercode",
    "hotpot_react",
    "whowhen_magentic",
    "sola_st",
    "toolbench_dfs",
    "ridges_logs",
    "sweagent_openhands_demo",
)
CASES: Final = "cases"
BLIND: Final = "blind"
SECOND: Final = "blind-second"
LABELS: Final = "labels"
FURTHER: Final = "further"
"""Labels of further readers, in rounds: field `round`."""
ERRORS: Final = "errors"
STUCK: Final = frozenset({"doom_loop", "flail", "retry_storm", "cascade", "no_progress"})
"""Kinds that say a run is stuck, as `score_findings.py` counts them; all others speak of single calls."""
TUNED, REPORTED = "tuned", "reported"
FIVE_IDENTICAL: Final = 5

Case: TypeAlias = dict[str, Any]
"""A case or trajectory in the neutral form that `cases_to_otlp.py` describes."""


class Converter(Protocol):
    """What is used of `cases_to_otlp.py`."""

    @property
    def EPOCH_NS(self) -> int:  # noqa: N802 - the name that it has there
        """When the first case starts."""
        ...

    @property
    def CASE_SPACING_NS(self) -> int:  # noqa: N802 - as above
        """Time between the starts of two cases."""
        ...

    def case_to_request(self, case: Case, start_ns: int) -> Case:
        """One ExportTraceServiceRequest in the JSON encoding."""
        ...

    def calls_done_at(self, case: Case) -> dict[str, int]:
        """By span id: how many calls had ended when that span ended."""
        ...

    def span_id(self, case_id: str, call_number: int) -> str:
        """The span of the n-th call, counted from 1."""
        ...


@cache
def converter() -> Converter:
    """Load `cases_to_otlp.py`. Raises `FileNotFoundError` where it is not beside the project."""
    path = SHARED / "tools" / "cases_to_otlp.py"
    spec = importlib.util.spec_from_file_location("cases_to_otlp", path)
    if spec is None or spec.loader is None or not path.exists():
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Converter", module)


def path_of(name: str) -> Path:
    """The file of a set, of cases, of labels, or of the error messages."""
    if name == CASES:
        return SHARED / "cases" / "loops.jsonl"
    if name in (BLIND, SECOND):
        return TESTDATA / "cases" / f"{name}.jsonl"
    if name == FURTHER:
        return TESTDATA / "evaluation" / "labels-of-further-readers.jsonl"
    if name in (LABELS, ERRORS):
        return SHARED / "datasets" / f"{name}.jsonl"
    return SHARED / "datasets" / f"{name}.jsonl.gz"


def read(path: Path) -> Iterator[Case]:
    """Rows of a file of JSON lines, plain or gzip."""
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        for line in lines:
            if line.strip():
                yield json.loads(line)


def load(name: str, *, quick: bool = False) -> list[Case]:
    """All runs of a set, in the order of its file; `quick`: of a large set every tenth, chosen by its id."""
    rows = list(read(path_of(name)))
    if quick and len(rows) > QUICK_ABOVE:
        rows = [row for row in rows if _number(row["id"]) // 2 % QUICK_PART == 0]
    return rows


QUICK_ABOVE: Final = 1000  # runs
QUICK_PART: Final = 10


def _number(run_id: str) -> int:
    return int(hashlib.sha256(str(run_id).encode()).hexdigest(), 16)


def half(run_id: str) -> str:
    """The half that a run belongs to: one for choosing thresholds, one for reporting figures.

    Even SHA-256 of the id: "tuned"; odd: "reported".
    """
    return TUNED if _number(run_id) % 2 == 0 else REPORTED


def expanded(case: Case) -> list[Case]:
    """Calls and events with `repeat` written out."""
    return [call for call in case["calls"] for _ in range(int(call.get("repeat") or 1))]


def loosely(value: object) -> object:
    """A value with numbers and texts that spell them alike: what baselines hold for identical."""
    if isinstance(value, Mapping):
        return {str(key): loosely(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [loosely(inner) for inner in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(int(value) if float(value).is_integer() else value)
    if isinstance(value, str) and re.fullmatch(r"\s*-?\d+(\.0+)?\s*", value):
        return value.strip().split(".")[0]
    return value


def identity(call: Case) -> str:
    """A call as the baselines compare it: tool and arguments, keys sorted, numbers loosely."""
    return f"{call['tool']}\x1f{json.dumps(loosely(call.get('args')), sort_keys=True, ensure_ascii=False)}"


def identical_at(case: Case, times: int = FIVE_IDENTICAL) -> int | None:
    """The call (from 1) that completes the first `times` identical calls in a row; None without any."""
    streak, before = 0, ""
    for number, call in enumerate((c for c in expanded(case) if "event" not in c), 1):
        now = identity(call)
        streak = streak + 1 if now == before else 1
        before = now
        if streak == times:
            return number
    return None


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of a set that are told together. `healthy`: whether the set's own judge found them good."""

    set: str
    name: str
    member: Callable[[Case], bool]
    healthy: bool | None = None

    @property
    def title(self) -> str:
        """The set's name and, where it is parted, the group's."""
        return f"{self.set} {self.name}".strip()


def _has(label: str) -> Callable[[Case], bool]:
    return lambda case: any(str(given).startswith(label) for given in case["labels"])


def _reward(low: float, high: float) -> Callable[[Case], bool]:
    def member(case: Case) -> bool:
        rewards = [float(label[7:]) for label in case["labels"] if label.startswith("reward:")]
        return bool(rewards) and low <= rewards[0] <= high

    return member


def _everything(_case: Case) -> bool:
    return True


GROUPS: Final = (
    Group("msa_gemini3", "resolved", _has("resolved:True"), healthy=True),
    Group("msa_gemini3", "not resolved", _has("resolved:False"), healthy=False),
    Group("tau", "reward 1", _reward(1, 1), healthy=True),
    Group("tau", "reward 0", _reward(0, 0), healthy=False),
    Group("livemcp", "success", _has('judge:{"judge": "success"'), healthy=True),
    Group("livemcp", "failure", _has('judge:{"judge": "failure"'), healthy=False),
    Group("intercode", "reward 1", _reward(1, 1), healthy=True),
    Group("intercode", "in between", _reward(1e-9, 1 - 1e-9)),
    Group("intercode", "reward 0", _reward(0, 0), healthy=False),
    Group("intercode", "5 identical in a row", lambda case: identical_at(case) is not None),
    Group("hotpot_react", "correct", _has("outcome:correct"), healthy=True),
    Group("hotpot_react", "incorrect", _has("outcome:incorrect"), healthy=False),
    Group("hotpot_react", "halted", _has("outcome:halted"), healthy=False),
    Group("whowhen_magentic", "", lambda case: not _has("dup_of")(case), healthy=False),
    Group("sola_st", "", _everything),
    Group("toolbench_dfs", "", _everything),
    Group("ridges_logs", "", _everything),
    Group("sweagent_openhands_demo", "", _everything),
)
"""Every group of every set, in the order of the report. Repeats of another run of the set are left out."""
