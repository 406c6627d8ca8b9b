"""What the detection loop derives for the store besides steps: how failures ended, which tools there were."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson

from api.judging import OnTrouble
from api.metrics import IngestMetrics
from collector.step import Json, StepAmended, StepEvent, StepSeen
from detectors.recovery import Recovery
from detectors.recovery_book import RecoveryBook
from detectors.scope import Recent
from storage.rows import DefinitionRow

DAY_NS: Final = 86_400 * 10**9
MAX_KNOWN: Final = 4_096  # sets of definitions of services that are not told again on the same day


class Recorder:
    """Collects rows of `failures` and `tool_definitions` until a checkpoint takes them.

    Behind a guard: what it cannot take in, write down or read is told to `on_trouble`, the rest goes on.
    """

    def __init__(self, book: RecoveryBook, metrics: IngestMetrics, on_trouble: OnTrouble) -> None:
        self._book = book
        self._metrics = metrics
        self._on_trouble = on_trouble
        self._known = Recent[tuple[str, str, str, int], bool](MAX_KNOWN)
        self._failures: list[Recovery] = []
        self._definitions: list[DefinitionRow] = []

    def __len__(self) -> int:
        return len(self._failures) + len(self._definitions)

    def take(self, event: StepEvent) -> None:
        """Take one event in."""
        try:
            settled = self._book.apply(event)
            if isinstance(event, (StepSeen, StepAmended)) and event.step.definitions is not None:
                self._definitions += self._new_definitions(event)
        except Exception as error:  # noqa: BLE001 - one event must not keep all others from being followed
            self._on_trouble("recovery", error)
            return
        if not settled:
            return
        self._failures += settled
        for one in settled:
            if one.revision == 0:
                self._metrics.failures.labels(
                    one.error_class, one.first_response.value, one.response.value
                ).inc()

    def drain(self) -> tuple[Sequence[Recovery], Sequence[DefinitionRow]]:
        """Give the rows away that have come since the last time."""
        failures, self._failures = self._failures, []
        definitions, self._definitions = self._definitions, []
        return failures, definitions

    def changed(self, pack: Callable[[bytes], bytes]) -> dict[str, bytes | None]:
        """State of the scopes that changed, by key; one that cannot be written stays as it was last."""
        packed: dict[str, bytes | None] = {}
        for key, state in self._book.changed().items():
            try:
                key.encode()  # a key with half a character is for no database
                packed[key] = None if state is None else pack(orjson.dumps(state))
            except Exception as error:  # noqa: BLE001 - whatever one scope holds, the others are written
                self._on_trouble("checkpoint", error)
        return packed

    def restore(self, states: Mapping[str, Json]) -> dict[str, Exception]:
        """Take over the scopes' states; return what was not taken over by key, and why."""
        return self._book.restore(states)

    def _new_definitions(self, event: StepSeen | StepAmended) -> list[DefinitionRow]:
        """The tools that a step offers, unless its service has told the same ones on that day."""
        step = event.step
        offered = step.definitions
        if offered is None:
            return []
        name = (step.service, step.service_version, offered.hash, step.start_ns // DAY_NS)
        if self._known.touch(name):
            return []
        self._known.put(name, value=True)
        return [
            DefinitionRow(step.service, step.service_version, offered.hash, tool, step.start_ns)
            for tool in offered.tools.values()
        ]
