"""What tools an agent was offered, kept small enough for a checkpoint, and whether a call fits the offer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import jsonschema_rs
import orjson

from detectors.tool_role import words_of

if TYPE_CHECKING:
    from collector.step import Json, Step

TOOLS_KEPT: Final = 256
SCHEMA_BYTES: Final = 24 * 1024

_MESSAGE_CHARS = 160
_SEPARATORS = re.compile(r"__|[./:]")


@dataclass(frozen=True, slots=True)
class Offer:
    """Tools by name with the JSON Schema of their arguments as text; empty where it is not known or too long.

    `hash` is that of the definitions, or of the names when only those were recorded.
    """

    hash: str
    schemas: Mapping[str, str] = field(default_factory=dict)

    def json(self) -> Json:
        """The offer for a checkpoint."""
        return [self.hash, dict(self.schemas)]

    @staticmethod
    def load(state: Any) -> Offer:  # noqa: ANN401 - JSON that `json` wrote
        """Read what `json` wrote."""
        return Offer(state[0], dict(state[1]))


@dataclass(frozen=True, slots=True)
class Misfit:
    """How arguments break a schema: where (a path, empty for the whole), and what is wrong."""

    path: str
    what: str


def offer_of(step: Step) -> Offer | None:
    """What a model call or agent run offered; None when nothing about that was recorded."""
    definitions = step.definitions
    if definitions is not None and definitions.tools:
        return Offer(definitions.hash, _bounded(definitions.tools.items()))
    if step.offered_tools:
        names = step.offered_tools[:TOOLS_KEPT]
        return Offer("names:" + ",".join(names)[:200], dict.fromkeys(names, ""))
    return None


def _bounded(tools: Iterable[tuple[str, Any]]) -> dict[str, str]:
    """Schemas as text until there is no room for more; the names of all others."""
    schemas: dict[str, str] = {}
    room = SCHEMA_BYTES
    for name, tool in tools:
        if len(schemas) == TOOLS_KEPT:
            break
        text = "" if tool.parameters is None else orjson.dumps(tool.parameters).decode()
        if len(text) > room:
            text = ""
        room -= len(text)
        schemas[name] = text
    return schemas


def tool_in(offer: Offer, tool: str) -> str | None:
    """The name under which a tool was offered; None when it was not.

    Frameworks spell one tool several ways: with the server's name in front, in another case.

    >>> tool_in(Offer("h", {"mcp__files__readFile": ""}), "read_file")
    'mcp__files__readFile'
    >>> tool_in(Offer("h", {"search": ""}), "web_search") is None
    True
    """
    if tool in offer.schemas:
        return tool
    own = _own_name(tool)
    return next((name for name in offer.schemas if _own_name(name) == own), None)


@lru_cache(maxsize=4096)
def _own_name(tool: str) -> tuple[str, ...]:
    """The words of a tool's name without its server."""
    return words_of(_SEPARATORS.split(tool)[-1]) or (tool,)


def misfit(schema: str, arguments: Json) -> Misfit | None:
    """How arguments break a schema; None when they fit, or when the schema cannot be read.

    A parameter that no property names breaks a schema unless it says that others are welcome: a model that
    invents names does not do so on purpose.

    >>> schema = '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
    >>> misfit(schema, {"n": 3}), misfit(schema, {"n": "x"}).path, misfit(schema, {"n": 1, "m": 2}).what
    (None, 'n', 'unknown parameter m')
    """
    known = _known(schema)
    if known is None:
        return None
    validator, names = known
    if names is not None and isinstance(arguments, Mapping):
        unknown = next((name for name in arguments if name not in names), None)
        if unknown is not None:
            return Misfit(unknown[:_MESSAGE_CHARS], f"unknown parameter {unknown}"[:_MESSAGE_CHARS])
    error = next(validator.iter_errors(arguments), None)
    if error is None:
        return None
    path = ".".join(str(part) for part in error.instance_path)
    return Misfit(path[:_MESSAGE_CHARS], error.message[:_MESSAGE_CHARS])


@lru_cache(maxsize=512)
def _known(schema: str) -> tuple[Any, frozenset[str] | None] | None:
    """A validator and, when only these are welcome, the names of the parameters."""
    try:
        read: Any = orjson.loads(schema)
        validator = jsonschema_rs.validator_for(read)
    except Exception:  # noqa: BLE001 - a schema of any shape; the library raises several kinds
        return None
    names: frozenset[str] | None = None
    if isinstance(read, dict) and isinstance(read.get("properties"), dict):
        closed = read.get("additionalProperties", False) is False and not (
            read.keys() & {"patternProperties", "anyOf", "oneOf", "allOf", "$ref"}
        )
        names = frozenset(read["properties"]) if closed else None
    return validator, names
