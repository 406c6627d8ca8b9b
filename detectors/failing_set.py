"""What a run of tests, a compiler or a linter says is wrong: which things, how many, how many are right."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from detectors.signature import hash64, information

_JUDGED_CHARS: Final = 6000
_TAIL_CHARS: Final = 2000
_NAMES_KEPT: Final = 200

_WRONG: Final = re.compile(
    r"(?i)\b(\d{1,6}) (?:tests? |specs? |examples? )?(?:failed|failing|failures?|errors?|broken|problems?)\b"
    r"|\b(?:failures?|errors?|failed)\s*[=:]\s*(\d{1,6})"
)
_RIGHT: Final = re.compile(r"(?i)\b(\d{1,6}) (?:tests? )?(?:passed|passing|ok|succeeded)\b")
_RAN: Final = re.compile(r"(?i)\b(?:ran|tests run:|total:?) (\d{1,6})\b")
_NAMED: Final = re.compile(
    r"""(?mx)
      ^[^\S\n]{0,40}(?:FAILED|ERROR|FAIL:|---\ FAIL:|not\ ok\ \d+\ -?|[✗✕\u00d7]|FAIL)\s{1,8}([\w./:\[\]-]+)
    | \bFAILED:?\s{1,8}([\w./:\[\]-]+)
    | ^[^\S\n]{0,40}\d{1,6}\)[^\S\n]{1,8}(\S.{0,100})
    | ^[^\S\n]{0,40}([\w./-]{1,200}[(:]\d+[,:]\d+\)?:?\s(?:error\s)?[A-Z]*\d*)
    """
)


@dataclass(frozen=True, slots=True)
class FailingSet:
    """What fails (`signature`, 64 bits), how many do (`wrong`) of how many (`total`); None: not told.

    `text` is 64 bits of the whole text without clocks and layout. Two with other texts are equal: the same
    fails.
    """

    signature: int
    wrong: int | None
    total: int | None
    text: int = field(default=0, compare=False)


def failing_set_in(text: str) -> FailingSet:
    r"""Read what failed in a run's output. Names count where there are any, else the text without clocks.

    >>> a = failing_set_in("FAILED test_total, FAILED test_tax - assert 0 == 19\n2 failed, 8 passed in 2.0s")
    >>> b = failing_set_in("FAILED test_tax, FAILED test_total - assert 7 == 19\n2 failed, 8 passed in 3.1s")
    >>> a == b, a.wrong, a.total
    (True, 2, 10)
    >>> failing_set_in("ok, 3 passed").wrong is None
    True
    """
    if len(text) > _JUDGED_CHARS:
        text = text[: _JUDGED_CHARS - _TAIL_CHARS] + text[-_TAIL_CHARS:]
    names = {
        next(part for part in found if part).rstrip(",:")
        for found, _ in zip(_NAMED.findall(text), range(_NAMES_KEPT), strict=False)
    }
    wrong = _sum(_WRONG.findall(text))
    if wrong is None and names:
        wrong = len(names)
    right = _sum([(found, "") for found in _RIGHT.findall(text)])
    ran = _sum([(found, "") for found in _RAN.findall(text)])
    total = ran if right is None else right + (wrong or 0)
    whole = information(" ".join(text.split()))
    signature = hash64("\x1e".join(sorted(names))) if names else whole
    return FailingSet(signature, wrong, total, whole)


def _sum(found: list[tuple[str, str]]) -> int | None:
    """The last count of a text: what comes at the end sums up."""
    return int(next(part for part in found[-1] if part)) if found else None
