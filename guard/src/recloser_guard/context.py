"""Whose call it is: the session of the code that runs now, carried by `contextvars`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Current(NamedTuple):
    """What calls of the current context belong to."""

    session: str | None = None
    run: str | None = None
    agent: str | None = None
    agent_version: str | None = None
    model: str | None = None


NOBODY = Current()
CURRENT: ContextVar[Current] = ContextVar("recloser_guard_current", default=NOBODY)


@contextmanager
def belonging_to(current: Current) -> Iterator[Current]:
    """Let calls within belong to `current`; what it does not say stays as it is outside."""
    outer = CURRENT.get()
    merged = Current(*(new if new is not None else old for new, old in zip(current, outer)))
    token = CURRENT.set(merged)
    try:
        yield merged
    finally:
        CURRENT.reset(token)
