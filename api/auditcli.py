"""The command `audit verify` tells whether the audit is still as it was written."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from api.config import ConfigError, load
from api.measurecli import BAD_INPUT, Config, DataDir
from control import audit
from control.audit import Broken, Head

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = 1

Noted = Annotated[
    str | None,
    typer.Option(
        "--noted",
        metavar="SEQ:HASH",
        help="A head that was kept elsewhere: it must still be there, unchanged",
    ),
]


def verify(*, noted: Noted = None, data_dir: DataDir = None, config: Config = None) -> None:
    """Check the chain of hashes from the first entry to the last; print how many there are, and the head.

    May run beside the sidecar. Keep the printed head somewhere else: with --noted it shows later whether
    entries were cut off. Ends with status 0; 1 when the chain is broken; 2 when there is nothing to read.
    """
    try:
        settings = load({} if data_dir is None else {"data_dir": data_dir}, config)
        known = None if noted is None else head_of(noted)
    except (ConfigError, ValueError) as error:
        raise _fail(str(error)) from error
    path = settings.data_dir / "control.db"
    if not path.exists():
        raise _fail(f"{path} is not there: --data-dir or --config say where the sidecar keeps it")
    try:
        found, newest = _verified(path, known)
    except sqlite3.Error as error:
        raise _fail(f"{path}: {error}") from error
    if isinstance(found, Broken):
        sys.stderr.write(f"recloser: {path}: the audit is broken at entry {found.seq}: {found.what}\n")
        raise typer.Exit(BROKEN)
    told = "" if newest is None else f", head {newest.seq}:{newest.hash}"
    sys.stdout.write(f"{found} entries, unbroken{told}\n")


def head_of(text: str) -> Head:
    """Read a head as it is printed. Raises `ValueError`.

    >>> head_of("7:" + "a" * 64).seq
    7
    """
    seq, _, digest = text.partition(":")
    if not seq.isdecimal() or len(digest) != 64:  # noqa: PLR2004 - SHA-256 in hex
        raise ValueError(f"--noted: expected SEQ:HASH, not {text!r}")
    return Head(seq=int(seq), hash=digest)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Who changed what, and why.", no_args_is_help=True)
    group.command("verify")(verify)
    app.add_typer(group, name="audit")


def _verified(path: Path, noted: Head | None) -> tuple[Broken | int, Head | None]:
    """Look at one state of the file, whatever is written meanwhile."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, isolation_level=None, timeout=5.0)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        return audit.verify(connection, noted), audit.head(connection)


def _fail(message: str) -> typer.Exit:
    sys.stderr.write(f"recloser: {message}\n")
    return typer.Exit(BAD_INPUT)
