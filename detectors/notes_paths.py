"""The failing paths of one session: failures by operation and class of error, the most telling ones kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from detectors.excerpts import error_of, shown
from detectors.notes import FailingPath

if TYPE_CHECKING:
    from detectors.reading import Reading

KEPT: Final = 16
SIGNATURES_KEPT: Final = 8
AGENTS_KEPT: Final = 4
ARGUMENT_CHARS: Final = 160
ERROR_CHARS: Final = 300
REPEATS: Final = 2
"""Failures after the first with which a path is no attempt any more; see `detectors.notes_found`."""
_NOT_STUCK: Final = {"stuck_ns": 0, "stuck_number": 0, "stuck_step_id": "", "stuck_span_id": ""}

_Key: TypeAlias = "tuple[str, str]"


class Paths:
    """See the module. `forgotten` counts paths that went for lack of room: the rarest, then the oldest."""

    __slots__ = ("_open", "_paths", "forgotten")

    def __init__(self, paths: Iterable[FailingPath] = (), forgotten: int = 0) -> None:
        self._paths: dict[_Key, FailingPath] = {}
        self._open: dict[str, set[_Key]] = {}
        self.forgotten = forgotten
        for path in paths:
            self._put((path.operation, path.error_class), path)

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[FailingPath]:
        return iter(self._paths.values())

    @property
    def going_on(self) -> bool:
        """Whether an operation has failed and not worked since."""
        return bool(self._open)

    def failed(self, reading: Reading, number: int) -> None:
        """Take a failed call in, the session's call `number`."""
        verdict, step = reading.verdict, reading.step
        if verdict is None:
            return
        key = (reading.operation, verdict.error_class.value)
        signature = f"{reading.call.signature:016x}" if reading.call.known else ""
        known = self._paths.get(key)
        if known is None:
            self._put(key, _first(reading, key, signature, number))
            return
        changes: dict[str, object] = {}
        if not known.run:
            changes = {
                "run_first_ns": step.start_ns,
                "run_first_number": number,
                "run_first_step_id": step.step_id,
                "run_first_span_id": step.span_id,
                "recovered_ns": 0,
                **_NOT_STUCK,
            }
        elif known.run == REPEATS:
            changes = {
                "stuck_ns": step.start_ns,
                "stuck_number": number,
                "stuck_step_id": step.step_id,
                "stuck_span_id": step.span_id,
            }
        if signature and signature not in known.signatures and len(known.signatures) < SIGNATURES_KEPT:
            changes["signatures"] = (*known.signatures, signature)
        if step.agent and step.agent not in known.agents and len(known.agents) < AGENTS_KEPT:
            changes["agents"] = (*known.agents, step.agent)
        path = replace(
            known,
            count=known.count + 1,
            run=known.run + 1,
            last_ns=max(known.last_ns, step.end_ns),
            last_number=number,
            last_step_id=step.step_id,
            last_span_id=step.span_id,
            longest_gap_ns=max(known.longest_gap_ns, step.start_ns - known.last_ns),
            **changes,  # type: ignore[arg-type]  # fields of the class, by name
        )
        self._put(key, path)

    def worked(self, reading: Reading) -> None:
        """Take a call in that worked: what was failing in the same operation has recovered."""
        if not self._open:
            return
        for key in self._open.pop(reading.operation, ()):
            self._paths[key] = replace(self._paths[key], run=0, recovered_ns=reading.step.end_ns)

    def absorb(self, past: Paths) -> None:
        """Take over what happened before under another name; its calls are numbered as they were there."""
        for key, path in past._paths.items():
            known = self._paths.get(key)
            if known is None:
                self._put(key, path)
                continue
            first = path if path.first_ns <= known.first_ns else known
            began = path if path.run and (not known.run or path.run_first_ns < known.run_first_ns) else known
            merged = replace(
                known,
                count=known.count + path.count,
                run=known.run + path.run,
                first_ns=first.first_ns,
                first_number=first.first_number,
                first_step_id=first.first_step_id,
                first_span_id=first.first_span_id,
                run_first_ns=began.run_first_ns,
                run_first_number=began.run_first_number,
                run_first_step_id=began.run_first_step_id,
                run_first_span_id=began.run_first_span_id,
                signatures=tuple(dict.fromkeys((*path.signatures, *known.signatures)))[:SIGNATURES_KEPT],
                agents=tuple(dict.fromkeys((*path.agents, *known.agents)))[:AGENTS_KEPT],
            )
            self._put(key, merged)
        self.forgotten += past.forgotten

    def _put(self, key: _Key, path: FailingPath) -> None:
        self._paths[key] = path
        if path.run:
            self._open.setdefault(key[0], set()).add(key)
        if len(self._paths) > KEPT:
            self._forget(key)

    def _forget(self, keep: _Key) -> None:
        weakest = min(
            (key for key in self._paths if key != keep),
            key=lambda key: (self._paths[key].count, self._paths[key].last_ns),
        )
        del self._paths[weakest]
        self.forgotten += 1
        still_open = self._open.get(weakest[0])
        if still_open is not None:
            still_open.discard(weakest)
            if not still_open:
                del self._open[weakest[0]]


def _first(reading: Reading, key: _Key, signature: str, number: int) -> FailingPath:
    step, verdict = reading.step, reading.verdict
    assert verdict is not None  # noqa: S101 - asked by the caller
    return FailingPath(
        tool=step.tool or "",
        operation=key[0],
        error_class=key[1],
        nature=verdict.nature.value,
        prescription=verdict.prescription.value,
        rule=verdict.rule if verdict.source == "rule" else "",
        count=1,
        run=1,
        first_ns=step.start_ns,
        last_ns=step.end_ns,
        first_number=number,
        last_number=number,
        first_step_id=step.step_id,
        last_step_id=step.step_id,
        first_span_id=step.span_id,
        last_span_id=step.span_id,
        run_first_ns=step.start_ns,
        run_first_number=number,
        run_first_step_id=step.step_id,
        run_first_span_id=step.span_id,
        arguments=shown(step.arguments, ARGUMENT_CHARS),
        error=error_of(reading.error_text, ERROR_CHARS),
        signatures=(signature,) if signature else (),
        agents=(step.agent,) if step.agent else (),
    )
