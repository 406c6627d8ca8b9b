from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.control.support import ManualClock, Receiver, Spool, receiving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def spool(tmp_path: Path, clock: ManualClock) -> Spool:
    return Spool(tmp_path / "spool.db", clock)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    yield from receiving()
