"""Secrets in one text: by shape (`sk-ant-…`), name (`password=…`, `"api_key": "…"`) or place (URLs, headers).

Names are found inside JSON inside JSON too, whatever the number of backslashes before its quotes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.redact_patterns import (
    BASIC,
    BEARER,
    BOUNDARY,
    PRIVATE_KEY,
    PRIVATE_KEY_END,
    QUOTE,
    SHAPES,
    SIGNED,
    URL,
    is_secret_name,
    is_strong_name,
    name_pattern,
)
from collector.redact_shell import command_line_secrets

_MARKER: Final = "[REDACTED:"
_MIN_STRONG: Final = 3  # characters of a password in running text
_MIN_WEAK: Final = 8  # characters of a token in running text, if one of them is a digit
_SURELY_SECRET: Final = 20  # characters without a space that no word has
_MIN_BEARER: Final = 16
_MIN_DIGITS: Final = 6
_KIND_CHARS: Final = 24
_NAME_CHARS: Final = frozenset(string.ascii_letters + string.digits + "_-.$")
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# How the words of `name_pattern` begin: finding these is thirty times faster than searching with it.
_STEMS: Final = (
    *(
        "pass",
        "pwd",
        "secret",
        "token",
        "api",
        "auth",
        "cookie",
        "private",
        "access",
        "signing",
        "encryption",
    ),
    *("account", "subscription", "master", "service", "credential", "connection"),
)

_QUOTES: Final = re.compile(QUOTE)
_BARE: Final = re.compile(r"[^\s\"'`,;&)}\]<>\\]+")
_HEADER: Final = re.compile(r"(?:(?i:bearer|basic|token|digest|negotiate|apikey)\s+)?[^\s\"'`,;)}\]<>\\]+")
_COOKIE: Final = re.compile(r"[^\r\n\"'\\]+")
_NO_KIND: Final = re.compile(r"[^a-z0-9]+")
_ESCAPE: Final = re.compile(r"u[0-9A-Fa-f]{4}|[nrtbf]")
_USER: Final = re.compile(r"(?s).*?:(?:\\*/){2}(?:\[REDACTED:[0-9a-z_]+:[0-9a-f]+\])?+[^:]*:")
# What stands where a secret would, without being one: literals, code, templates, masks, containers.
_NO_SECRET: Final = re.compile(
    r"(?i:true|false|null|none|undefined|nil|string|str|required|optional)\b|\$\{?\w+\}?$|[{\[(<]|[*x]+$"
    r"|(?:os|process|self|config|settings|args|env)\.|env\b|getenv|\w+\("
)


@dataclass(frozen=True, slots=True)
class _Compiled:
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    replace: Callable[[re.Match[str]], str]


class TextRedactor:
    """Takes secrets out of single texts. ValueError when an extra pattern is no regular expression."""

    def __init__(self, extra_keys: tuple[str, ...], extra_patterns: tuple[str, ...]) -> None:
        self._extra_keys = frozenset(key.lower() for key in extra_keys)
        self._stems = _STEMS + tuple(self._extra_keys)
        self._name = re.compile(name_pattern(extra_keys), re.ASCII)
        self._private = re.compile(rf"{PRIVATE_KEY}(?:[\s\S]*?{PRIVATE_KEY_END}|[\s\S]*)")
        self._shapes = (
            *(_shape(shape.kind, shape.hints, shape.boundary + f"(?:{shape.pattern})") for shape in SHAPES),
            *(_shape("pattern", (), pattern) for pattern in extra_patterns),
            _Compiled(("@",), re.compile(URL, re.ASCII), _without_password),
            _Compiled(
                ("AccountKey=", "AccessKey=", "sig=", "Signature="),
                re.compile(BOUNDARY + SIGNED, re.ASCII),
                _without_signature,
            ),
        )
        self._schemes = (
            ("bearer", re.compile(BEARER, re.ASCII), _without_bearer),
            ("basic", re.compile(BASIC, re.ASCII), _without_basic),
        )

    def redacted(self, text: str) -> str:
        """Return the text with its secrets replaced by markers."""
        if "PRIVATE KEY" in text:
            text = self._private.sub(lambda found: marker("private_key", found[0]), text)
        lowered = text.translate(_LOWER)
        text = self._without_command_lines(self._without_named(text, lowered))
        for shape in self._shapes:
            if not shape.hints or any(hint in text for hint in shape.hints):
                text = shape.pattern.sub(shape.replace, text)
        for scheme, pattern, replace in self._schemes:
            if scheme in lowered:
                text = pattern.sub(replace, text)
        return text

    def is_secret(self, key: str) -> bool:
        """Tell whether an attribute or field of this name holds a secret."""
        lowered = key.lower()
        return (
            lowered in self._extra_keys
            or lowered.rpartition(".")[2] in self._extra_keys
            or is_secret_name(key)
        )

    def secret_value(self, key: str, value: str) -> str:
        """Return the marker for a secret attribute's value; what is empty, marked or a small count stays."""
        if not value or value.startswith(_MARKER):
            return value
        if value.isdigit() and len(value) < _MIN_DIGITS and not self._is_strong(key):
            return value
        last = re.split(r"[./]", key.strip("./"))[-1].lower()
        return marker(_NO_KIND.sub("_", last).strip("_")[-_KIND_CHARS:].strip("_") or "secret", value)

    def _is_strong(self, key: str) -> bool:
        return self._is_extra(key) or is_strong_name(key)

    def _is_extra(self, key: str) -> bool:
        lowered = key.lower()
        return lowered in self._extra_keys or lowered.rpartition(".")[2] in self._extra_keys

    def _without_named(self, text: str, lowered: str) -> str:
        kept: list[str] = []
        done = 0
        for begin in self._starts(lowered):
            found = self._name.match(lowered, begin) if begin >= done else None
            if found is None:
                continue
            end, replaced = self._named(text, found, done)
            kept.extend((text[done : found.end()], replaced))
            done = end
        return "".join((*kept, text[done:])) if kept else text

    def _without_command_lines(self, text: str) -> str:
        kept: list[str] = []
        done = 0
        for begin, end, name in command_line_secrets(text, self.is_secret, self._is_option):
            kept.extend((text[done:begin], self.secret_value(name, text[begin:end])))
            done = end
        return "".join((*kept, text[done:])) if kept else text

    def _is_option(self, name: str, value: str) -> bool:
        return self._is_bare_secret(name, value, "=")

    def _starts(self, lowered: str) -> list[int]:
        """Return where a secret name may begin, in order."""
        starts = []
        for stem in self._stems:
            begin = lowered.find(stem)
            while begin >= 0:
                starts.append(begin)
                begin = lowered.find(stem, begin + 1)
        return sorted(starts)

    def _named(self, text: str, found: re.Match[str], floor: int) -> tuple[int, str]:
        """Return where the value after a name ends and what stands in its place."""
        begin = found.end()
        name = _name_at(text, found, floor)
        if not self.is_secret(name):
            return begin, ""
        quote = _QUOTES.match(text, begin)
        if quote:
            close = _closing(text, quote)
            return close, quote[0] + self.secret_value(name, text[quote.end() : close])
        bare = _bare_pattern(name).match(text, begin)
        if bare is None or not self._is_bare_secret(name, bare[0], found[0]):
            return begin, ""
        secret = self.secret_value(name, bare[0])
        mark = _QUOTES.search(found[0])
        # In JSON a number becomes a text, with quotes of the same depth as those of its name.
        return bare.end(), f"{mark[0]}{secret}{mark[0]}" if mark and secret != bare[0] else secret

    def _is_bare_secret(self, name: str, value: str, found: str) -> bool:
        if _NO_SECRET.match(value):
            return False
        if self._is_strong(name) or ("=" in value and _bare_pattern(name) is _COOKIE):
            return len(value) >= _MIN_STRONG
        if found.endswith("="):
            return len(value) > _MIN_STRONG
        long_enough = len(value) >= _MIN_WEAK and any(character.isdigit() for character in value)
        return long_enough or len(value) >= _SURELY_SECRET


