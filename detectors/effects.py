"""Change without effect: a check that says the same after change upon change.

Every call succeeds, something is changed between any two checks, and so nothing repeats: only the outcome
does not move.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from detectors.rows import Row
from detectors.scope import Recent

if TYPE_CHECKING:
    from collector.step import Json, Step
    from detectors.streaks import Spent

CHECKS_KEPT: Final = 16
_HEAD: Final = 2048
_TAIL: Final = 1024
_FAILS: Final = re.compile(
    r"(?<![\w-])(?:errors?|fail(?:ed|ure|ures|s|ing)?|exception|traceback|assertion\w*|not found|mismatch"
    r"|incorrect|wrong|invalid|cannot|unable|undefined|broken|bug|expected|false)(?![\w-])"
)
_NONE_FAILS: Final = re.compile(
    r"(?:\b(?:0|no) (?:\w+ )?|\b)(?:errors?|fail(?:ed|ures?))(?:[:=\"' ]+(?:0|none|false)\b)"
    r"|\b(?:0|no) (?:\w+ )?(?:errors?|failed|failures?|problems?|warnings?|issues?)\b"
)
_PASSES: Final = re.compile(
    r"\b(?:pass(?:ed|es|ing)?|ok|success\w*|succeeded|all good|clean|up[ -]to[ -]date|valid|done|completed?"
    r"|finished|compiled|built|(?:0|no) (?:errors?|issues?|problems?|warnings?|failures?|changes))\b"
)


class Round(Row):
    """A check and how often it said the same although something had been changed."""

    __slots__ = ("changes", "information")

    def __init__(self, information: int, changes: int) -> None:
        super().__init__()
        self.information = information
        self.changes = changes


class Effects:
    """The checks of one scope, and how many changes were made before each."""

    __slots__ = ("_checks", "changes")

    def __init__(self) -> None:
        self.changes = 0
        self._checks = Recent[int, Round](CHECKS_KEPT)

    def clear(self) -> None:
        """A new beginning."""
        self.changes = 0
        self._checks.clear()

    def changed(self) -> None:
        """Something was changed."""
        self.changes += 1

    def forget(self, signature: int) -> None:
        """A check came out otherwise."""
        self._checks.pop(signature)

    def check(self, signature: int, information: int, step: Step, spent: Spent) -> Round | None:
        """Take a check in; return it when it says the same again although something was changed."""
        known = self._checks.touch(signature)
        if known is None or known.information != information:
            known = Round(information, self.changes)
            known.add(step, spent)
            self._checks.put(signature, known)
            return None
        if known.changes == self.changes:
            return None
        known.changes = self.changes
        known.add(step, spent)
        return known

    def json(self) -> Json:
        """The checks for a checkpoint."""
        checks: list[Json] = [
            [signature, check.information, check.changes, check.json()]
            for signature, check in self._checks.items()
        ]
        return [self.changes, checks]

    @staticmethod
    def load(state: Any) -> Effects:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        effects = Effects()
        effects.changes, checks = state
        for signature, information, changes, row in checks:
            check = Round(information, changes)
            loaded = Row.load(row)
            check.count, check.first, check.onset = loaded.count, loaded.first, loaded.onset
            check.spans, check.reported = loaded.spans, loaded.reported
            effects._checks.put(signature, check)
        return effects


def says_failure(text: str) -> bool | None:
    """Tell whether a check's output says that something is wrong; None: neither that nor that all is well.

    >>> says_failure("build succeeded. ERROR: Heading not found"), says_failure("12 passed, 0 failed")
    (True, False)
    >>> says_failure("[1, 2, 3]"), says_failure("errors: 0"), says_failure("")
    (None, False, False)
    """
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    text = text.lower()
    if not text.strip():
        return False
    rest = _NONE_FAILS.sub("", text)
    if _FAILS.search(rest):
        return True
    return False if rest != text or _PASSES.search(text) else None
