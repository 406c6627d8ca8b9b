"""Whether an agent asks a person to take over: by the tool that it calls, or by its last words."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from detectors.role import words
from detectors.tool_role import words_of

_PERSONS: Final = words("user human humans person operator customer supervisor")
_HANDS: Final = words(
    "ask confirm notify transfer handoff hand escalation help input assistance intervention feedback approval"
)
_TEXT_CHARS: Final = 600  # the last words
_HANDS_OVER: Final = re.compile(
    r"""(?xi)\?[\s"'*_)]*$ | \b(?:
      please\ (?:provide|confirm|check|advise|share|grant|let)
    | let\ me\ know\ (?!if\b)
    | (?:unable|not\ able)\ to
    | (?:can(?:no|['\u2019])?t|could\ ?n(?:o|['\u2019])t)\b
    | need\ (?:your|you\ to|a\ human|manual)
    | human\ (?:agent|help|intervention)
    | manual(?:ly)?\ intervention
    | waiting\ for\ you
    | escalat
    | hand(?:ing|ed)?\ (?:this\ |it\ )?over
    | g[ia]v(?:e|en|ing)\ up
    )""",
)


@lru_cache(maxsize=4096)
def asks_a_person(tool: str) -> bool:
    """Tell whether a tool asks, or hands over to, a person, by its name.

    >>> [asks_a_person(t) for t in ("AskUserQuestion", "transfer_to_human_agents", "ask_followup_question")]
    [True, True, True]
    >>> [asks_a_person(t) for t in ("get_user_details", "transfer_to_sales_agent", "human_input")]
    [False, False, True]
    """
    found = frozenset(words_of(tool))
    if "escalate" in found or {"ask", "question"} <= found:
        return True
    return bool(found & _PERSONS and found & _HANDS) and "get" not in found


def hands_over(text: str) -> bool:
    """Tell whether an agent's last words ask a person, or say that it cannot go on.

    >>> hands_over("I was unable to reach the database, so I stopped."), hands_over("Which one do you mean?")
    (True, True)
    >>> hands_over("All tests pass now. Let me know if you need more.")
    False
    """
    return _HANDS_OVER.search(text[-_TEXT_CHARS:].rstrip()) is not None
