"""The tokens of `control.db` as another process sees them: a copy, looked at twice a second, never written.

Looking is cheap: SQLite says whether anything was committed since (`data_version`), and only then the table
is read. Whoever asks is answered from memory.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from control.tokens import Token, read_tokens

if TYPE_CHECKING:
    from pathlib import Path

_log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 0.5
_NO_TABLE: Final = "no such table"


class TokenFile:
    """Follows the table; `find` and `required` are in memory.

    While there is a file that cannot be read and never was, tokens are required and none is known: whether
    there are any is not known either.
    """

    def __init__(self, path: Path, configured: Iterable[Token] = ()) -> None:
        self._path = path
        self._configured = {token.digest: token for token in configured}
        self._created: tuple[Token, ...] = ()
        self._unknown = False
        self._read_once = False
        self._by_digest: Mapping[bytes, Token] = self._configured
        self._connection: sqlite3.Connection | None = None
        self._version = -1
        self._trouble = ""
        self._used: dict[str, float] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="tokens", daemon=True)
        self.look()

    @property
    def required(self) -> bool:
        """Whether a token is needed."""
        return self._unknown or bool(self._configured) or bool(self._created)

    def find(self, digest: bytes) -> Token | None:
        """Return the token with this digest, valid or not."""
        return self._by_digest.get(digest)

    def used(self, token: Token) -> None:
        """Remember that it was used just now."""
        self._used[token.name] = time.time()

    def last_used(self) -> Mapping[str, float]:
        """Return by name when tokens were used here: unix seconds."""
        return dict(self._used)

    def start(self) -> None:
        """Begin to look by itself."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more, and let go of the file."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._close()

    def look(self) -> None:
        """Take what was committed since the last look. What cannot be read leaves the copy as it is."""
        try:
            self._look()
        except sqlite3.Error as error:
            self._close()
            if _NO_TABLE in str(error):  # of a version before tokens; control is about to bring it up to date
                return
            self._unknown = not self._read_once
            self._say(f"{self._path}: tokens cannot be read: {error}")
        else:
            self._trouble = ""

    def _look(self) -> None:
        if self._connection is None:
            if not self._path.exists():
                return
            uri = f"{self._path.resolve().as_uri()}?mode=ro"
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=False, timeout=1.0
            )
            self._connection.row_factory = sqlite3.Row
            self._version = -1
        version = int(self._connection.execute("PRAGMA data_version").fetchone()[0])
        if version == self._version:
            return
        created = read_tokens(self._connection)
        self._by_digest = {token.digest: token for token in created} | self._configured
        self._created = created
        self._unknown, self._read_once = False, True
        self._version = version

    def _follow(self) -> None:
        while not self._ending.wait(LOOK_EVERY_S):
            self.look()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _say(self, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            _log.warning("%s", trouble)


def any_token(path: Path) -> bool:
    """Tell whether the file has a token: then a sidecar may listen to others than this machine."""
    file = TokenFile(path)
    try:
        return file.required
    finally:
        file.stop()