def marker(kind: str, secret: str) -> str:
    """Return what stands in place of a secret."""
    digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_MARKER}{kind}:{digest}]"


def _name_at(text: str, found: re.Match[str], floor: int) -> str:
    """Return the whole name whose end was found; empty inside a marker."""
    begin = found.start()
    while begin > floor and text[begin - 1] in _NAME_CHARS:
        begin -= 1
    if text.endswith(_MARKER, 0, begin):
        return ""
    if text[begin - 1 : begin] == "\\":  # what looks like the name's first letters ends an escape: "\ntoken"
        escape = _ESCAPE.match(text, begin)
        begin = escape.end() if escape else begin
    return text[begin : found.end()].rstrip(" \t\r\n:=>").rstrip("\"'\\")


def _bare_pattern(name: str) -> re.Pattern[str]:
    lowered = name.lower()
    if lowered.endswith("authorization"):
        return _HEADER
    return _COOKIE if lowered.endswith("cookie") else _BARE


def _closing(text: str, quote: re.Match[str]) -> int:
    """Return where a quoted value ends: the start of its closing quote, or the end of a text that was cut.

    JSON inside JSON has k = 2^n - 1 backslashes before each of its quotes. A run of r backslashes and a
    quote closes such a value when r is k modulo 2(k + 1); every other run is an escaped part of the value.
    """
    mark = quote[0][-1]
    depth = len(quote[0]) - 1
    for found in _QUOTES.finditer(text, quote.end()):
        run = len(found[0]) - 1
        if found[0][-1] == mark and run % (2 * (depth + 1)) == depth:
            return found.end() - 1 - depth
    return len(text)


def _shape(kind: str, hints: tuple[str, ...], pattern: str) -> _Compiled:
    try:
        compiled = re.compile(pattern, re.ASCII)
    except re.error as error:
        raise ValueError(f"redaction pattern {pattern!r}: {error}") from error
    return _Compiled(hints, compiled, lambda found: marker(kind, found[0]) if found[0] else "")


def _without_password(found: re.Match[str]) -> str:
    user = _USER.match(found[0])
    if user is None:  # a token is the user, and there is no password
        return found[0]
    begin = user.end()
    password = found[0][begin:-1]
    if not password or password.startswith(_MARKER):
        return found[0]
    return f"{found[0][:begin]}{marker('url_password', password)}@"


def _without_signature(found: re.Match[str]) -> str:
    name, _, value = found[0].partition("=")
    return f"{name}={marker('signature', value)}"


def _without_bearer(found: re.Match[str]) -> str:
    scheme, space, token = re.split(r"(\s+)", found[0], maxsplit=1)
    is_token = len(token) >= _MIN_BEARER or any(character.isdigit() for character in token)
    return f"{scheme}{space}{marker('bearer', token)}" if is_token else found[0]


def _without_basic(found: re.Match[str]) -> str:
    scheme, space, token = re.split(r"(\s+)", found[0], maxsplit=1)
    standard = token.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        has_colon = b":" in base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError):
        has_colon = False
    return f"{scheme}{space}{marker('basic', token)}" if has_colon else found[0]
