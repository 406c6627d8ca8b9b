"""Brings a store's schema up to date: numbered SQL files, forward only, each applied once.

Every statement carries IF NOT EXISTS, so a migration that a crash cut short is simply run again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from storage.client import StoreClient

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_DATABASE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOKEN: Final = re.compile(
    r"""(?P<skip>--[^\n]*|/\*.*?\*/)
      | (?P<quoted>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.)*" | `(?:[^`\\]|\\.)*`)
      | (?P<end>;)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class SchemaError(Exception):
    """The schema and this program do not fit; a person must decide. Says which migration and why."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: `statements` are run in order, `checksum` is the SHA-256 of its text."""

    version: int
    name: str
    checksum: str
    statements: tuple[str, ...]


def migrate(client: StoreClient) -> list[int]:
    """Make the database, apply what is missing; return the versions that were applied now.

    Raises `SchemaError` when the store was made by a newer program or a file was changed after it was
    applied, `Unavailable` when the store is away.
    """
    database = client.target.database
    if not _DATABASE_NAME.fullmatch(database):
        raise SchemaError(f"{database!r} is no name for a database")
    client.command(f"CREATE DATABASE IF NOT EXISTS `{database}` ENGINE = Atomic", database="")
    client.command(
        "CREATE TABLE IF NOT EXISTS schema_migrations"
        " (version UInt32, name String, checksum String, applied_at DateTime DEFAULT now())"
        " ENGINE = ReplacingMergeTree ORDER BY version"
    )
    rows = client.rows("SELECT version, any(checksum) FROM schema_migrations GROUP BY version")
    applied = {int(version): str(checksum) for version, checksum in rows}
    missing = pending(read_migrations(MIGRATIONS), applied)
    for migration in missing:
        for statement in migration.statements:
            client.command(statement)
        client.command(
            "INSERT INTO schema_migrations (version, name, checksum)"
            " SELECT {version:UInt32}, {name:String}, {checksum:String}",
            {"version": migration.version, "name": migration.name, "checksum": migration.checksum},
        )
    return [migration.version for migration in missing]


def read_migrations(folder: Path) -> list[Migration]:
    """Read all files of a folder in order. Raises `SchemaError` for a strange name, a gap or a double."""
    migrations = [_read(path) for path in sorted(folder.glob("*.sql"))]
    for position, migration in enumerate(migrations, start=1):
        if migration.version != position:
            raise SchemaError(f"migration {migration.version:04} stands where {position:04} belongs")
    return migrations


def pending(known: Sequence[Migration], applied: dict[int, str]) -> list[Migration]:
    """Say what is to be applied, in order. Raises `SchemaError`, see `migrate`."""
    newest = known[-1].version if known else 0
    unknown = sorted(version for version in applied if version > newest)
    if unknown:
        raise SchemaError(f"the store has schema {unknown[-1]}, this program knows {newest}: update it")
    for migration in known:
        if applied.get(migration.version, migration.checksum) != migration.checksum:
            raise SchemaError(
                f"migration {migration.version:04}_{migration.name} has changed since it was applied"
            )
    return [migration for migration in known if migration.version not in applied]


def split_statements(sql: str) -> list[str]:
    r"""Split at semicolons outside strings and comments; comments are left out.

    >>> split_statements("SELECT ';' -- one; still one\n; SELECT 2 /* ; */;")
    ["SELECT ';'", 'SELECT 2']
    """
    statements = [""]
    for token in _TOKEN.finditer(sql):
        if token["end"]:
            statements.append("")
        elif not token["skip"]:
            statements[-1] += token[0]
    return [statement.strip() for statement in statements if statement.strip()]


def _read(path: Path) -> Migration:
    told = _FILE_NAME.fullmatch(path.name)
    if told is None:
        raise SchemaError(f"{path.name} is no name for a migration")
    text = path.read_text(encoding="utf-8")
    return Migration(
        version=int(told[1]),
        name=told[2],
        checksum=hashlib.sha256(text.encode()).hexdigest(),
        statements=tuple(split_statements(text)),
    )
