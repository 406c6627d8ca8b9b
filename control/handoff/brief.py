"""The short form of a hand-off report, for messages that have little room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from control.handoff.build import build
from control.handoff.forms import UNKNOWN, to_dict

if TYPE_CHECKING:
    from control.handoff.record import Handoff
    from detectors.notes import Notes
    from detectors.protocol import Finding

MAX_BRIEF: Final = 6_000
"""Bytes as JSON at most."""
_KEPT: Final = (
    "session_id",
    "state",
    "goal",
    "onset",
    "next_step",
    "causes",
    "failing_paths",
    "not_tried",
    "side_effects",
    "cost",
    "filled",
    "unknown",
)
_LISTS: Final = ("failing_paths", "not_tried")


def brief(finding: Finding, notes: Notes) -> dict[str, Any]:
    """The report of a finding's session in short, as it stands at the session's last step."""
    return brief_of(build(notes, (finding,), (), max(notes.last_ns, finding.detected_at)))


def brief_of(handoff: Handoff) -> dict[str, Any]:
    """A report in short: the fields without timeline and links, as much of each as there is room for."""
    whole = to_dict(handoff)
    told: dict[str, Any] = {}
    for shown in (3, 2, 1):
        told = {name: whole[name] for name in _KEPT}
        for name in _LISTS:
            if told[name] != UNKNOWN:
                told[name] = told[name][:shown]
        if told["causes"] != UNKNOWN:
            told["causes"] = {sort: causes[:shown] for sort, causes in told["causes"].items()}
        if told["side_effects"] != UNKNOWN:
            done = told["side_effects"]["done"]
            more = told["side_effects"]["more"] + max(0, len(done) - shown)
            told["side_effects"] = {**told["side_effects"], "done": done[:shown], "more": more}
        if len(orjson.dumps(told)) <= MAX_BRIEF:
            return told
    return _cut(told)


def _cut(told: dict[str, Any]) -> dict[str, Any]:
    """Shorten all texts until there is room: names of any length are possible."""
    for limit in (200, 80, 20):
        short: dict[str, Any] = _shortened(told, limit)
        if len(orjson.dumps(short)) <= MAX_BRIEF:
            return short
    return {"session_id": str(told["session_id"])[:200], "filled": told["filled"]}


def _shortened(value: Any, limit: int) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return value if len(value) <= limit else f"{value[: limit - 1]}…"
    if isinstance(value, list):
        return [_shortened(one, limit) for one in value[:8]]
    if isinstance(value, dict):
        return {name: _shortened(one, limit) for name, one in value.items()}
    return value
