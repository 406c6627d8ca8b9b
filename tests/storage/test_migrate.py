from __future__ import annotations

from pathlib import Path

import pytest

from storage.migrate import MIGRATIONS, SchemaError, pending, read_migrations, split_statements


def test_our_own_files_are_in_order_and_can_be_run_again() -> None:
    for migration in read_migrations(MIGRATIONS):
        for statement in migration.statements:
            assert "IF NOT EXISTS" in statement, migration.name


def test_every_table_remembers_tokens() -> None:
    for migration in read_migrations(MIGRATIONS):
        for statement in migration.statements:
            if statement.startswith("CREATE TABLE"):
                assert "non_replicated_deduplication_window = 1000" in statement, statement


def test_semicolons_in_strings_and_comments_end_nothing() -> None:
    sql = "SELECT 'a;''b;\\';' ; /* ; */ SELECT `x;` -- end;\n; \n;SELECT \"y;\""
    assert split_statements(sql) == ["SELECT 'a;''b;\\';'", "SELECT `x;`", 'SELECT "y;"']


@pytest.mark.parametrize(
    "names", [["0002_b.sql"], ["0001_a.sql", "0003_c.sql"], ["0001_a.sql", "0001_b.sql"], ["a.sql"]]
)
def test_gaps_doubles_and_strange_names_are_errors(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).write_text("SELECT 1;")
    with pytest.raises(SchemaError):
        read_migrations(tmp_path)


def test_a_file_that_changed_after_it_was_applied_is_named() -> None:
    known = read_migrations(MIGRATIONS)
    with pytest.raises(SchemaError, match="0001_otel_traces has changed"):
        pending(known, {1: "another checksum"})


def test_a_store_of_a_newer_program_is_left_alone() -> None:
    with pytest.raises(SchemaError, match="update it"):
        pending(read_migrations(MIGRATIONS), {9999: ""})


def test_what_is_applied_is_not_pending() -> None:
    known = read_migrations(MIGRATIONS)
    assert pending(known, {known[0].version: known[0].checksum}) == known[1:]
