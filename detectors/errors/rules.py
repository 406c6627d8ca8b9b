"""The order of the rules: the first that decides has the last word.

Specific comes before general, and what only carries another's failure comes after what it carries: a
validator's report beats the words of the field it names (a `timeout_ms` that is no number is no timeout), a
name that does not resolve beats the 500 that a gateway wraps around it, a spent budget beats the 429 it is
sent with, a status beats the words beside it (`401 … PermissionDenied` wants credentials).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from detectors.errors import rules_calls, rules_programs, rules_services
from detectors.errors.kinds import ErrorClass
from detectors.errors.rule import Rule
from detectors.errors.subject import Subject

RULES: Final[tuple[Rule, ...]] = (
    *rules_calls.FIRST,
    *rules_programs.TESTS,
    *rules_programs.SHELL_FIRST,
    *rules_programs.CODE_FIRST,
    *rules_services.PROVIDERS[:3],
    *rules_services.PROVIDERS[3:],
    *rules_services.NETWORK,
    *rules_services.TIMEOUTS,
    *rules_calls.CALLS[:4],
    *rules_services.STATUSES,
    *rules_programs.EXCEPTIONS,
    *rules_calls.SQL,
    *rules_programs.SHELL,
    *rules_calls.TOOLS,
    *rules_services.DENIALS,
    *rules_calls.CALLS[4:],
    *rules_calls.NOT_THERE,
    *rules_calls.BUSINESS,
)


_BLOCK: Final = 4  # characters
_INDEXED: Final = (
    2 * _BLOCK - 1
)  # a text this long covers a whole block, wherever the blocks of a message begin


_Needles = tuple[tuple[str, int], ...]  # each with the bits of the rules that it makes worth asking


@dataclass(frozen=True, slots=True)
class _Index:
    """Which rules are worth asking, as bits by their place in the order."""

    always: int
    short: _Needles
    blocks: Mapping[str, _Needles]


def _index(rules: tuple[Rule, ...]) -> _Index:
    """Which rules to ask always, and which by a needle: a short one, or one found by a block of the message.

    There are about a thousand needles, and looking for each would be most of the cost of a judgement. Cutting
    the message in blocks of four characters and looking each up leaves a few dozen that can be in it.
    """
    always, bits, blocks = 0, dict[str, int](), dict[str, set[str]]()
    for number, rule in enumerate(rules):
        if not rule.needles:
            always |= 1 << number
        for needle in rule.needles:
            bits[needle] = bits.get(needle, 0) | 1 << number
            for start in range(_BLOCK if len(needle) >= _INDEXED else 0):
                blocks.setdefault(needle[start : start + _BLOCK], set()).add(needle)
    return _Index(
        always=always,
        short=tuple((needle, bit) for needle, bit in bits.items() if len(needle) < _INDEXED),
        blocks={
            block: tuple((needle, bits[needle]) for needle in sorted(needles))
            for block, needles in blocks.items()
        },
    )


_INDEX: Final = _index(RULES)


def _worth_asking(lower: str) -> int:
    asked, blocks = _INDEX.always, _INDEX.blocks
    for needle, bits in _INDEX.short:
        if needle in lower:
            asked |= bits
    # Each block once: a text that repeats itself is looked through once for all its repeats.
    for block in {lower[start : start + _BLOCK] for start in range(0, len(lower) - _BLOCK + 1, _BLOCK)}:
        if block in blocks:
            for needle, bits in blocks[block]:
                if bits & ~asked and needle in lower:
                    asked |= bits
    return asked


def first_match(subject: Subject, without: int = 0) -> tuple[Rule, ErrorClass] | None:
    """The first rule that decides, and what it says.

    `without` has the bits of rules that are not asked, by their place in `RULES`: an evaluation leaves out
    those that only the messages at hand support.
    """
    asked = _worth_asking(subject.lower) & ~without
    while asked:
        lowest = asked & -asked
        asked ^= lowest
        rule = RULES[lowest.bit_length() - 1]
        decided = rule.decide(subject)
        if decided is not None:
            return rule, decided
    return None
