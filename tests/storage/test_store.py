from __future__ import annotations

from tests.contracts.store import StoreContract


class TestStore(StoreContract):
    pass
