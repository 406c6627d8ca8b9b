"""What a look into the breakers costs: `python bench/breaker_index.py`.

Prints microseconds of CPU a check, for 0 to 100,000 open breakers of eight shapes of scopes: for a call that
none covers, and for one that is refused.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from control.breakers.changing import blank
from control.breakers.index import BreakerIndex
from control.breakers.states import State
from control.scope import Asked, Scope

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 50_000
SHAPES: tuple[Callable[[int], Scope], ...] = (
    lambda n: Scope(session=f"s{n}"),
    lambda n: Scope(session=f"s{n}", tool=f"t{n % 9}"),
    lambda n: Scope(session=f"s{n}", tool="t", args=f"{n:016x}"),
    lambda n: Scope(run=f"r{n}"),
    lambda n: Scope(service=f"v{n}", tool="t"),
    lambda n: Scope(tool=f"x{n}"),
    lambda n: Scope(agent=f"a{n}"),
    lambda n: Scope(agent=f"a{n}@1"),
)
MISSED = Asked(
    service="v", agent="a", agent_version="1", session="none", run="q", tool="tt", args="b" * 16, model="m"
)
REFUSED = Asked(service="v", agent="a", session="s0", tool="t0")


def main() -> None:
    """Run the benchmark."""
    for breakers in (0, 1, 1_000, 100_000):
        index = filled(breakers)
        missed, refused = (per_call_us(index, asked) for asked in (MISSED, REFUSED))
        print(f"{breakers:7} breakers: {missed:5.2f} us not covered, {refused:5.2f} us refused")


def filled(breakers: int) -> BreakerIndex:
    """Make an index with so many open breakers."""
    index = BreakerIndex()
    for number in range(breakers):
        scope = SHAPES[number % len(SHAPES)](number)
        index.put(replace(blank(scope, 0), state=State.OPEN, episode=1, revision=number + 1))
    return index


def per_call_us(index: BreakerIndex, asked: Asked) -> float:
    """Check one call again and again; return microseconds a check."""
    begin = time.process_time_ns()
    for _ in range(CALLS):
        index.check(asked)
    return (time.process_time_ns() - begin) / CALLS / 1_000


if __name__ == "__main__":
    main()
