"""The schema of `control.db`: numbered SQL files, forward only. Number N brings a file from N-1 to N.

Released files are never edited. Each is applied in one transaction together with the number it leads to.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlite3

_FOLDER: Final = Path(__file__).parent / "migrations"
_FILE_NAME: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


class NewerSchemaError(Exception):
    """The file was made by a newer version of the program."""


@cache
def scripts(folder: Path = _FOLDER) -> tuple[str, ...]:
    """Return every migration's SQL in order. Raises `ValueError` when a number is missing or twice there."""
    texts: list[str] = []
    for number, path in enumerate(sorted(folder.glob("*.sql")), start=1):
        name = _FILE_NAME.fullmatch(path.name)
        if name is None or int(name[1]) != number:
            raise ValueError(f"{path}: expected the migration with number {number:04d}")
        texts.append(path.read_text(encoding="utf-8"))
    return tuple(texts)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database to the newest schema. Raises `NewerSchemaError`."""
    version = refuse_newer(connection)
    for number, script in enumerate(scripts()[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;")


def refuse_newer(connection: sqlite3.Connection) -> int:
    """Return the schema's number. Raises `NewerSchemaError` when this program does not know it."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    known = len(scripts())
    if version > known:
        raise NewerSchemaError(
            f"has schema version {version}, this program knows {known}: made by a newer Recloser"
        )
    return version
