"""Spans and log records as a process tells them, made of what matters in a test, as batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collector.batch import Batch, Signal
from collector.decode import decode
from collector.redact import RedactionSettings, Redactor

START_NS = 1_790_000_000_000_000_000
TRACE = "ab" * 16
SECOND = 1_000_000_000

Attributes = Mapping[str, str | bool | float]


@dataclass(frozen=True, kw_only=True)
class Told:
    """A span (`name`) or a log record (`event`); times are seconds after the start of all."""

    span: int
    parent: int = 0
    name: str = ""
    event: str = ""
    at: float = 0
    lasts: float = 1
    attributes: Attributes = field(default_factory=dict)
    events: tuple[tuple[str, Attributes], ...] = ()


def batch(
    signal: Signal,
    told: Iterable[Told],
    resource: Attributes | None = None,
    *,
    scope: str = "travel",
    settings: RedactionSettings | None = None,
) -> Batch:
    """What a receiver makes of an export of these."""
    rows = [_span(each) if signal is Signal.TRACES else _log(each) for each in told]
    kind, inner = ("Spans", "spans") if signal is Signal.TRACES else ("Logs", "logRecords")
    request = {
        f"resource{kind}": [
            {
                "resource": {"attributes": _listed({"service.name": "travel-desk", **(resource or {})})},
                f"scope{kind}": [{"scope": {"name": scope}, inner: rows}],
            }
        ]
    }
    decoded = decode(
        signal,
        "json",
        json.dumps(request).encode(),
        redactor=Redactor(settings or RedactionSettings()),
        now_ns=START_NS,
    )
    assert decoded.batch is not None
    return decoded.batch


def _span(told: Told) -> dict[str, object]:
    return {
        "traceId": TRACE,
        "spanId": f"{told.span:016x}",
        "parentSpanId": f"{told.parent:016x}" if told.parent else "",
        "name": told.name,
        "startTimeUnixNano": str(_ns(told.at)),
        "endTimeUnixNano": str(_ns(told.at + told.lasts)),
        "attributes": _listed(told.attributes),
        "events": [
            {"name": name, "timeUnixNano": str(_ns(told.at)), "attributes": _listed(attributes)}
            for name, attributes in told.events
        ],
    }


def _log(told: Told) -> dict[str, object]:
    return {
        "traceId": TRACE,
        "spanId": f"{told.span:016x}",
        "timeUnixNano": str(_ns(told.at)),
        "eventName": told.event,
        "attributes": _listed(told.attributes),
    }


def _ns(seconds: float) -> int:
    return START_NS + int(seconds * SECOND)


def _listed(attributes: Attributes) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: str | bool | float) -> dict[str, object]:  # noqa: FBT001 - a value, no switch
    if isinstance(value, bool):
        return {"boolValue": value}
    return {"stringValue": value} if isinstance(value, str) else {"doubleValue": value}
