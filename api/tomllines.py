"""On which line of a TOML text each key stands: `tomllib` reads values and forgets their places."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Final, TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"
"""Keys, and positions in lists (from 0), from the top."""

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE: Final = re.compile(r"[^,\]}\n#]*")
_STRINGS: Final = tuple(
    (opening, re.compile(pattern, re.DOTALL))
    for opening, pattern in (
        ('"""', r'"""(?:[^\\]|\\.)*?"{3,5}'),
        ("'''", r"'''.*?'{3,5}"),
        ('"', r'"(?:[^"\\]|\\.)*"'),
        ("'", r"'[^']*'"),
    )
)


class Lines:
    """Where the keys of a text stand. The text has to be valid: `tomllib` has read it before."""

    def __init__(self, text: str) -> None:
        self._lines = _Scanner(text).scan()

    def of(self, path: Path) -> int:
        """Return the line (from 1) of a key, of what it is in when it is not there; 1 for the whole text."""
        while path:
            if path in self._lines:
                return self._lines[path]
            path = path[:-1]
        return 1


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tables: dict[Path, int] = {}
        self._found: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        base: Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text.startswith("[[", self._at):
                base = self._header(2)
            elif self._text[self._at] == "[":
                base = self._header(1)
            else:
                self._pair(base)
            self._skip()
        return self._found

    def _header(self, brackets: int) -> Path:
        """Read `[a.b]` or `[[a.b]]`; the last table of a list is meant by the list's name."""
        line = self._line()
        self._at += brackets
        keys = self._keys()
        self._skip()
        self._at += brackets
        path: Path = ()
        for number, key in enumerate(keys, start=1):
            path = (*path, key)
            if brackets == 2 and number == len(keys):  # noqa: PLR2004 - a table of a list
                self._tables[path] = self._tables.get(path, 0) + 1
                self._found.setdefault(path, line)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
            self._found.setdefault(path, line)
        return path

    def _pair(self, base: Path) -> None:
        line = self._line()
        path = base
        for key in self._keys():
            path = (*path, key)
            self._found.setdefault(path, line)
        self._skip()
        self._at += 1
        self._skip()
        self._value(path)

    def _value(self, path: Path) -> None:
        self._found.setdefault(path, self._line())
        if self._text[self._at] == "[":
            self._list(path)
        elif self._text[self._at] == "{":
            self._inline(path)
        elif (text := self._string()) is None:
            match = _BARE_VALUE.match(self._text, self._at)
            self._at = self._at if match is None else match.end()
        else:
            self._at += len(text)

    def _list(self, path: Path) -> None:
        self._at += 1
        number = 0
        while not self._closed("]"):
            self._value((*path, number))
            number += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while not self._closed("}"):
            self._pair(path)

    def _closed(self, bracket: str) -> bool:
        """Skip what parts two items; take the closing bracket, if it is there."""
        self._skip()
        if self._text[self._at] == ",":
            self._at += 1
            self._skip()
        if self._text[self._at] != bracket:
            return False
        self._at += 1
        return True

    def _keys(self) -> list[str]:
        """Read a key, dotted or not."""
        keys: list[str] = []
        while True:
            self._skip()
            quoted = self._string()
            bare = _BARE_KEY.match(self._text, self._at)
            if quoted is not None:
                keys.extend(tomllib.loads(f"{quoted} = 0"))
                self._at += len(quoted)
            elif bare is not None:
                keys.append(bare.group())
                self._at = bare.end()
            self._skip()
            if self._text[self._at] != ".":
                return keys
            self._at += 1

    def _string(self) -> str | None:
        for opening, pattern in _STRINGS:
            if self._text.startswith(opening, self._at):
                match = pattern.match(self._text, self._at)
                return None if match is None else match.group()
        return None

    def _skip(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = self._at if match is None else match.end()

    def _line(self) -> int:
        return bisect_right(self._starts, self._at)
