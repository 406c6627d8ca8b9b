"""What a plan says of its own progress: the states of its items in their order, whatever their wording."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from detectors.tool_role import words_of

if TYPE_CHECKING:
    from collector.step import Json

_PLANS: Final = frozenset({"plan", "plans", "todo", "todos", "checklist"})
_READS: Final = frozenset({"get", "read", "list", "show", "view", "fetch", "search", "find"})
_STATES: Final = ("status", "state", "done", "completed", "checked")
_DONE: Final = frozenset({"completed", "complete", "done", "finished", "true", "closed", "x"})
_DOING: Final = frozenset({"in_progress", "inprogress", "active", "doing", "started", "current", "running"})
_CHECKBOX: Final = re.compile(r"\[([ xX~>-]?)\]")
_MAX_ITEMS: Final = 200
_MAX_DEPTH: Final = 6


@lru_cache(maxsize=4096)
def is_plan_tool(tool: str) -> bool:
    """Tell whether a tool takes down what its agent is going to do.

    >>> [is_plan_tool(t) for t in ("TodoWrite", "update_plan", "get_plan", "mcp__todo__search", "plan_trip")]
    [True, True, False, False, False]
    """
    words = words_of(tool)
    if _READS & set(words) or not _PLANS & set(words):
        return False
    # A plan of something (a trip, a route) is work.
    return words[-1] in _PLANS or words[0] in ("todo", "todos") or len(words) == 1


def status_pattern(arguments: Json) -> str:
    r"""The states of a plan's items, one letter each: d(one), i(n progress), o(pen); empty: no plan.

    >>> status_pattern({"todos": [{"content": "a", "status": "completed"}, {"content": "b"}]})
    'do'
    >>> status_pattern({"plan": [{"step": "A", "status": "in_progress"}, {"step": "B", "status": "pending"}]})
    'io'
    >>> status_pattern("- [x] read\n- [ ] write"), status_pattern({"note": "hello"})
    ('do', '')
    """
    return "".join(letter for letter, _ in zip(_letters(arguments, 0), range(_MAX_ITEMS), strict=False))


def _letters(value: Json, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from map(_letter, _CHECKBOX.findall(value))
    elif depth >= _MAX_DEPTH:
        return
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping) and not any(isinstance(inner, list) for inner in item.values()):
                yield _letter(next((item[state] for state in _STATES if state in item), ""))
            else:
                yield from _letters(item, depth + 1)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _letters(item, depth + 1)


def _letter(state: Json) -> str:
    word = str(state).strip().lower().replace("-", "_").replace(" ", "_")
    return "d" if word in _DONE else "i" if word in _DOING or word in ("~", ">", "_") else "o"
