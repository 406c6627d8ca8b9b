"""The schema as the engine has it, against the committed one and against its documentation."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from storage.client import StoreClient
from tests.storage.conftest import SERVER

pytestmark = pytest.mark.store

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "ddl.sql"


@pytest.mark.skipif(bool(SERVER), reason="another version of the engine may spell the same schema otherwise")
def test_the_schema_is_the_committed_one(store: StoreClient) -> None:
    """RECLOSER_GOLDEN=write makes it anew."""
    rows = store.rows(
        "SELECT formatQuery(create_table_query) FROM system.tables"
        " WHERE database = currentDatabase() AND name NOT LIKE '.%' ORDER BY name"
    )
    ddl = "".join(f"{re.sub(r' UUID .[-0-9a-f]+.', '', text)};\n\n" for (text,) in rows)
    if os.environ.get("RECLOSER_GOLDEN") == "write":
        GOLDEN.write_text(ddl)
    assert ddl == GOLDEN.read_text()


def test_every_column_is_documented(store: StoreClient) -> None:
    sections = re.split(r"^## ", (ROOT / "docs" / "schema.md").read_text(), flags=re.MULTILINE)
    documented = {section.split("\n")[0].strip("` "): section for section in sections[1:]}
    columns = store.rows(
        "SELECT table, name FROM system.columns WHERE database = currentDatabase() AND table NOT LIKE '%_mv'"
        " AND table NOT LIKE '.%'"
    )
    assert {table for table, _ in columns} == set(documented)
    missing = [f"{table}.{name}" for table, name in columns if f"`{name}`" not in documented[table]]
    assert missing == []
