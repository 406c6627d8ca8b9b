"""Values as instrumentations pack them: JSON in JSON, Python reprs, envelopes around the content."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson

from collector.step import Json

BARE: Final = "$value"
MAX_LITERAL: Final = 20_000  # characters of a Python repr that are parsed; its parser is slow
MAX_DEPTH: Final = 6  # envelopes in envelopes
MAX_TEXT: Final = 65_536  # characters of a result that are kept
MAX_LEVELS: Final = 100  # levels of lists and objects that are read; what is deeper stays a text
MAX_INTEGER: Final = 2**63 - 1  # larger ones are no counts, and fit neither checkpoint nor column
_MILLISECOND: Final = 1_000_000

_CONTEXT_KEYS: Final = frozenset({
    "ctx", "context", "run_context", "tool_context", "cancellation_token", "config", "callbacks",
    "run_manager",
    "self",
})  # fmt: skip
_CALL_KEYS: Final = frozenset({
    "args", "kwargs", "sanitize_inputs_outputs", "self", "cancellation_token", "call_id", "tool_call_id",
})  # fmt: skip
_ENVELOPE_KEYS: Final = frozenset({"input_str", "tags", "metadata", "kwargs", "run_id"})
_NAMED_KEYS: Final = frozenset({
    "tool_name", "toolName", "tool", "name", "function", "arguments", "args", "input", "parameters", "id",
    "call_id", "callId", "tool_call_id", "toolCallId", "type", "index", "caller", "_meta", "meta", "task",
    "plugin_name", "plugin", "prompt_id", "isClientInitiated",
})  # fmt: skip
_ARGUMENT_KEYS: Final = ("arguments", "args", "input", "parameters")
_NAME_KEYS: Final = ("tool_name", "toolName", "name", "tool", "function")
_REPR: Final = re.compile(r"^(<.+ object at 0x[0-9a-f]+>|[A-Z]\w*(Context|Token|Wrapper)\w*\()", re.DOTALL)
_MESSAGE_REPR: Final = re.compile(
    r"""^(?:ToolMessage\()?content=(?P<content>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")(?P<rest>.*)$""", re.DOTALL
)
_REPR_FIELD: Final = re.compile(r"\b(tool_call_id|status)='([^']*)'")
_FAILURE_TEXT: Final = re.compile(
    r"^\s*(?:\[?(?:tool )?error\]?\s*(?::|\s-\s)"
    r"|error (?:executing|calling|invoking|running|in) (?:the )?(?:tool|function)"
    r"|(?:tool|function) (?:execution|call|invocation) (?:failed|error)"
    r"|an error occurred (?:while|when) (?:running|executing|calling) (?:the )?(?:tool|function)"
    r"|traceback \(most recent call last\)"
    r"|(?:runtime|value|type|key|name|attribute|index|os|io|permission|filenotfound|timeout|connection|import"
    r"|assertion|zerodivision)error\b\s*[:(]"
    r"|unsupported call:|unknown tool\b|<tool_use_error>|<error>"
    r"|exit code:? [1-9]\d*)",
    re.IGNORECASE,
)
_EXITED: Final = re.compile(r"^process exited with code [1-9]\d*", re.IGNORECASE | re.MULTILINE)
_EXIT_HEAD: Final = 600  # characters of a shell tool's own header
_EXIT_CODE_TAIL: Final = re.compile(
    r"(?:^|completed with |exited with )(?:exit code|exit status|exitcode|code):? ([1-9]\d*)>?\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_DENIAL: Final = re.compile(
    r"^\s*(?:command blocked by pretooluse hook|tool call blocked by|blocked by (?:a )?(?:pretooluse )?hook"
    r"|the user doesn't want to (?:proceed|take this action)|user rejected)",
    re.IGNORECASE,
)
_OUR_DENIAL: Final = "Stopped by Recloser: "
_OUR_HEAD: Final = 160  # characters in which it stands, behind what a framework or an exception put before it
_EXIT_KEYS: Final = ("exit_code", "exitCode", "exit", "returncode", "return_code")
_FAILED_STATUS: Final = frozenset({"error", "failed", "failure", "errored"})


def parse(raw: str) -> Json:
    r"""Read JSON, else a Python literal, else the text itself. JSON within a JSON string is opened once.

    >>> parse('{"a": 1}'), parse("{'a': True}"), parse('"\\"x\\""'), parse("Paris")
    ({'a': 1}, {'a': True}, 'x', 'Paris')
    """
    value = _parse_once(raw)
    if isinstance(value, str) and value is not raw and value[:1] in ("{", "[", '"'):
        return _parse_once(value)
    return value


def _parse_once(raw: str) -> Json:
    text = raw.strip()
    if not text:
        return raw
    try:
        return _json(text)
    except ValueError:
        pass
    if text[0] in "{[(" and len(text) <= MAX_LITERAL:
        try:
            return _bounded(_plain(ast.literal_eval(text)))
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
            pass
    return raw


def parse_repr(text: str) -> Json:
    """Read the repr of Python objects; a call becomes a mapping of its keywords. Else the text itself.

    >>> parse_repr("ToolCall(name='f', role=<Role.USER: 'user'>, arguments={'x': -1})")
    {'_class': 'ToolCall', 'name': 'f', 'role': 'user', 'arguments': {'x': -1}}
    """
    if len(text) > MAX_LITERAL:
        return text
    try:
        return _bounded(_from_tree(ast.parse(_ENUM.sub(r"\1", text), mode="eval").body))
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


_ENUM: Final = re.compile(r"<[\w.]+: ('[^']*'|\d+)>")


def _from_tree(node: ast.expr) -> Json:
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        made: dict[str, Json] = {"_class": name}
        made.update({each.arg: _from_tree(each.value) for each in node.keywords if each.arg})
        return made
    if isinstance(node, ast.Dict):
        return {
            str(_from_tree(key)): _from_tree(item)
            for key, item in zip(node.keys, node.values, strict=True)
            if key
        }
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_from_tree(item) for item in node.elts]
    if isinstance(node, ast.Name):
        return node.id
    return _plain(ast.literal_eval(node))


