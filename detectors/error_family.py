"""Which errors are of one family: the same message with other values in it.

Taken out are what the call itself had said (its arguments), what changes by itself (clocks, ids), names in
quotes or after words such as `column`, paths and numbers. What is left is the template. What was taken out
and had *not* come from the arguments is what the error names: an error that names another thing each time
says something new each time, though its template stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from detectors.role import words
from detectors.signature import hash64, information_text, without_hashes

if TYPE_CHECKING:
    from collector.step import Json

_HEAD_CHARS: Final = 420
_TAIL_CHARS: Final = 180
_SHELL_CHARS: Final = 300
_VALUE_CHARS: Final = 3
_VALUES_KEPT: Final = 32
_NAMED_KEPT: Final = 8
_SPECIFIC_WORDS: Final = 3

_SUGGESTS: Final = re.compile(
    r"(?i)\W(?:similar|suggestions?|hints?|one of|(?:available|valid|known|possible)(?: \w+)?)\s*:"
    r"|\W(?:did you mean|perhaps you meant)\b"
)
# A shell begins its errors with the script, which is the command itself after `-c`, and the line.
_SHELL_SAYS: Final = re.compile(r"(?m)^[^\n]{1,200}?: (?:-c: )?line \d{1,6}: ")
# A key before a colon is JSON's, and more than a few words are prose: neither is a name.
_QUOTED: Final = re.compile(
    r"""'[^'\s]{1,80}(?:\s[^'\s]{1,40}){0,3}'(?!:)|"[^"\s]{1,80}(?:\s[^"\s]{1,40}){0,3}"(?!:)|`[^`\n]{1,120}`"""
)
_BRACKETED: Final = re.compile(r"\[[^\]\n]{0,200}\]|\{[^}\n]{0,200}\}")
_AFTER_NOUN: Final = re.compile(
    r"\b(column|table|relation|field|key|attribute|property|parameter|argument|option|flag|function|method|module"
    r"|package|command|variable|identifier|symbol|file|directory|path|host|port|user|agent|model|tool|id|named?"
    r"|for|of|found|import)(\s*[:=]\s*|\s+)(?=[\w.@$-]*[\w$])"
    r"(?!(?:not|is|was|in|does|did|has|and|or|the|a|an|to|on|with|by|failed|error|found|missing|required|required"
    r"|argument|name|list|of|at|as|be|cannot|must|may|could|type|from|this|that|it|got|which|no|exists?)\b)([\w.@$-]+)"
)
_PLACE: Final = re.compile(
    r"(?:(?<![\w.~-])[\w.~-]*+(?:/[\w.~-]++)++|(?<![\w-])[\w-]+\.[a-z]{1,5})(?::\d+(?::\d+)?|\(\d+,\d+\))"
    r"|\blines? \d+"
)
_PATH: Final = re.compile(r"(?<![\w.~-])[\w.~-]*+(?:/[\w.~-]++)++/?")
# What reads like an identifier: no word of a language has such marks, or digits.
_IDENTIFIER: Final = re.compile(r"(?<![\w@.-])[a-z]++(?:[-_.@\d][a-z]*+)+(?<=\w)")
# A parameter's name with digits is a value that somebody chose: `customfield_10016`.
_GUESSED: Final = re.compile(r"[a-z].*\d{2}")
_NUMBER: Final = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*")
_COUNTED: Final = re.compile(
    r"(\d+) (?:[a-z]+ )?(?:errors?|fail\w*|problems?|violations?|missing|conflicts?|mismatch\w*|issues?"
    r"|left|remain\w*)\b"
)
_SPACE: Final = re.compile(r"\s+")
_WORD: Final = re.compile(r"[a-z]{3,}")
_GENERIC: Final = words(
    """
    error errors exit code exited status failed failure returned non zero command result output exception
    """
)
_MESSAGE_KEYS: Final = (
    "error",
    "message",
    "detail",
    "details",
    "msg",
    "reason",
    "response",
    "error_message",
    "title",
)


@dataclass(frozen=True, slots=True)
class Family:
    """An error's family: `template` is its text with every value replaced, `hash` 64 bits of that.

    `named` are 64-bit hashes of what the error names and its call had not said, at most eight. `amount` is
    how many things the error says are wrong ("9 errors"), None when it does not count. `specific` is False
    for what says nothing but that something failed.
    """

    hash: int
    template: str
    named: tuple[int, ...] = ()
    amount: int | None = None
    specific: bool = True


def family_of(text: str, arguments: Json = None) -> Family:
    """The family of an error that a call with these arguments brought.

    >>> a = family_of("column 'flight_no' does not exist", {"sql": "select flight_no from f"})
    >>> b = family_of("column 'flight_num' does not exist", {"sql": "select flight_num from f"})
    >>> a == b, a.template
    (True, 'column # does not exist')
    >>> a = family_of("field 'title' is required", {"text": "x"})
    >>> b = family_of("field 'owner' is required", {"text": "x"})
    >>> a.hash == b.hash, a.named == b.named
    (True, False)
    >>> family_of("m2.ts(6,3): type mismatch (8 errors)").amount, family_of("exit code 1").specific
    (8, False)
    """
    text = message_of(text)
    if ": line " in text[:_SHELL_CHARS]:
        text = _SHELL_SAYS.sub("shell: ", text)
    text = _ends(text)
    suggests = _SUGGESTS.search(text)
    if suggests is not None and suggests.start() > _VALUE_CHARS:
        text = text[: suggests.start()]
    values = [value.lower() for value, _ in zip(_values(arguments), range(_VALUES_KEPT), strict=False)]
    text = without_hashes(information_text(text))
    counted = _COUNTED.search(text)
    for value in sorted(set(values), key=lambda value: (-len(value), value)):
        text = text.replace(value, "#")
    said = "\n".join(values)
    named: list[str] = []

    def name(found: re.Match[str]) -> str:
        what = found[0].strip("'\"`")
        if what.strip("#").strip() and what not in said:
            named.append(what)
        return "#"

    def name_last(found: re.Match[str]) -> str:
        if found[3].strip("#") and found[3] not in said:
            named.append(found[3])
        return f"{found[1]}{found[2]}#"

    text = _PLACE.sub(name, text)
    text = _QUOTED.sub(name, text)
    text = _BRACKETED.sub("#", text)
    text = _PATH.sub(name, text) if "/" in text else text
    text = _AFTER_NOUN.sub(name_last, text)
    text = _IDENTIFIER.sub(lambda found: "#" if found[0] in said else found[0], text)
    template = _SPACE.sub(" ", _NUMBER.sub("0", text)).strip()
    telling = [word for word in _WORD.findall(template) if word not in _GENERIC]
    return Family(
        hash64(template),
        template,
        tuple(hash64(what) for what in dict.fromkeys(named[:_NAMED_KEPT])),
        int(counted[1][:9]) if counted is not None else None,
        len(telling) >= _SPECIFIC_WORDS,
    )


def _ends(text: str) -> str:
    """The beginning and the end of a long text: tracebacks say at the end what is wrong."""
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]} … {text[-_TAIL_CHARS:]}"


