"""The hand-off report: what a person needs who takes over a run that is stuck, out of what was recorded.

`build` makes one from the notes of a session and what was found in it; what nobody recorded is unknown, and
says so. `brief` is its short form for messages, `keep` stores it as it stood when something fired or tripped.
"""

from __future__ import annotations

from control.handoff.brief import MAX_BRIEF, brief, brief_of
from control.handoff.build import build
from control.handoff.forms import to_json, to_markdown
from control.handoff.record import FIELDS, Handoff
from control.handoff.store import forget, keep, kept, kept_of_session

__all__ = [
    "FIELDS",
    "MAX_BRIEF",
    "Handoff",
    "brief",
    "brief_of",
    "build",
    "forget",
    "keep",
    "kept",
    "kept_of_session",
    "to_json",
    "to_markdown",
]