def _json(text: str) -> Json:
    value: Json = orjson.loads(text)
    return _bounded(value) if text.count("[") + text.count("{") > MAX_LEVELS else value


def _bounded(value: Json) -> Json:
    """The value itself. Raises ValueError when it has too many levels to be kept and written."""
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [
            item
            for each in level
            if isinstance(each, list | dict)
            for item in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return value
    raise ValueError("too many levels")


def _plain(value: object) -> Json:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode()  # half surrogate pairs
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(_plain(str(key))): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    return repr(value)


def parse_object(raw: str) -> Mapping[str, Json]:
    """Read a JSON object (or a Python dict literal); anything else is the empty mapping."""
    value = parse(raw)
    return value if isinstance(value, dict) else {}


def unquote(raw: str) -> str:
    """Open a text that was JSON-encoded once more than needed.

    >>> unquote('"call_1"'), unquote("call_1")
    ('call_1', 'call_1')
    """
    if len(raw) > 1 and raw[0] == raw[-1] == '"':
        try:
            value = orjson.loads(raw)
        except ValueError:
            return raw
        return value if isinstance(value, str) else raw
    return raw


def arguments_of(raw: str, tool: str = "") -> Json:
    """Read a tool call's arguments out of what an instrumentation recorded as its input.

    None when that holds none (`""`, `"N/A"`, `"null"`). A bare value is `{"$value": value}`: its parameter's
    name is not known. Envelopes are opened: `{"inputs": ..., "input_str": ...}`,
    `{"args": [], "kwargs": {}}`, `{"tool_name": ..., "arguments": ...}`, a model's own tool call part.

    >>> arguments_of('{"args": [], "kwargs": {"city": "Paris"}}')
    {'city': 'Paris'}
    >>> arguments_of('{"tool_name": "f", "arguments": {"x": 1}}', "f")
    {'x': 1}
    >>> arguments_of("Paris")
    {'$value': 'Paris'}
    """
    if not raw or raw in {
        "N/A",
        "null",
        "None",
        "undefined",
        '""',
        "[REDACTED]",
        "<REDACTED>",
        "__REDACTED__",
    }:
        return None
    return open_arguments(parse(raw), tool)


def open_arguments(value: Json, tool: str = "") -> Json:
    """Open the envelopes around already parsed arguments; see `arguments_of`."""
    for _ in range(MAX_DEPTH):
        if isinstance(value, str):
            inner = parse(value)
            if not isinstance(inner, dict):
                return {BARE: value} if value else None
            value = inner
        if not isinstance(value, dict):
            return None if value is None else {BARE: value}
        opened = _opened(value, tool)
        if opened is value:
            return _without_context(value)
        value = opened
    return value


def _opened(value: Mapping[str, Json], tool: str) -> Json:
    keys = value.keys()
    if "inputs" in keys and keys - {"inputs"} <= _ENVELOPE_KEYS and len(keys) > 1:
        inputs = value["inputs"]
        return inputs if isinstance(inputs, dict) else value.get("input_str")
    if "input_str" in keys and keys <= _ENVELOPE_KEYS:
        return value["input_str"]
    if ("kwargs" in keys or "args" in keys) and keys <= _CALL_KEYS:
        return _called(value)
    if keys == {"input", "options"} and isinstance(value["input"], dict):
        return value["input"]
    params = value.get("params")
    if isinstance(params, dict) and "method" in keys and "arguments" in params:
        return cast("Json", params["arguments"])
    return _named(value, tool)


def _called(value: Mapping[str, Json]) -> Json:
    positional, named = value.get("args"), value.get("kwargs")
    if isinstance(positional, dict):
        return positional if not named else {**positional, **(named if isinstance(named, dict) else {})}
    rest = [item for item in positional if not _is_context(item)] if isinstance(positional, list) else []
    if isinstance(named, dict) and (named or not rest):
        return named if not rest else {**named, "$args": rest}
    if len(rest) == 1 and isinstance(rest[0], dict):
        return rest[0]
    if isinstance(named, str) and named:
        return named
    if not rest:
        return {} if isinstance(positional, list) else value
    return {BARE: rest[0] if len(rest) == 1 else rest}


def _named(value: Mapping[str, Json], tool: str) -> Json:
    if not value.keys() <= _NAMED_KEYS:
        return value
    for key in _ARGUMENT_KEYS:
        inner = value.get(key)
        if isinstance(inner, dict | str) and (isinstance(inner, dict) or inner[:1] == "{"):
            for name in _NAME_KEYS:
                told = value.get(name)
                if isinstance(told, dict):
                    told = told.get("name")
                if name in value and (
                    name in ("tool_name", "toolName") or told == tool or _same_tool(told, tool)
                ):
                    return inner
    return value


def _same_tool(told: Json, tool: str) -> bool:
    return (
        isinstance(told, str) and bool(told) and (tool.endswith(told) or told.endswith(tool)) and bool(tool)
    )


def _is_context(item: Json) -> bool:
    return isinstance(item, str) and _REPR.match(item) is not None


def _without_context(value: Mapping[str, Json]) -> Mapping[str, Json]:
    extra = [
        key for key, item in value.items() if _is_context(item) or (key in _CONTEXT_KEYS and item is None)
    ]
    return {key: item for key, item in value.items() if key not in extra} if extra else value


@dataclass(frozen=True, slots=True)
class Brought:
    """A tool's result: its text, and what its envelope or content tells. `failed` None = nothing told."""

    text: str | None
    failed: bool | None = None
    denied: bool = False
    call_id: str = ""
    error: str | None = None


NOTHING: Final = Brought(None)


def result_of(raw: str) -> Brought:
    """Read a tool's result out of what was recorded as its output.

    Opens serialized messages (LangChain, MCP, ADK, Strands, LlamaIndex, ...) down to the content the model
    saw, and looks for failures that only the content tells.

    >>> result_of('{"type": "tool", "data": {"content": "x", "tool_call_id": "c", "status": "error"}}')
    Brought(text='x', failed=True, denied=False, call_id='c', error='x')
    >>> result_of("Process exited with code 2").failed
    True
    """
    if not raw or raw == "N/A":
        return NOTHING
    head = raw.lstrip()[:1]
    if head not in ("{", "[", '"', "("):
        return _from_text(raw)
    value = parse(raw)
    if isinstance(value, str):
        return _from_text(value)
    return brought(value, raw)


def _from_text(text: str) -> Brought:
    match = _MESSAGE_REPR.match(text) if text.startswith(("content=", "ToolMessage(content=")) else None
    if match is None:
        return told_by_text(text[:MAX_TEXT])
    fields = dict(_REPR_FIELD.findall(match["rest"]))
    content = parse("[" + match["content"] + "]")
    inner = str(content[0]) if isinstance(content, list) and content else match["content"]
    seen = told_by_text(inner[:MAX_TEXT])
    failed = True if fields.get("status") == "error" else seen.failed
    return Brought(
        seen.text, failed, seen.denied, fields.get("tool_call_id", ""), seen.text if failed else None
    )


def told_by_text(text: str) -> Brought:
    """Judge a plain text that a tool brought back; a text that is a JSON object is looked into."""
    if text[:1] == "{":
        value = parse(text)
        if isinstance(value, dict):
            failed, error = _told_by_object(value)
            if failed is not None:
                return Brought(text, failed, error=error)
    if is_denial(text):
        return Brought(text, denied=True, error=text[:500])
    if _FAILURE_TEXT.match(text) or _exited_badly(text):
        return Brought(text, failed=True, error=text[:500])
    return Brought(text)


def is_denial(text: str) -> bool:
    """Tell whether a text says that a hook or a breaker refused the call: it never ran.

    >>> is_denial("CallDenied: Stopped by Recloser: the tool 'x' was called 6 times"), is_denial("stopped")
    (True, False)
    """
    return _OUR_DENIAL in text[:_OUR_HEAD] or _DENIAL.match(text) is not None


def _exited_badly(text: str) -> bool:
    head, tail = text[:_EXIT_HEAD], text[-200:]
    if "rocess exited with code" in head and _EXITED.search(head):
        return True
    return ("code" in tail or "status" in tail or "Code" in tail) and _EXIT_CODE_TAIL.search(tail) is not None


def brought(value: Json, raw: str | None = None) -> Brought:
    """Read an already parsed result; see `result_of`."""
    failed: bool | None = None
    error: str | None = None
    call_id = ""
    opened = value
    for _ in range(MAX_DEPTH):
        if isinstance(opened, dict):
            told, message = _told_by_object(opened)
            if told is not None and failed is not True:
                failed, error = told, message
            call_id = call_id or _text_at(
                opened, "tool_call_id", "toolCallId", "toolUseId", "call_id", "tool_use_id"
            )
            inner = _result_inside(opened)
        elif isinstance(opened, list):
            inner = _joined(opened)
        else:
            break
        if inner is _NONE:
            break
        opened = cast("Json", inner)
    if isinstance(opened, str):
        seen = told_by_text(opened[:MAX_TEXT])
        text: str | None = seen.text
        failed = failed if failed is not None else seen.failed
        error = error or seen.error
        denied = seen.denied
    else:
        text, denied = (raw if opened is value and raw is not None else dump(opened))[:MAX_TEXT], False
    return Brought(text, failed, denied, call_id, (error or text) if failed else error)


_NONE: Final = object()


def _result_inside(value: Mapping[str, Json]) -> Json | object:  # noqa: PLR0911 - one line an envelope
    keys = value.keys()
    if "kwargs" in keys and ("lc" in keys or keys <= {"output", "kwargs"}) and "output" not in keys:
        return value["kwargs"]
    if "data" in keys and value.get("type") in ("tool", "ai", "human"):
        return value["data"]
    if "output" in keys and (keys <= {"output", "kwargs", "tags", "metadata", "color", "run_id", "error"}):
        return value["output"]
    if "content" in keys and _is_message(value):
        return value["content"]
    if "response" in keys and keys <= {"id", "name", "response", "will_continue", "scheduling", "parts"}:
        return value["response"]
    if "toolResult" in keys and len(keys) == 1:
        return value["toolResult"]
    if "result" in keys and keys <= {"result", "is_error", "isError", "error", "status"}:
        return value["result"]
    if "blocks" in keys and "tool_name" in keys:
        return value["blocks"]
    if "update" in keys and "messages" in (update if isinstance(update := value["update"], dict) else {}):
        messages = update["messages"] if isinstance(update, dict) else None
        return messages[-1] if isinstance(messages, list) and messages else _NONE
    return _NONE


def _is_message(value: Mapping[str, Json]) -> bool:
    return any(
        key in value
        for key in (
            "tool_call_id", "toolUseId", "isError", "is_error", "tool_use_id", "raw_output", "call_id",
            "additional_kwargs", "structuredContent", "structured_content",
        )
    ) or value.get("type") in ("tool", "tool_result") or value.get("role") == "tool"  # fmt: skip


def _joined(parts: list[Json]) -> Json | object:
    if len(parts) == 1 and isinstance(parts[0], dict):
        part = parts[0]
        if "toolResult" in part:
            return cast("Json", part["toolResult"])
        if part.keys() == {"json"}:
            return cast("Json", part["json"])
        if "tool_call_id" in part or "tool_use_id" in part:
            return part
    texts: list[str] = []
    for each in parts:
        if not isinstance(each, dict):
            return _NONE
        text = each.get("text", each.get("content") if each.get("type") in ("text", "output_text") else None)
        if not isinstance(text, str):
            return _NONE
        texts.append(text)
    return "\n".join(texts) if texts else _NONE


def _told_by_object(value: Mapping[str, Json]) -> tuple[bool | None, str | None]:  # noqa: PLR0911, C901 - one rule a line, first match wins
    for key in ("is_error", "isError"):
        flag = value.get(key)
        if isinstance(flag, bool):
            return flag, None
    metadata = value.get("metadata")
    for holder in (value, metadata) if isinstance(metadata, dict) else (value,):
        if holder is not value and (holder.get("isError") is True or holder.get("is_error") is True):
            return True, _text_at(value, "output", "error") or None
        for key in _EXIT_KEYS:
            code = holder.get(key)
            if isinstance(code, int) and not isinstance(code, bool) and (code != 0 or key != "exit"):
                return (
                    (True, _text_at(value, "output", "stderr", "error") or f"exit code {code}")
                    if code
                    else (False, None)
                )
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _FAILED_STATUS:
        return True, _text_at(value, "error", "error_message", "message", "content") or None
    error = value.get("error")
    if error and error not in ("none", "null", "None"):
        return True, error if isinstance(error, str) else _message_in(error)
    if value.get("success") is False or value.get("ok") is False:
        return True, _text_at(value, "message", "error_message", "reason") or None
    if isinstance(status, str) and status.lower() == "success":
        return False, None
    return None, None


def _message_in(error: Json) -> str:
    if isinstance(error, dict):
        message = error.get("message")
        if isinstance(message, str):
            return message
    return dump(error)[:500]


def _text_at(value: Mapping[str, Json], *keys: str) -> str:
    for key in keys:
        item = value.get(key)
        if isinstance(item, str) and item:
            return item
    return ""


def dump(value: Json) -> str:
    """Write a value as compact JSON."""
    return orjson.dumps(value).decode()


def first(attributes: Mapping[str, str], keys: tuple[str, ...]) -> str:
    """Return the first of several attributes that is there and not empty, else the empty text."""
    for key in keys:
        value = attributes.get(key)
        if value:
            return value
    return ""


def integer(text: str) -> int | None:
    """Read a count of tokens: an integer, also when written as a float; anything else is None.

    >>> integer("12"), integer("12.0"), integer(""), integer("many"), integer("-7"), integer("1e300")
    (12, 12, None, None, None, None)
    """
    if not text:
        return None
    try:
        return count(int(text))
    except ValueError:
        pass
    try:
        return count(float(text))
    except ValueError:
        return None


def count(value: float) -> int | None:
    """Take a number for a count: None when it is below 0, or more than can be kept.

    >>> count(3.0), count(-1), count(float("inf")), count(float("nan"))
    (3, None, None, None)
    """
    return int(value) if 0 <= value <= MAX_INTEGER else None


def begun(end_ns: int, duration_ms: str) -> int:
    """When it began (unix ns): what ended at `end_ns` and says how long it took, if it says so plausibly.

    >>> begun(5_000_000, "2.5"), begun(5, ""), begun(5, "1e300"), begun(5, "-1"), begun(5, "nan")
    (2500000, 5, 5, 5, 5)
    """
    took = (number(duration_ms) or 0.0) * _MILLISECOND
    return end_ns - int(took) if 0 <= took <= end_ns else end_ns


def number(text: str) -> float | None:
    """Read an amount; anything that is none is None."""
    try:
        return float(text) if text else None
    except ValueError:
        return None


def truth(text: str) -> bool | None:
    """Read a flag that may have become a text; None when it is neither true nor false."""
    return {"true": True, "True": True, "1": True, "false": False, "False": False, "0": False}.get(text)
