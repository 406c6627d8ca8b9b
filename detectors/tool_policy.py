"""What a team says of its tools, for all detectors: which are polls, which write, which are left alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """Settings under `[detectors.tools]`; all are names of tools but the last.

    `ignore`: never judged. `poll`: always get the patience of a poll. `read`, `write`, `critical`: what a
    call does to the world, where the name would tell it wrong; `critical` is what must never be done twice
    (pay, send, delete). `volatile_arguments`: names of arguments that are no part of a call's identity,
    besides the well-known ones.
    """

    ignore: tuple[str, ...] = ()
    poll: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    critical: tuple[str, ...] = ()
    volatile_arguments: tuple[str, ...] = ()


DEFAULT_POLICY = ToolPolicy()
