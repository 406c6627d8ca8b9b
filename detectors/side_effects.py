"""What a call does to the world: reads, writes, or does what must never be done twice; and what undoes it.

Three levels, READ, WRITE and CRITICAL: only a READ may be repeated without a thought. What a team says of its
tools goes before what the tool's own definition says (MCP annotations), and both before what its name
suggests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from detectors.role import words
from detectors.signature import normal_name
from detectors.tool_role import words_of

if TYPE_CHECKING:
    from collector.step import Json, ToolDefinition
    from detectors.tool_policy import ToolPolicy

_EFFECTS = words(
    """
    send pay order charge transfer book purchase buy refund publish submit invite reply post tweet email mail
    notify schedule withdraw deposit trade sell ship dispatch donate reserve checkout forward
    """
)
_MAKES = words("create add open register issue")
_MADE = words(
    """
    order ticket issue payment invoice booking reservation event meeting appointment comment message post
    charge refund transfer subscription user account case incident
    """
)
_UNDO = {
    "cancel": words("order book reserve schedule purchase buy create submit subscribe register checkout"),
    "delete": words("create add post publish register"),
    "remove": words("add create"),
    "close": words("open create"),
    "stop": words("start"),
    "disable": words("enable"),
    "revoke": words("grant issue"),
    "refund": words("charge pay purchase buy"),
    "unpublish": words("publish"),
    "unsubscribe": words("subscribe"),
    "revert": words("apply commit merge publish"),
    "recall": words("send"),
    "return": words("order purchase buy"),
}
"""Verbs that take back what others did."""
_LOOKS = words("get list read search find fetch show view check describe query preview draft status history")
_KEYS = words("idempotencykey clienttoken clientrequestid dedupid requestid clientmessageid clientmsgid")


class Level(StrEnum):
    """What a call does to the world."""

    READ = "read"
    WRITE = "write"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True)
class Effect:
    """A call's level, and who says so: `configured`, `annotated`, or `inferred` from the tool's name."""

    level: Level
    source: str


READS = Effect(Level.READ, "inferred")


def effect_of(tool: str, policy: ToolPolicy, definition: ToolDefinition | None = None) -> Effect:
    """What a call of `tool` does.

    >>> from detectors.tool_policy import DEFAULT_POLICY, ToolPolicy
    >>> effect_of("send_email", DEFAULT_POLICY), effect_of("list_orders", DEFAULT_POLICY).level.value
    (Effect(level=<Level.WRITE: 'write'>, source='inferred'), 'read')
    >>> effect_of("wire", ToolPolicy(critical=("wire",)))
    Effect(level=<Level.CRITICAL: 'critical'>, source='configured')
    """
    if tool in policy.critical:
        return Effect(Level.CRITICAL, "configured")
    if tool in policy.write:
        return Effect(Level.WRITE, "configured")
    if tool in policy.read:
        return Effect(Level.READ, "configured")
    if definition is not None:
        if definition.read_only or definition.idempotent:
            return Effect(Level.READ, "annotated")
        if definition.destructive:
            return Effect(Level.WRITE, "annotated")
    return _inferred(tool)


@lru_cache(maxsize=4096)
def _inferred(tool: str) -> Effect:
    """What the tool's name suggests: only verbs whose repetition is felt outside count as writes.

    Edits of files and settings are not among them: done twice they are as done once.
    """
    names = words_of(tool)
    for position, name in enumerate(names):
        if name in _LOOKS:
            return READS
        if name in _EFFECTS or (name in _MAKES and _MADE & set(names[position + 1 :])):
            return Effect(Level.WRITE, "inferred")
    return READS


@lru_cache(maxsize=4096)
def undoes(tool: str, other: str) -> bool:
    """Whether a call of `tool` takes back what a call of `other` did, by their names.

    >>> undoes("cancel_order", "place_order"), undoes("delete_event", "create_event"), undoes("close", "get")
    (True, True, False)
    """
    if tool == other:
        return False
    mine, theirs = words_of(tool), words_of(other)
    for verb in mine:
        done = _UNDO.get(verb)
        if done is not None:
            about = set(mine) - {verb}
            return bool(done & set(theirs)) and (not about or bool(about & set(theirs)))
    return False


def idempotency_key(arguments: Json) -> str | None:
    """The key that makes a repeat safe, where a call carries one.

    >>> idempotency_key({"amount": 3, "idempotencyKey": "a1"}), idempotency_key({"amount": 3})
    ('a1', None)
    """
    if not isinstance(arguments, Mapping):
        return None
    for name, value in arguments.items():
        if normal_name(name) in _KEYS and isinstance(value, (str, int)) and value != "":
            return str(value)
    return None
