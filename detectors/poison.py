"""What a value tells that should be none: placeholders, ids, error texts, and where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final
from zlib import crc32

from detectors.delegation import Talk, talk_of
from detectors.role import Role, words
from detectors.signature import VOLATILE, normal_name
from detectors.tool_role import words_of

if TYPE_CHECKING:
    from collector.step import Json
    from detectors.reading import Reading

HEAD_CHARS: Final = 2048
"""How much of a result is looked at, in characters."""
LONG: Final = 400
"""Arguments longer than this are texts, not values."""
KEYS_KEPT: Final = 16
"""How many empty fields of a result are remembered."""
_LEAVES: Final = 48
_DEPTH: Final = 3
_TEXT: Final = 24
LEAST_TEXT: Final = 12
"""Shorter texts tell no error, in characters."""

PLACEHOLDERS = frozenset(
    {"null", "none", "undefined", "nan", "n/a", "nil", "<null>", "<none>", "[object object]", "", "#n/a"}
)
# Led by the mark, which most positions are not: the field's name is looked for before it.
_EMPTY = re.compile(
    r"""[:=]\s?(?=[nNu"'[])(?:null|None|nil|undefined|NaN|N/A|\[object\ Object\]|""|''
          |"(?:null|None|undefined|NaN|N/A|nil|\[object\ Object\])")(?=\s*(?:[,;}\]\n)]|$))""",
    re.VERBOSE,
)
_FIELD = re.compile(r"([A-Za-z]\w{1,40})[\"']?\s?$")
_FIELD_CHARS: Final = 48
_IN_PATH = re.compile(r"[^\s]*[/=:](?:undefined|null|None|NaN|\[object Object\])(?:[/&?#.][^\s]*)?")
_IN_PROSE = re.compile(r"(?<![\w'\"`])(?:undefined|NaN|null|\[object Object\])(?![\w'\"`])")
_CODE = re.compile(r"[{}();]|=>|==|\bdef\b|\breturn\b|\bimport\b")
_ID_FIELD = re.compile(
    r"""["'](\w{0,40}(?:id|Id|ID|key|token|number|no|ref|code|path|file|url|uri|handle|cursor|sku|name))["']
        \s?:\s?["']?([^"',}\]\s]{5,80})""",
    re.VERBOSE,
)
_QUOTES: Final = " \n\t\"'"
DIGITS = re.compile(r"[0-9][\w-]{4,63}")
"""The part of an id from its first digit on: what two spellings of it share."""
ID_KEY = re.compile(r"(?:id|ids|token|account|accountnumber|amount|price|rate|total)$")
LINKS = re.compile(
    r"parent|next|prev|manager|reply|cursor|page|filter|before|after|expire|delet|cancel|optional"
)
_TOLD = words(
    """
    incident alert notify report log ticket issue bug escalate error feedback respond reply answer finish
    """
)
_TELLS = re.compile(r"(?:error|reason|status|log|cause|detail|details|trace|exception|stderr)$")
_PROSE = words("body message text subject content note description summary html markdown title caption")
_PLACE = re.compile(r"(?i)(?:path|file|url|uri|name|code|key)$")
_NO_VALUE = re.compile(r"(?i)trace|request|error|doc|help|support|correlation|incident|log")


def is_placeholder(value: Json) -> bool:
    """Tell whether a value stands for none.

    >>> [is_placeholder(value) for value in (None, "undefined", float("nan"), 0, "no")]
    [True, True, True, False, False]
    """
    if value is None or isinstance(value, str):
        return (value or "").strip().lower() in PLACEHOLDERS
    return isinstance(value, float) and value != value  # noqa: PLR0124 - nan alone differs from itself


def has_inside(name: str, text: str, role: Role) -> bool:
    """Whether a path or a short text that changes something has a placeholder where a value should be."""
    if len(text) > LONG or role in (Role.LOOK, Role.POLL, Role.THINK):
        return False
    if not has_cue(text):
        return False
    if normal_name(name) in _PROSE:
        return _IN_PROSE.search(text) is not None and _CODE.search(text) is None
    return _IN_PATH.fullmatch(text) is not None


def is_data(name: str, reading: Reading) -> bool:
    """Whether a text is handed on as data, and not told to somebody as what went wrong."""
    tool = reading.step.tool or ""
    if reading.role in (Role.LOOK, Role.POLL, Role.THINK) or talk_of(tool) is Talk.DELEGATE:
        return False
    return not (_TOLD & set(words_of(tool)) or _TELLS.search(normal_name(name)))


def empty_fields(text: str) -> list[str]:
    """Normal names of fields without a value in a result; `*` when all of it is a placeholder.

    >>> empty_fields('{"customer_id": null, "name": "Ann"}'), empty_fields("undefined"), empty_fields("ok")
    (['customerid'], ['*'], [])
    """
    if len(text) < _TEXT and text.strip(_QUOTES).lower() in PLACEHOLDERS and text.strip(_QUOTES):
        return ["*"]
    if not (has_cue(text) or '""' in text or "''" in text or "N/A" in text or "nil" in text):
        return []
    names: dict[str, None] = {}
    for found in _EMPTY.finditer(text):
        at = found.start()
        field = _FIELD.search(text[max(0, at - _FIELD_CHARS) : at])
        if field is not None and len(names) < KEYS_KEPT:
            names[normal_name(field[1])] = None
    return list(names)


def has_cue(text: str) -> bool:
    """A cheap look for what most placeholders have in them."""
    return "null" in text or "None" in text or "undefined" in text or "NaN" in text or "[object" in text


def ids_in(text: str, *, plain: bool = False, only_ids: bool = False) -> list[int]:
    """32-bit hashes of the ids in a result's fields; `plain`: of all that has digits, too.

    `only_ids`: not of what may be a path, an address or a name.

    >>> len(ids_in('{"error": "gone", "order_id": "ord-88123", "request_id": "7f3a91c2"}'))
    2
    """
    found: dict[int, None] = {}
    for key, value in _ID_FIELD.findall(text[:HEAD_CHARS]):
        if normal_name(key) in VOLATILE or _NO_VALUE.search(key):
            continue
        if only_ids and (_PLACE.search(key) or "/" in value or not any(map(str.isdigit, value))):
            continue
        found[crc32(value.encode("utf-8", "surrogatepass"))] = None
        for digits in DIGITS.findall(value):
            found[crc32(digits.encode())] = None
    if plain:
        for digits in DIGITS.findall(text[:LONG]):
            found[crc32(digits.encode())] = None
    return list(found)


def text_hash(text: str) -> int:
    """32 bits of the beginning of an error's text; 0 when that is too short to tell it.

    >>> text_hash("Error: model overloaded") == text_hash(" error: model overloaded, try later")
    True
    """
    head = " ".join(text[: 4 * _TEXT].lower().split())[:_TEXT].rstrip(" .,:;")
    return crc32(head[: _TEXT - 2].encode("utf-8", "surrogatepass")) if len(head) >= LEAST_TEXT else 0


def leaves(arguments: Json) -> Iterator[tuple[str, Json]]:
    """The plain values of arguments with their names, of the first few levels and of bounded number."""
    left = _LEAVES
    todo: list[tuple[str, Json, int]] = [("", arguments, 0)]
    while todo and left > 0:
        name, value, depth = todo.pop()
        if isinstance(value, Mapping):
            if depth < _DEPTH:
                todo += [(key, inner, depth + 1) for key, inner in list(value.items())[:_LEAVES]]
        elif isinstance(value, list):
            if depth < _DEPTH:
                todo += [(name, inner, depth + 1) for inner in value[:_LEAVES]]
        else:
            left -= 1
            yield name, value
