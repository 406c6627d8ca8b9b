"""Identifiers in texts and arguments: values that can only be known, never guessed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from zlib import crc32

from detectors.signature import normal_name

if TYPE_CHECKING:
    from collector.step import Json

HEAD_CHARS: Final = 8192
MAX_ID_CHARS: Final = 80

_TOKEN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{4,79}")
_LIKE_AN_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\d{6,24}|(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,64}"
    r"|[a-z]{1,12}[_-](?=[a-z0-9]*\d)[a-z0-9]{4,64}|[a-z]{0,6}\d{5,20}",
    re.IGNORECASE,
)
_NAMES = ("id", "ids", "uuid", "guid", "sha", "ref", "key", "handle")
_NOT_NAMES = frozenset({"valid", "grid", "paid", "kid", "keyboard", "apikey", "sortkey", "hotkey", "prefer"})


def is_id(text: str) -> bool:
    """Whether a text looks like an identifier that somebody issued.

    >>> [is_id(t) for t in ("ord_8f3k2", "3f2b9c1e", "1048576", "cus-9s6XKzkNRiz8i3", "readme", "page-2")]
    [True, True, True, True, False, False]
    """
    return len(text) <= MAX_ID_CHARS and _LIKE_AN_ID.fullmatch(text) is not None


def id_hash(text: str) -> int:
    """32 bits of an identifier, whatever its case."""
    return crc32(text.lower().encode("utf-8", "surrogatepass"))


def ids_in(text: str, limit: int = 64) -> list[int]:
    """Hashes of the first `limit` identifiers in a text's beginning.

    >>> len(ids_in('{"order": "ord_8f3k2", "total": 12}')), ids_in("nothing here")
    (1, [])
    """
    found: list[int] = []
    for token in _TOKEN.findall(text[:HEAD_CHARS]):
        if _LIKE_AN_ID.fullmatch(token) is not None:
            found.append(id_hash(token))
            if len(found) == limit:
                break
    return found


def asked_ids(arguments: Json, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """The arguments that are called an id and look like one: name and value.

    >>> list(asked_ids({"order_id": "ord_8f3k2", "note": "ord_8f3k2", "filter": {"userId": 1048576}}))
    [('order_id', 'ord_8f3k2'), ('userId', '1048576')]
    """
    if isinstance(arguments, Mapping):
        if depth < 4:  # noqa: PLR2004 - deeper than any tool's arguments
            for key, value in arguments.items():
                yield from asked_ids(value, key, depth + 1)
    elif isinstance(arguments, list):
        for value in arguments[:16]:
            yield from asked_ids(value, name, depth + 1)
    elif isinstance(arguments, (str, int)) and not isinstance(arguments, bool) and _is_called_id(name):
        text = str(arguments)
        if is_id(text):
            yield name, text


def _is_called_id(name: str) -> bool:
    spelled = normal_name(name)
    return spelled.endswith(_NAMES) and spelled not in _NOT_NAMES
