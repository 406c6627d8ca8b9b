from __future__ import annotations

import subprocess
import sys

import pytest

from collector.consumer import Rejected, Unavailable
from storage.errors import insert_error, query_error


@pytest.mark.parametrize(
    "code", [None, 1, 60, 62, 81, 115, 159, 164, 202, 209, 210, 241, 242, 243, 252, 497, 516, 999, 1002]
)
def test_no_batch_is_thrown_away_for_what_is_not_its_fault(code: int | None) -> None:
    error = insert_error(code, "")
    assert isinstance(error, Unavailable)
    assert 0 < error.retry_after <= 60


@pytest.mark.parametrize("code", [27, 33, 53, 70, 117, 349])
def test_bad_data_is_rejected(code: int) -> None:
    assert isinstance(insert_error(code, ""), Rejected)


@pytest.mark.parametrize("code", [47, 62, 115, 457])
def test_a_wrong_query_stays_wrong(code: int) -> None:
    assert isinstance(query_error(code, ""), Rejected)


def test_clients_load_neither_the_engine_nor_pandas() -> None:
    program = """
import sys
import storage.client, storage.embedded, storage.migrate, storage.queries, storage.retention, storage.writer
print(sorted({"chdb", "pandas", "polars"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