def message_of(text: str) -> str:
    """What an error says: of a JSON object its message, of all else the text, once if it was recorded twice.

    >>> message_of('{"error": {"code": 7, "message": "no such user"}}'), message_of("plain")
    ('no such user', 'plain')
    """
    error, parted, result = text.partition("\x1e")
    if parted and (result.startswith(error) or error.startswith(result)):
        text = max(error, result, key=len)
    if text[:1] != "{":
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return " ".join(part for part, _ in zip(_messages(found, 3), range(4), strict=False)) or text


def _messages(value: Json, depth: int) -> Iterator[str]:
    if isinstance(value, Mapping) and depth:
        for key in _MESSAGE_KEYS:
            inner = value.get(key)
            if isinstance(inner, str) and inner:
                yield inner
            elif isinstance(inner, (Mapping, list)):
                yield from _messages(inner, depth - 1)
    elif isinstance(value, list) and depth:
        for item in value[:2]:
            yield from _messages(item, depth - 1)


def _values(arguments: Json) -> Iterator[str]:
    """The texts among the arguments that stand for themselves: long enough, or names with numbers in them."""
    if isinstance(arguments, str):
        if len(arguments) >= _VALUE_CHARS:
            yield arguments
    elif isinstance(arguments, Mapping):
        for name, value in arguments.items():
            if _GUESSED.search(name) is not None:
                yield name
            yield from _values(value)
    elif isinstance(arguments, list):
        for value in arguments:
            yield from _values(value)
