"""Which tools a model was offered, and how they are defined, in every spelling that was seen.

A text that was read before costs its hash: definitions repeat with every call of a conversation.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from collector.conventions import spellings as say
from collector.conventions.values import parse
from collector.definitions import define, together
from collector.step import Json, ToolDefinition, ToolDefinitions

MAX_OFFERED: Final = 256
MAX_TEXTS: Final = 512  # that are remembered, with what was read out of them
MAX_CHARS: Final = 4 * 1024**2  # of all texts that are remembered
MAX_DEPTH: Final = 8  # lists in lists, texts in texts
_LISTS: Final = ("functionDeclarations", "function_declarations", "function_tools", "tools")
_INSIDE: Final = ("function", "toolSpec", "tool_spec", "data")
_SCHEMAS: Final = (
    "parameters", "inputSchema", "input_schema", "parameters_json_schema", "parametersJsonSchema",
    "args_schema", "json_schema",
)  # fmt: skip
_SCHEMA_WORDS: Final = frozenset({"properties", "additionalProperties", "$defs", "not"})  # of objects
_WRAPPED: Final = ("json", "jsonSchema")  # Bedrock's and Vercel's shell around a schema
_HOLDERS: Final = (
    "model_request_parameters", "llm.invocation_parameters", "invocation_params",
    "gcp.vertex.agent.llm_request", "haystack.agent.step.llm.input", "request_data", "response",
    "traceloop.entity.input", "input.value", "output.value",
)  # fmt: skip
_KEY: Final = re.compile(r'"(?:tools|function_tools)"\s*:\s*(?=\[)')
_MAX_KEYS: Final = 4  # places in one text where tools may be listed
_HEAD: Final = 160  # characters by which a list of tools is recognized as one that was seen before
_MESSAGES: Final = re.compile(
    r'\{"role":\s?"tool",\s?"content":\s?(?=\{"type":\s?"function",\s?"function":\s?\{"name")'
)
_NAME: Final = re.compile(r'\\?"name\\?"\s*:\s*\\?"([\w.:/-]{1,128})\\?"')
_FLAT: Final = re.compile(r"^llm\.(?:tools\.(\d+)\.tool|request\.functions\.(\d+))\.(\w+)$")
_FLAT_HEADS: Final = ("llm.tools.", "llm.request.functions.")
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Offered:
    """Names of the tools that a model was offered; their definitions where more than names was told."""

    names: tuple[str, ...] = ()
    definitions: ToolDefinitions | None = None


NOTHING: Final = Offered()
_Texts = tuple[str, ...]


class _Memory:
    """What was read out of recent texts, by their hashes: the texts themselves are not kept."""

    def __init__(self) -> None:
        self._read: OrderedDict[int, tuple[int, Offered]] = OrderedDict()
        self._chars = 0

    def of(self, texts: _Texts, read: Callable[[_Texts], Offered]) -> Offered:
        key = hash(texts)
        chars = sum(map(len, texts))
        seen = self._read.get(key)
        if seen is not None and seen[0] == chars:
            self._read.move_to_end(key)
            return seen[1]
        offered = read(texts)
        if seen is None:
            self._read[key] = (chars, offered)
            self._chars += chars
        while len(self._read) > MAX_TEXTS or (self._chars > MAX_CHARS and self._read):
            _, (gone, _) = self._read.popitem(last=False)
            self._chars -= gone
        return offered


_MEMORY: Final = _Memory()
_LISTED: Final[OrderedDict[str, str]] = OrderedDict()  # the list of tools that was read last, by its head


def offered_of(attributes: Mapping[str, str]) -> Offered:
    """Read what tools a span's attributes say were offered: by the best spelling, whole or spread."""
    raw = say.OFFERED.pick(attributes)
    if raw:
        offered = offered_by(raw)
        if offered.definitions is not None:
            return offered
        more = _spread(attributes) or _within(attributes)
        return more if more is not None and more.definitions is not None else offered
    return _spread(attributes) or _within(attributes) or NOTHING


def offered_by(raw: str) -> Offered:
    """Read one text of definitions, whatever its shape; of a text that is cut short only the names.

    >>> offered_by('[{"name": "f", "inputSchema": {"type": "object"}}]').definitions.tools["f"].parameters
    {'type': 'object'}
    >>> offered_by('["f", "g"]'), offered_by('[{"name": "f", "descr').names
    (Offered(names=('f', 'g'), definitions=None), ('f',))
    """
    return _MEMORY.of((raw,), _read_text)


def _read_text(texts: _Texts) -> Offered:
    (raw,) = texts
    value = parse(raw)
    if isinstance(value, str) and value[:1] in ("{", "["):
        return Offered(tuple(dict.fromkeys(_NAME.findall(value)))[:MAX_OFFERED])
    return _offered(list(_tools(value)), len(raw))


def _offered(tools: list[ToolDefinition], chars: int) -> Offered:
    tools = tools[:MAX_OFFERED]
    names = tuple(dict.fromkeys(tool.name for tool in tools))
    if not any(tool.description or tool.parameters is not None for tool in tools):
        return Offered(names)
    return Offered(names, together(tools, chars))


def _tools(value: Json, depth: int = 0) -> Iterator[ToolDefinition]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, str):
        if value[:1] not in ("{", "["):
            if value:
                yield define(value)
            return
        opened = parse(value)
        if not isinstance(opened, str):
            yield from _tools(opened, depth + 1)
    elif isinstance(value, list):
        for item in value:
            yield from _tools(item, depth + 1)
    elif isinstance(value, dict):
        yield from _tools_in(value, depth)


