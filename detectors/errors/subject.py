"""The part of an error's text that is judged, in the forms that rules ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from detectors.role import words
from detectors.tool_role import words_of

MAX_HEAD: Final = 1500  # characters
MAX_TAIL: Final = 2500  # characters
FOCUS: Final = 450  # characters of either end that are judged first

_RUNS_CODE: Final = words(
    """
    bash shell sh zsh terminal cmd command powershell console python ipython jupyter notebook repl interpreter
    computerterminal node javascript exec sandbox
    """,
)
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RUN: Final = frozenset({"run", "execute", "exec", "eval"})
_OTHER_CODE: Final = frozenset({"sql", "query", "tool"})


@dataclass(frozen=True, slots=True)
class Subject:
    """An error's text: as it is, in lower case, its last line; and whether its tool runs code of the agent.

    `runs_code` is None when the tool is not known.
    """

    text: str
    lower: str
    last: str
    runs_code: bool | None


def bounded(message: str) -> str:
    """The message without colours and blanks around it, at most `MAX_HEAD` + `MAX_TAIL` characters of it.

    A cause stands at the beginning (a service's answer) or at the end (a traceback), never in the middle.

    >>> len(bounded("x" * 1_000_000))
    4003
    """
    if len(message) > MAX_HEAD + MAX_TAIL:
        message = f"{message[:MAX_HEAD]}\n…\n{message[-MAX_TAIL:]}"
    if "\x1b" in message:
        message = _COLOUR.sub("", message)
    return message.replace("\r\n", "\n").strip()


def focus(text: str) -> str:
    """Both ends of a bounded text.

    >>> len(focus("x" * 4000))
    903
    """
    return text if len(text) <= 2 * FOCUS else f"{text[:FOCUS]}\n…\n{text[-FOCUS:]}"


@lru_cache(maxsize=4096)
def runs_code(tool: str) -> bool:
    """Tell whether a tool runs what the agent wrote, so that exceptions are the agent's code's.

    >>> runs_code("execute_bash"), runs_code("run_code"), runs_code("extract_code"), runs_code("execute_sql")
    (True, True, False, False)
    """
    own = tool.rpartition(".")[2] or tool  # what stands before the point is a server's name
    parts = frozenset(words_of(own[:200]))
    if parts & _OTHER_CODE:
        return False
    return bool(parts & _RUNS_CODE) or ("code" in parts and bool(parts & _RUN))


def subject_of(text: str, tool: str | None) -> Subject:
    """The forms of a bounded text that rules ask for."""
    lower = text.lower()
    return Subject(
        text=text,
        lower=lower,
        last=lower[lower.rfind("\n") + 1 :].strip(),
        runs_code=None if not tool else runs_code(tool),
    )
