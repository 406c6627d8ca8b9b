"""Definitions of tools, told apart by hash: what was offered to models, each distinct set once in memory.

Sets of definitions repeat with every model call and may be long. Equal ones are one object as long as
somebody holds it; a checkpoint names it by its key and writes its content once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final
from weakref import WeakValueDictionary

import orjson

from collector.step import Json, ToolDefinition, ToolDefinitions

_HASH_BYTES: Final = 8
_ALIVE: Final[WeakValueDictionary[str, ToolDefinitions]] = WeakValueDictionary()


def define(
    name: str, description: str = "", parameters: Json = None, hints: Mapping[str, Json] | None = None
) -> ToolDefinition:
    """Make a tool's definition; `hints` are MCP's annotations of it (`readOnlyHint`, ...).

    Raises TypeError for parameters that JSON cannot write.

    >>> one = define("f", "Do.", {"type": "object", "properties": {}})
    >>> one.hash == define("f", "Do.", {"properties": {}, "type": "object"}).hash, len(one.hash)
    (True, 16)
    """
    told = hints or {}
    return ToolDefinition(
        name,
        description,
        parameters,
        _flag(told, "readOnlyHint", "read_only_hint", "readOnly"),
        _flag(told, "destructiveHint", "destructive_hint", "destructive"),
        _flag(told, "idempotentHint", "idempotent_hint", "idempotent"),
        _digest(orjson.dumps([name, description, parameters], option=orjson.OPT_SORT_KEYS)),
    )


def together(tools: Iterable[ToolDefinition], chars: int) -> ToolDefinitions:
    """All tools that were offered at once, of a text of `chars` characters. Of two of one name the first."""
    by_name: dict[str, ToolDefinition] = {}
    for tool in tools:
        by_name.setdefault(tool.name, tool)
    whole = "\n".join(by_name[name].hash for name in sorted(by_name))
    return _the_one(ToolDefinitions(_digest(whole.encode()), by_name, chars))


def key_of(definitions: ToolDefinitions) -> str:
    """What a checkpoint calls them."""
    return f"{definitions.hash}.{definitions.chars}"


def known(key: str) -> ToolDefinitions | None:
    """The definitions of a key, None when nobody holds them any more."""
    return _ALIVE.get(key)


def restored(digest: str, chars: int, tools: Iterable[ToolDefinition]) -> ToolDefinitions:
    """Put together again what was taken apart: hash, length and tools of what `together` made."""
    return _the_one(ToolDefinitions(digest, {tool.name: tool for tool in tools}, chars))


def _the_one(definitions: ToolDefinitions) -> ToolDefinitions:
    return _ALIVE.setdefault(key_of(definitions), definitions)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=_HASH_BYTES).hexdigest()


def _flag(hints: Mapping[str, Json], *keys: str) -> bool | None:
    return next((value for key in keys if isinstance(value := hints.get(key), bool)), None)