def _tools_in(value: Mapping[str, Json], depth: int) -> Iterator[ToolDefinition]:
    for key in _LISTS:
        if isinstance(value.get(key), list):
            yield from _tools(value[key], depth + 1)
            return
    inner = next((item for key in _INSIDE if isinstance(item := value.get(key), dict)), None)
    source = value if inner is None else inner
    name = source.get("name")
    if isinstance(name, str):
        if name:
            yield _tool(name, source, value)
        return
    for key, item in value.items():
        if isinstance(item, dict):
            yield _tool(key, item, item)


def _tool(name: str, source: Mapping[str, Json], around: Mapping[str, Json]) -> ToolDefinition:
    description = source.get("description")
    hints = around.get("annotations", source.get("annotations"))
    return _defined(
        name,
        description if isinstance(description, str) else "",
        _schema(source),
        hints if isinstance(hints, dict) else None,
    )


def _defined(
    name: str, description: str, parameters: Json, hints: Mapping[str, Json] | None = None
) -> ToolDefinition:
    try:
        return define(name, description, parameters, hints)
    except (TypeError, ValueError):  # numbers and texts that JSON has not, out of a Python repr
        return define(name)


def _schema(source: Mapping[str, Json]) -> Json:
    for key in _SCHEMAS:
        schema = source.get(key)
        if isinstance(schema, str) and schema[:1] == "{":
            schema = parse(schema)
        if isinstance(schema, dict):
            for shell in _WRAPPED:
                inner = schema.get(shell)
                if isinstance(inner, dict) and len(schema) <= len(_WRAPPED):
                    return inner
            return schema if _is_schema(schema) else {"type": "object", "properties": schema}
    return None


def _is_schema(schema: Mapping[str, Json]) -> bool:
    """Whether it is a schema, and not only the properties of one (DSPy)."""
    return (
        not schema
        or not all(isinstance(item, dict) for item in schema.values())
        or not _SCHEMA_WORDS.isdisjoint(schema)
    )


def _spread(attributes: Mapping[str, str]) -> Offered | None:
    """Definitions that are spread over attributes: OpenInference's `llm.tools.N`, Traceloop's functions."""
    flat = [
        text for item in attributes.items() if item[0].startswith(_FLAT_HEADS) and item[1] for text in item
    ]
    return _MEMORY.of(tuple(flat), _read_spread) if flat else None


def _read_spread(texts: _Texts) -> Offered:
    tools: dict[int, dict[str, str]] = {}
    for key, value in zip(texts[::2], texts[1::2], strict=True):
        match = _FLAT.match(key)
        if match is not None:
            tools.setdefault(int(match[1] or match[2]), {})[match[3]] = value
    found = [tool for number in sorted(tools) for tool in _one_of(tools[number])]
    return _offered(found, sum(map(len, texts[1::2])))


def _one_of(fields: Mapping[str, str]) -> Iterator[ToolDefinition]:
    raw = fields.get("json_schema") or fields.get("parameters") or fields.get("input_schema") or ""
    name = fields.get("name", "")
    schema = parse(raw) if raw else None
    if name:
        inside = isinstance(schema, dict) and ("function" in schema or "name" in schema)
        full = list(_tools(schema)) if inside else []
        plain = schema if isinstance(schema, dict) else None
        yield full[0] if full else _defined(name, fields.get("description", ""), plain)
    elif isinstance(schema, dict):
        yield from _tools(schema)
    elif raw:
        yield from _read_names(raw)


def _read_names(raw: str) -> Iterator[ToolDefinition]:
    yield from (define(name) for name in _NAME.findall(raw)[:1])


def _within(attributes: Mapping[str, str]) -> Offered | None:
    """Definitions within the request or response that was recorded whole, where nothing else has them."""
    for key in _HOLDERS:
        text = attributes.get(key)
        if text and 'tools"' in text:
            offered = tools_in(text)
            if offered is not None:
                return offered
    text = attributes.get("langfuse.observation.input")
    return _among_messages(text) if text else None


def tools_in(text: str) -> Offered | None:
    """Find the list of tools in a request that is one JSON text, without reading the rest of it."""
    for count, match in enumerate(_KEY.finditer(text)):
        if count == _MAX_KEYS:
            return None
        listed = _list_at(text, match.end())
        if listed:
            offered = offered_by(listed)
            if offered.definitions is not None:
                return offered
    return None


def _list_at(text: str, start: int) -> str:
    head = text[start : start + _HEAD]
    before = _LISTED.get(head)
    if before is not None and text.startswith(before, start):
        return before
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return ""
    if not value or not isinstance(value[0], dict):
        return ""
    _LISTED[head] = text[start:end]
    if len(_LISTED) > MAX_TEXTS:
        _LISTED.popitem(last=False)
    return _LISTED[head]


def _among_messages(text: str) -> Offered | None:
    """Langfuse's callback writes definitions as messages of role `tool`, after the prompt's own."""
    first = _MESSAGES.search(text)
    return None if first is None else _MEMORY.of((text[first.start() :],), _read_messages)


def _read_messages(texts: _Texts) -> Offered:
    (text,) = texts
    messages = parse(f"[{text}")
    if not isinstance(messages, list):
        return NOTHING
    tools = [each.get("content") for each in messages if isinstance(each, dict)]
    return _offered(list(_tools(tools)), len(text))
