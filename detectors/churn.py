"""Which parameters of a call change from attempt to attempt, over which values, and how much.

Entropy is that of a parameter's values over the attempts, as a share of what it could be: 0 for a parameter
that never changes, 1 for one that never comes back to a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from detectors.role import words

if TYPE_CHECKING:
    from collector.step import Json

_PARAMETERS: Final = 8
_VALUES: Final = 24
_SHOWN: Final = 6
_LAST: Final = 200
_EXCERPT: Final = 80
_BEFORE: Final = 24
_DEPTH: Final = 3
_WORDS: Final = 128
_CHARS: Final = 2000

_TOKEN: Final = re.compile(r"[^\s'\"`|;&(){}\[\],<>]+")
_PIECE: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+|\d+")
_TRAILING: Final = re.compile(r"\W+$")
_TARGET: Final = re.compile(r"[/@\d]|\.\w")
_COORDINATES: Final = words("x y cx cy px py coordinate coordinates position point pos left top")
_KNOBS: Final = words(
    """
    limit max min top topk k n count size num maxresults numresults depth timeout temperature threshold delay
    seconds wait radius tolerance
    """
)
_NAME_NOISE: Final = re.compile(r"[^a-z0-9]+")


def flat(arguments: Json) -> dict[str, str]:
    """The values of a call's arguments as texts by dotted name; at most eight, 2,000 characters each.

    >>> flat({"url": "u", "headers": {"Authorization": "Basic k"}, "ids": [1, 2]})
    {'url': 'u', 'headers.Authorization': 'Basic k', 'ids.0': '1', 'ids.1': '2'}
    """
    if isinstance(arguments, (Mapping, list)):
        pairs = _leaves(arguments, "", _DEPTH)
        return {name: text for (name, text), _ in zip(pairs, range(_PARAMETERS), strict=False)}
    return {} if arguments is None else {"": str(arguments)[:_CHARS]}


def _leaves(value: Json, name: str, depth: int) -> Iterator[tuple[str, str]]:
    if depth and isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else key, depth - 1)
    elif depth and isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{at}" if name else str(at), depth - 1)
    else:
        yield name, value[:_CHARS] if isinstance(value, str) else str(value)[:_CHARS]


@dataclass(slots=True)
class Churn:
    """What the attempts of one streak were made with.

    `counts` holds by parameter how often each value came (by hash), `shown` its first and latest values as
    excerpts, `last` the attempt before (hash and beginning by parameter), `words` what the values were made
    of.
    """

    attempts: int = 0
    counts: dict[str, dict[int, int]] = field(default_factory=dict)
    shown: dict[str, list[str]] = field(default_factory=dict)
    last: dict[str, tuple[int, str]] = field(default_factory=dict)
    words: dict[int, None] = field(default_factory=dict)

    def add(self, arguments: Json) -> None:
        """Take in one attempt."""
        values = flat(arguments)
        self.attempts += 1
        for name in [*values, *(name for name in self.last if name not in values)]:
            self._count(name, values.get(name, ""))
        self._learn(values)
        self.last = {name: (_hash(text), text[:_LAST]) for name, text in values.items()}

    def _count(self, name: str, text: str) -> None:
        counts = self.counts.get(name)
        if counts is None:
            if len(self.counts) >= _PARAMETERS:
                return
            counts = self.counts[name] = {}
            self.shown[name] = []
            if self.attempts > 1:
                counts[_hash("")] = self.attempts - 1
        key = _hash(text)
        if key in counts:
            counts[key] += 1
            return
        if len(counts) < _VALUES:
            counts[key] = 1
        shown = self.shown[name]
        shown.append(_excerpt(text, self.last[name][1] if name in self.last else None))
        if len(shown) > _SHOWN:
            del shown[_SHOWN // 2]

    def _learn(self, values: Mapping[str, str]) -> None:
        for text in values.values():
            for word in _words(text):
                self.words[word] = None
        while len(self.words) > _WORDS:
            del self.words[next(iter(self.words))]

    def parameters(self) -> list[str]:
        """Which parameters change, the most restless first.

        >>> churn = Churn()
        >>> for lr in (0.1, 0.05, 0.01): churn.add({"lr": lr, "epochs": 1})
        >>> churn.parameters(), churn.entropy("lr"), churn.values("lr")
        (['lr'], 1.0, ['0.1', '0.05', '0.01'])
        """
        moving = [name for name, counts in self.counts.items() if len(counts) > 1]
        return sorted(moving, key=lambda name: -self.entropy(name))

    def entropy(self, name: str) -> float:
        """How much a parameter changes, 0 to 1."""
        counts = self.counts[name]
        total = sum(counts.values())
        if total < 2 or len(counts) == 1:  # noqa: PLR2004 - one value says nothing of change
            return 0.0
        bits = -sum(n / total * math.log2(n / total) for n in counts.values())
        return round(min(1.0, bits / math.log2(total)), 3)

    def values(self, name: str) -> list[str]:
        """The values that a parameter had, in order, as excerpts; the middle ones of many are left out."""
        return list(self.shown[name])

    def is_variant(self, arguments: Json) -> bool:
        """Tell whether a call asks nearly the same as the attempts before, in other words or numbers.

        Words: at least half of those in every value that changed have been used before, and no path, host,
        address or number that was not. Numbers: coordinates within five of the attempt before, or a limit or
        timeout, whatever its value.

        >>> churn = Churn()
        >>> churn.add({"q": "refund policy rules", "limit": 5})
        >>> [churn.is_variant({"q": q, "limit": 9}) for q in ("rules for refund", "refund 2023", "shoes")]
        [True, False, False]
        """
        for name, text in flat(arguments).items():
            before = self.last.get(name)
            if before is not None and (before[0] == _hash(text) or _moved_little(name, text, before[1])):
                continue
            if not self._reworded(text):
                return False
        return True

    def goes_up(self, arguments: Json) -> bool:
        """Tell whether a call asks for a folder above the last one: it looks where a path ends.

        >>> churn = Churn()
        >>> churn.add({"cmd": "ls /srv/a/b.txt"})
        >>> [churn.goes_up({"cmd": cmd}) for cmd in ("ls /srv/a/", "ls /srv", "ls /srv/a/c.txt", "ls")]
        [True, True, False, False]
        """
        moved = False
        for name, text in flat(arguments).items():
            before = self.last.get(name)
            if before is None:
                return False
            if before[0] == _hash(text):
                continue
            stem = _TRAILING.sub("", text)
            if not stem or not before[1].startswith(f"{stem}/"):
                return False
            moved = True
        return moved

    def _reworded(self, text: str) -> bool:
        tokens = _TOKEN.findall(text[:_CHARS])
        for token in tokens:
            if (
                _TARGET.search(token)
                and token[0] != "-"
                and any(word not in self.words for word in _words(token))
            ):
                return False
        words = _words(text)
        known = sum(word in self.words for word in words)
        return bool(words) and known * 2 >= len(words)

    def json(self) -> Json:
        """The churn for a checkpoint; `load` reads it."""
        return [
            self.attempts,
            {name: [[key, n] for key, n in counts.items()] for name, counts in self.counts.items()},
            {name: list(shown) for name, shown in self.shown.items()},
            {name: list(last) for name, last in self.last.items()},
            list(self.words),
        ]

    @staticmethod
    def load(state: Any) -> Churn:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        attempts, counts, shown, last, known = state
        return Churn(
            attempts,
            {name: dict(pairs) for name, pairs in counts.items()},
            {name: list(texts) for name, texts in shown.items()},
            {name: (key, text) for name, (key, text) in last.items()},
            dict.fromkeys(known),
        )


def _words(text: str) -> set[int]:
    """The words of a value as hashes, those inside of names too."""
    return {_hash(piece.lower()) for piece in _PIECE.findall(text[:_CHARS])}


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def _moved_little(name: str, text: str, before: str) -> bool:
    last = _NAME_NOISE.sub(
        "", next((part for part in reversed(name.split(".")) if not part.isdigit()), "").lower()
    )
    if last not in _COORDINATES and last not in _KNOBS:
        return False
    try:
        step = abs(float(text) - float(before))
    except ValueError:
        return False
    return step <= 5 or last in _KNOBS  # noqa: PLR2004 - pixels: the radius of a finger


def _excerpt(text: str, before: str | None) -> str:
    """The beginning of a value; of a long one the place where it differs from the one before.

    >>> _excerpt("a" * 100 + "bcd", "a" * 100 + "c")[-4:], _excerpt("short", None)
    ('abcd', 'short')
    """
    text = text.replace("\n", " ")
    if len(text) <= _EXCERPT:
        return text
    at = 0
    if before is not None:
        before = before.replace("\n", " ")
        while at < min(len(text), len(before)) and text[at] == before[at]:
            at += 1
    start = max(0, min(at - _BEFORE, len(text) - _EXCERPT + 2))
    cut = text[start : start + _EXCERPT - 2]
    return f"{'…' if start else ''}{cut}{'…' if start + len(cut) < len(text) else ''}"
