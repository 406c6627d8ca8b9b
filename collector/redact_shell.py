"""Secrets on command lines, where a space parts an option from its value and the program tells which is one.

`--password X`, `--api-token "X"` of any program, also as `["--token", "X"]`; `-u user:X` of curl; `-pX` of
the clients of MySQL. What reads like prose (`--token is required`), a variable or a port stays.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Span = tuple[int, int, str]  # begin, end, what names it

_BEFORE: Final = 400  # characters in which an option's program is looked for
_MIN_PASSWORD: Final = 3  # characters
_QUOTE: Final = r"\\*[\"']"
_VALUE: Final = (
    rf"(?:(?P<quote>{_QUOTE})(?P<quoted>(?:(?!(?P=quote))[\s\S])*)|(?P<bare>[^\s\"'`\\;|&)\]}},]+))"
)
_OPTION: Final = re.compile(
    rf"--(?P<name>[A-Za-z][A-Za-z0-9_.\-]{{0,63}})(?:\s+|{_QUOTE}\s*,\s*(?={_QUOTE})){_VALUE}", re.ASCII
)
_CURL_USER: Final = re.compile(
    rf"\s(?:-[A-Za-z]{{0,8}}[uU]\s*|--(?:proxy-)?user(?:\s+|=))(?:{_QUOTE})?(?P<user>[^\s:\"'\\]{{0,200}}):"
    r"(?P<secret>[^\s\"'\\]+)",
    re.ASCII,
)
_MYSQL_PASSWORD: Final = re.compile(rf"\s-p(?:{_QUOTE})?(?P<secret>[^\s\"'\\]{{{_MIN_PASSWORD},}})", re.ASCII)
_NUMBERED: Final = re.compile(r"[0-9]{1,5}(?:[:/].*)?")  # a port, or ports, or a user's number
_PROSE: Final = frozenset(
    (
        *(
            "a",
            "an",
            "and",
            "any",
            "are",
            "argument",
            "as",
            "at",
            "be",
            "because",
            "before",
            "but",
            "by",
            "can",
        ),
        *("cannot", "does", "flag", "for", "from", "has", "if", "in", "instead", "into", "is", "it", "may"),
        *("means", "must", "needs", "not", "of", "on", "only", "or", "option", "parameter", "so", "switch"),
        *("than", "that", "the", "then", "this", "to", "value", "was", "when", "where", "which", "will"),
        *("with", "without", "you", "your"),
    )
)

# The same for RE2, generous: what it finds is looked at with the patterns above.
CURL: Final = r"curl[^\n]*\s--?[A-Za-z\-]*[uU]"
MYSQL: Final = r"(?:mysql|mariadb)[^\n]*\s-p"


def option_pattern(words: str) -> str:
    """Return an RE2 pattern for a long option whose name ends in one of the alternatives `words`."""
    return rf"--[A-Za-z0-9_.\-]*(?:{words})s?(?:\s|{_QUOTE}\s*,)"


def command_line_secrets(
    text: str, is_secret: Callable[[str], bool], is_bare: Callable[[str, str], bool]
) -> list[Span]:
    """Return where secrets lie that only their place on a command line tells, in order and apart.

    `is_secret` judges the name of a long option, `is_bare` that name and a value without quotes.
    """
    found: list[Span] = []
    if "--" in text:
        found += _options(text, is_secret, is_bare)
    if "curl" in text:
        found += _of_curl(text)
    if "mysql" in text or "mariadb" in text:
        found += _of_mysql(text)
    apart: list[Span] = []
    for span in sorted(found):
        if not apart or span[0] >= apart[-1][1]:
            apart.append(span)
    return apart


def _options(
    text: str, is_secret: Callable[[str], bool], is_bare: Callable[[str, str], bool]
) -> Iterator[Span]:
    for name, option in _named(text):
        if not is_secret(name):
            continue
        bare = option["bare"]
        if bare is None:
            if option["quoted"]:
                yield (*option.span("quoted"), name)
        elif bare[0] not in "-/.~@" and bare.lower().rstrip(".:") not in _PROSE and is_bare(name, bare):
            yield (*option.span("bare"), name)


def _named(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Walk over options with a value; a value may begin the next option."""
    begin = text.find("--")
    while begin >= 0:
        option = _OPTION.match(text, begin)
        if option is not None:
            yield option["name"], option
        begin = text.find("--", begin + 2)


def _of_curl(text: str) -> Iterator[Span]:
    for found in _CURL_USER.finditer(text):
        numbers = _NUMBERED.fullmatch(found["user"]) and _NUMBERED.fullmatch(found["secret"])
        if not numbers and _runs(text, found.start(), ("curl",), "\n|"):
            yield (*found.span("secret"), "password")


def _of_mysql(text: str) -> Iterator[Span]:
    for found in _MYSQL_PASSWORD.finditer(text):
        port = _NUMBERED.fullmatch(found["secret"])
        if not port and _runs(text, found.start(), ("mysql", "mariadb"), "\n|;&"):
            yield (*found.span("secret"), "password")


def _runs(text: str, at: int, programs: tuple[str, ...], ends: str) -> bool:
    """Tell whether the option at `at` belongs to one of the programs: no command has ended in between."""
    before = text[max(0, at - _BEFORE) : at]
    begin = max(before.rfind(end) for end in ends) + 1
    return any(before.find(program, begin) >= 0 for program in programs)
