"""A change goes to a few at a time: who asks something meanwhile is answered before the last of many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from api.watching import AT_A_TIME, WatchHub
from control.breakers.changes import Change
from control.scope import Scope

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from api.watching import Concerns
    from control.breakers.record import Breaker

MANY = 4 * AT_A_TIME


class Nothing:
    """No breaker is open."""

    revision = 0

    def snapshot(self) -> tuple[int, tuple[Breaker, ...]]:
        return 0, ()

    def changes_since(self, _revision: int) -> Sequence[Change] | None:
        return None


class Crowd:
    """Many who follow, and what each was told after the snapshot."""

    def __init__(self) -> None:
        self.hub = WatchHub(Nothing(), lambda _breaker: b"{}")
        self.told: dict[int, list[bytes]] = {}
        self._streams: list[AsyncGenerator[bytes]] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def follow(self, concerns: Concerns | None = None) -> None:
        stream, number = self.hub.follow(None, concerns), len(self._streams)
        while b"snapshot" not in await anext(stream):
            pass
        self.told[number] = []
        self._streams.append(stream)
        self._tasks.append(asyncio.create_task(self._listen(stream, number)))
        await asyncio.sleep(0)

    async def _listen(self, stream: AsyncGenerator[bytes], number: int) -> None:
        async for chunk in stream:
            self.told[number].append(chunk)

    def who_knows(self) -> int:
        return sum(bool(told) for told in self.told.values())

    async def end(self) -> None:
        self.hub.end()
        await asyncio.gather(*self._tasks)


def test_others_have_their_turn_before_the_last_is_told() -> None:
    async def hand_out() -> None:
        crowd = Crowd()
        for _ in range(MANY):
            await crowd.follow()
        crowd.hub.changed(Change(1, "br_1", None))
        known = []
        while crowd.who_knows() < MANY:
            await asyncio.sleep(0)
            known.append(crowd.who_knows())
        assert {after - before for before, after in zip([0, *known], known, strict=False)} <= {0, AT_A_TIME}
        await crowd.end()

    asyncio.run(asyncio.wait_for(hand_out(), 10))


def test_changes_come_in_their_order_to_everybody() -> None:
    async def hand_out() -> None:
        crowd = Crowd()
        for _ in range(MANY):
            await crowd.follow()
        for revision in (1, 2, 3):
            crowd.hub.changed(Change(revision, "br_1", None))
            await asyncio.sleep(0)
        for _ in range(MANY):
            await asyncio.sleep(0)
        whole = {b"".join(told) for told in crowd.told.values()}
        assert len(whole) == 1
        told = whole.pop()
        assert told.index(b"id: 1") < told.index(b"id: 2") < told.index(b"id: 3")
        await crowd.end()

    asyncio.run(asyncio.wait_for(hand_out(), 10))


def test_who_is_told_of_a_change_is_asked_to_acknowledge_it() -> None:
    async def ask() -> None:
        crowd = Crowd()
        await crowd.follow()
        await crowd.follow(lambda scope: scope.session == "another")
        crowd.hub.ask_to_acknowledge(7, Scope(session="mine"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert crowd.told == {0: [b'event: acknowledge\ndata: {"revision":7}\n\n'], 1: []}
        await crowd.end()

    asyncio.run(asyncio.wait_for(ask(), 10))
