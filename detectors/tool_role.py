"""What a call is for, told from its tool's name and, for shells, its command.

Names are a guess, and the guess is used only where it makes detectors quieter: a call that may have changed
something ends the streaks of the others, a call that waits gets the patience of a poll.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from detectors.role import Role, words
from detectors.shell import role_of_command

if TYPE_CHECKING:
    from collector.step import Json

_THINKS = words("think thought thoughts thinking sequentialthinking reflect scratchpad")
_SHELLS = words("bash shell sh zsh exec execute terminal command cmd powershell console")
_WAITS = words("wait sleep pause")
_POLLS = words(
    """
    status poll progress output tail watch monitor heartbeat inbox notification notifications health
    healthz ready readiness price quote ticker
    """,
)
_ASKS = words("list get check read fetch")
_POLLED_LISTS = words("task tasks job jobs queue board messages mail events updates")
_MOVES = words(
    """
    scroll press swipe next undo redo forward back backward step down up continue advance
    increment zoom tab pan
    """,
)
_KEYS = words("key keys")
_PRESSES = words("send press hit type")
_CHANGES = words(
    """
    write edit create update delete remove add insert replace patch apply set put post send save store
    upload move rename copy install commit push merge deploy start stop click type fill submit select
    drag book cancel pay close assign reply publish approve reject charge transfer register schedule
    restart scale migrate spawn
    """,
)
_LOOKS = words(
    """
    read get list search find grep glob view show fetch query describe lookup look check inspect cat ls
    extract count load retrieve browse screenshot snapshot recall open visit analyze analyse explain
    status todo todos plan
    """,
)
# Notes that an agent takes for itself (todo, plan) change nothing out there.
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_OPERATIONS = ("action", "command", "op", "operation", "method", "mode")
_PROGRAMS = ("query", "sql", "statement", "code", "script", "command", "cmd")
_STATEMENT = re.compile(
    r"(?i)\s*(?:select|with|insert|update|delete|show|desc(?:ribe)?|explain|create|alter|match)\b"
)
_COMMANDS = ("command", "cmd", "script", "code", "chars", "input")


@lru_cache(maxsize=4096)
def words_of(tool: str) -> tuple[str, ...]:
    """Lower-case words of a tool's own name, without the server that an MCP name carries.

    >>> words_of("mcp__browser__getPageText"), words_of("BashOutput"), words_of("read_file")
    (('get', 'page', 'text'), ('bash', 'output'), ('read', 'file'))
    """
    return tuple(word.lower() for word in _WORDS.findall(tool.rpartition("__")[2] or tool))


@lru_cache(maxsize=4096)
def role_of_name(tool: str) -> Role | None:
    """The role that a tool's name tells; None for a shell, whose command tells.

    >>> [role_of_name(t).value for t in ("get_order", "str_replace", "job_status", "wait", "scroll", "Task")]
    ['look', 'change', 'poll', 'wait', 'move', 'other']
    >>> [role_of_name(t).value for t in ("get_api_key", "set_price", "get_price", "send_keys", "think")]
    ['look', 'change', 'poll', 'move', 'think']
    >>> role_of_name("run_shell_command") is None
    True
    """
    found = set(words_of(tool))
    verb = _role_of_verb(words_of(tool))
    if found & _WAITS:
        return Role.WAIT
    if found & _KEYS and found & _PRESSES:
        return Role.MOVE
    if verb is Role.CHANGE:
        return verb
    if (found & _POLLS and "git" not in found) or (found & _ASKS and found & _POLLED_LISTS):
        return Role.POLL
    if found & _SHELLS:
        return None
    return verb or Role.OTHER


def takes_program(tool: str, arguments: Json) -> bool:
    """Whether a tool takes a text in a language of its own, with which all can be done: shells, databases.

    >>> takes_program("bash", {"command": "ls"}), takes_program("run_query", {"sql": "select 1"})
    (True, True)
    >>> takes_program("search", {"query": "till totals"}), takes_program("read_file", {"path": "a b.txt"})
    (False, False)
    """
    if role_of_name(tool) is None:
        return True
    if not isinstance(arguments, Mapping):
        return False
    for name in _PROGRAMS:
        value = arguments.get(name)
        if isinstance(value, str) and (name != "query" or _STATEMENT.match(value) is not None):
            return " " in value
    return False


def role_of(tool: str, arguments: Json) -> Role:
    """What this call is for.

    >>> [role_of("bash", {"command": c}).value for c in ("ls -la", "sed -i s/a/b/ f", "python a.py")]
    ['look', 'change', 'other']
    >>> role_of("write_stdin", {"chars": ""}).value, role_of("str_replace_editor", {"command": "view"}).value
    ('poll', 'look')
    """
    role = role_of_name(tool)
    if role is None:
        command = _command(arguments)
        return Role.OTHER if command is None else role_of_command(command)
    if "stdin" in words_of(tool):
        command = _command(arguments)
        return Role.POLL if command is not None and not command.strip() else role
    if role in (Role.CHANGE, Role.OTHER) and isinstance(arguments, Mapping):
        return _role_of_operation(arguments) or role
    return role


def _role_of_verb(names: tuple[str, ...]) -> Role | None:
    """The role that the first telling word has."""
    for name in names:
        if name in _LOOKS:
            return Role.LOOK
        if name in _CHANGES:
            return Role.CHANGE
        if name in _MOVES:
            return Role.MOVE
        if name in _THINKS:
            return Role.THINK
    return None


def _role_of_operation(arguments: Mapping[str, Json]) -> Role | None:
    """The role that an argument tells, when one tool does several things."""
    for key in _OPERATIONS:
        operation = arguments.get(key)
        if isinstance(operation, str) and operation:
            return _role_of_verb(words_of(operation)) if len(operation) < 24 else None  # noqa: PLR2004 - the shell, its -c, the script - a verb
    return None


def _command(arguments: Json) -> str | None:
    """The command line of a shell's arguments."""
    if isinstance(arguments, str):
        return arguments
    if not isinstance(arguments, Mapping):
        return None
    for key in _COMMANDS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            script = value[2:] if len(value) > 2 and value[1] in ("-c", "-lc") else value  # noqa: PLR2004 - the shell, its -c, the script
            return " ".join(map(str, script))
    return None
