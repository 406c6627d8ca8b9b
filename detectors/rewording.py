"""Another wording, the same answer: how alike two results are that came for different arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from detectors.news import HEAD_CHARS

if TYPE_CHECKING:
    from collector.step import Json

_KEPT: Final = 64
_HEAD: Final = 120
_WORDS_ALIKE: Final = 0.75
_NUMBERS_ALIKE: Final = 0.7
_NUMBER: Final = re.compile(r"\d[\d.,:]*")


def head_of(text: str) -> int:
    r"""32 bits for the first line of a text, as far as one looks.

    >>> head_of("I clicked 'View'.\n\nA page") == head_of("  I clicked 'View'.\nAnother")
    True
    """
    line = text[: _HEAD * 2].lstrip().partition("\n")[0]
    return crc32(line[:_HEAD].encode("utf-8", "surrogatepass"))


class Sketch(NamedTuple):
    """The 64 smallest hashes of a text's words and of its numbers (bottom-k sketch; Broder, 1997)."""

    words: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()

    @staticmethod
    def of(words: frozenset[int], text: str) -> Sketch:
        """The sketch of a text, whose words have been hashed."""
        numbers = {crc32(number.encode()) for number in _NUMBER.findall(text[:HEAD_CHARS])}
        return Sketch(tuple(sorted(words)[:_KEPT]), tuple(sorted(numbers)[:_KEPT]))

    def like(self, other: Sketch) -> bool:
        """Tell whether two texts say nearly the same: words of another order, a few more or fewer.

        What differs in its numbers is no repetition: they are what a sweep or a benchmark is for.

        >>> from detectors.news import words_in
        >>> texts = ["the page shows the months of the year 2024", "The page shows months of the year, 2024"]
        >>> one, other = (Sketch.of(words_in(text), text) for text in texts)
        >>> one.like(other), one.like(Sketch(one.words, (1, 2)))
        (True, False)
        """
        return (
            alike(self.words, other.words) >= _WORDS_ALIKE
            and alike(self.numbers, other.numbers) >= _NUMBERS_ALIKE
        )


def alike(one: tuple[int, ...], other: tuple[int, ...]) -> float:
    """The Jaccard similarity of two sets, 0 to 1, estimated from their smallest members.

    >>> alike((1, 2, 3), (1, 2, 4)), alike((), ())
    (0.5, 1.0)
    """
    both = sorted(set(one) | set(other))[: max(len(one), len(other), 1)] if len(one) >= _KEPT else None
    union = set(both) if both is not None else set(one) | set(other)
    return len(union & set(one) & set(other)) / len(union) if union else 1.0


@dataclass(slots=True)
class Latest:
    """The latest result of a row of calls of one tool, to compare the next one with, and the one before it.

    What is read off a screen comes out otherwise now and then; one such reading is no other answer.
    """

    tool: str = ""
    signature: int = 0
    information: int = 0
    head: int = 0
    sketch: Sketch | None = None
    before: Sketch | None = None

    def like(self, sketch: Sketch) -> bool:
        """Tell whether a result says nearly the same as the latest or the one before; so do those unread."""
        if self.sketch is None or self.sketch.like(sketch):
            return True
        return self.before is not None and self.before.like(sketch)

    def json(self) -> Json:
        """What is kept, for a checkpoint."""
        told: list[Json] = [
            [list(sketch.words), list(sketch.numbers)] if sketch is not None else None
            for sketch in (self.sketch, self.before)
        ]
        return [self.tool, self.signature, self.information, self.head, *told]

    @staticmethod
    def load(state: Any) -> Latest:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        *call, latest, before = state
        sketches = [
            Sketch(tuple(told[0]), tuple(told[1])) if told is not None else None for told in (latest, before)
        ]
        return Latest(*call, *sketches)
