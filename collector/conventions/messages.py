"""Messages of model calls, whatever the dialect: which tools were asked for, what they brought back.

One reader for all dialects (OTel GenAI parts, OpenAI chat and responses items, Anthropic, Gemini, Bedrock,
Vercel, LangChain, LlamaIndex, Haystack): each has its own keys, and no key means two things.
Histories grow with every call, so only their tail is parsed: from the model's last own message on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from collector.conventions.observation import NO_TAIL, Answer, Ask, Tail
from collector.conventions.values import (
    MAX_TEXT,
    Brought,
    brought,
    open_arguments,
    parse,
    told_by_text,
)
from collector.step import Json

MAX_HISTORY: Final = 262_144  # characters of a history that are parsed whole when its tail cannot be found
MAX_TAIL_MESSAGES: Final = 256
MAX_USER_TEXT: Final = 2_000

_MODEL_ROLES: Final = frozenset({"assistant", "model", "ai", "AI", "MessageRole.ASSISTANT"})
_TOOL_ROLES: Final = frozenset({"tool", "function", "ToolMessage", "MessageRole.TOOL", "tool-response"})
_ANSWER_KEYS: Final = frozenset({"toolResult", "functionResponse", "function_response", "tool_call_result"})
_USER_ROLES: Final = frozenset({"user", "human", "MessageRole.USER"})
_LAST_MODEL_MESSAGE: Final = tuple(
    f'{{"role":{space}"{role}"' for role in ("assistant", "model") for space in ("", " ")
)
_DECODER: Final = json.JSONDecoder()
_SEPARATOR: Final = re.compile(r"\s*,\s*(?=\{)")
_DISGUISE: Final = re.compile(
    r"^\s*(?:observation:|call id:|tool (?:result|output|response)|<tool_(?:response|result)"
    r"|<function_results?>|<returncode>|<output>|\[tool|for context: |<system-reminder>"
    r"|<environment_context>|<session_context>|error:)",
    re.IGNORECASE,
)
_CALL_REPR: Final = re.compile(
    r"ResponseFunctionToolCall\(arguments='(?P<arguments>(?:[^'\\]|\\.)*)', "
    r"call_id='(?P<id>[^']*)', name='(?P<name>[^']*)'"
)


@dataclass(slots=True)
class Message:
    """One message, taken apart."""

    role: str
    texts: list[str]
    asks: list[Ask]
    answers: list[Answer]


def read_message(value: Json) -> Message | None:
    """Take one message apart; None when it is none."""
    if isinstance(value, list):
        parts = [message for item in value if (message := read_message(item)) is not None]
        return parts[-1] if parts else None
    if isinstance(value, str):
        return Message("", [value], [], [])
    if not isinstance(value, dict):
        return None
    value = _bared(value)
    message = Message(_role(value), [], [], [])
    _read_part(value, message)
    _read_body(value, message)
    return message


def _bared(value: Mapping[str, Json]) -> Mapping[str, Json]:
    for _ in range(3):
        inner = value.get("kwargs") if "lc" in value else value.get("data") if "type" in value else None
        if not isinstance(inner, dict):
            inner = value.get("message")
            if not isinstance(inner, dict):
                return value
        value = inner
    return value


def _role(value: Mapping[str, Json]) -> str:
    role = value.get("role") or value.get("_role")
    if isinstance(role, str):
        return role
    kind = value.get("type")
    if kind in ("human", "ai", "system", "tool", "AIMessageChunk"):
        return "ai" if kind == "AIMessageChunk" else str(kind)
    name = value.get("event.name")
    if isinstance(name, str):
        return name.removeprefix("gen_ai.").removesuffix(".message").replace("choice", "assistant")
    return ""


def _read_body(value: Mapping[str, Json], message: Message) -> None:
    content = value.get("parts", value.get("content", value.get("_content", value.get("blocks"))))
    if _read_tool_message(value, content, message):
        return
    extra = value.get("additional_kwargs")
    calls = value.get("tool_calls")
    if not calls and isinstance(extra, dict) and not (isinstance(content, list) and _holds_calls(content)):
        calls = extra.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        _read_call(call, message)
    _read_content(content, message)


def _read_tool_message(value: Mapping[str, Json], content: Json, message: Message) -> bool:
    """Whether a message is one tool's result, told by its role or by naming the call; it is read then."""
    extra = value.get("additional_kwargs")
    answered = _text(value, "tool_call_id") or (
        _text(extra, "tool_call_id") if isinstance(extra, dict) else ""
    )
    if message.role not in _TOOL_ROLES and not answered:
        return False
    call_id = answered or _text(value, "id")
    if isinstance(content, list) and _holds_answers(content):
        return False
    if not call_id and not isinstance(content, str):
        return False
    failed = True if value.get("status") == "error" else None
    _answer(message, call_id, _text(value, "name"), content, failed=failed)
    return True


def _read_content(content: Json, message: Message) -> None:
    if isinstance(content, str):
        _read_text(content, message)
    elif isinstance(content, list):
        for part in content:
            if isinstance(part, str):
                message.texts.append(part)
            elif isinstance(part, dict):
                _read_part(part, message)
    elif isinstance(content, dict):
        inner = content.get("parts", content.get("content"))
        if isinstance(inner, list):
            _read_content(inner, message)


def _holds_calls(parts: list[Json]) -> bool:
    return any(isinstance(part, dict) and part.get("block_type") == "tool_call" for part in parts)


def _holds_answers(parts: list[Json]) -> bool:
    return any(
        isinstance(part, dict)
        and (
            part.get("type") in ("tool_call_response", "tool-result", "tool_result")
            or part.get("_class") == "ToolCallResult"
            or not _ANSWER_KEYS.isdisjoint(part)
        )
        for part in parts
    )


def _read_text(text: str, message: Message) -> None:
    if message.role in _MODEL_ROLES and text.startswith("ResponseFunctionToolCall("):
        for match in _CALL_REPR.finditer(text):
            arguments = match["arguments"].replace("\\'", "'").replace("\\\\", "\\")
            message.asks.append(Ask(match["id"], match["name"], open_arguments(arguments)))
        return
    if text:
        message.texts.append(text)


_CLASSES: Final = {"ToolCall": "tool_call", "ToolCallResult": "tool_result", "TextContent": "text"}


def _read_part(part: Mapping[str, Json], message: Message) -> None:
    kind = part.get("type") or part.get("block_type") or _CLASSES.get(str(part.get("_class", "")))
    if kind in ("tool_call", "tool_use", "tool-call", "function_call"):
        _read_call(part, message)
        return
    if kind in ("tool_call_response", "tool-result", "tool_result", "function_call_output"):
        _read_answer(part, message)
        return
    for key in ("toolUse", "functionCall", "function_call", "tool_call"):
        inner = part.get(key)
        if isinstance(inner, dict):
            _read_call(inner, message)
            return
    for key in ("toolResult", "functionResponse", "function_response", "tool_call_result"):
        inner = part.get(key)
        if isinstance(inner, dict):
            _read_answer(inner, message)
            return
    if "role" in part or "_role" in part or kind in ("human", "ai", "system", "tool"):
        return
    text = part.get("text", part.get("content"))
    if isinstance(text, str) and kind not in ("thinking", "reasoning"):
        _read_text(text, message)


def _read_call(call: Json, message: Message) -> None:
    if not isinstance(call, dict):
        return
    inner = call.get("toolCall")
    if isinstance(inner, dict):
        call = inner
    function = call.get("function")
    source = function if isinstance(function, dict) else call
    name = _text(source, "name", "toolName", "tool_name")
    if not name:
        return
    raw = next((source[key] for key in ("arguments", "args", "input", "tool_kwargs") if key in source), None)
    arguments = {} if raw == "" else open_arguments(raw)
    message.asks.append(
        Ask(
            _text(call, "call_id", "id", "toolCallId", "toolUseId", "tool_call_id", "callId", "tool_id"),
            name,
            arguments,
        )
    )


def _read_answer(part: Mapping[str, Json], message: Message) -> None:
    origin = part.get("origin")
    source = origin if isinstance(origin, dict) else part
    call_id = _text(source, "id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "call_id")
    if part.get("type") == "function_call_output":
        call_id = _text(part, "call_id")
    content = next(
        (part[key] for key in ("response", "result", "output", "content") if part.get(key) is not None), None
    )
    if isinstance(content, dict) and content.keys() == {"type", "value"}:
        kind, content = content["type"], content["value"]
        if isinstance(kind, str) and kind.startswith("error"):
            _answer(message, call_id, _text(part, "toolName", "name"), content, failed=True)
            return
    told = part.get("is_error", part.get("isError", part.get("error")))
    failed = (
        True if told is True or part.get("status") == "error" or part.get("outcome") == "failed" else None
    )
    _answer(message, call_id, _text(source, "name", "toolName", "tool_name"), content, failed=failed)


def _answer(message: Message, call_id: str, name: str, content: Json, *, failed: bool | None) -> None:
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("block_type") == "text" for part in content
    ):
        content = "\n".join(_text(part, "text") for part in content if isinstance(part, dict))
    seen = (
        told_by_text(content[:MAX_TEXT])
        if isinstance(content, str)
        else Brought("")
        if content is None
        else brought(content)
    )
    message.answers.append(
        Answer(call_id, name, seen.text or "", failed if failed is not None else seen.failed)
    )


def _text(value: Mapping[str, Json], *keys: str) -> str:
    for key in keys:
        item = value.get(key)
        if isinstance(item, str) and item:
            return item
    return ""


def tail_of_text(raw: str) -> Tail:
    """Read the tail of a history that is JSON text: a list of messages, or an object that holds one.

    Finds the model's last message without parsing what is before it where messages begin with their role.
    """
    start = max(raw.rfind(mark) for mark in _LAST_MODEL_MESSAGE)
    position = raw.count('"role"')
    if start >= 0:
        return tail_of(list(_objects_from(raw, start)), position)
    if len(raw) > MAX_HISTORY:
        return NO_TAIL
    return tail_of(history_in(parse(raw)))


def _objects_from(raw: str, start: int) -> Iterator[Json]:
    for _ in range(MAX_TAIL_MESSAGES):
        try:
            value, end = _DECODER.raw_decode(raw, start)
        except (ValueError, RecursionError):
            return
        yield value
        more = _SEPARATOR.match(raw, end)
        if more is None:
            return
        start = more.end()


def history_in(value: Json) -> list[Json]:
    """Find the list of messages in what was recorded as a model call's input."""
    if isinstance(value, dict):
        for key in ("messages", "input", "contents", "prompt", "chat_history"):
            inner = value.get(key)
            if isinstance(inner, list) and inner:
                return inner[0] if isinstance(inner[0], list) else inner
            if isinstance(inner, str) and inner:
                return [{"role": "user", "content": inner}]
            if isinstance(inner, dict):
                return history_in(inner)
        return [value] if "role" in value or "content" in value else []
    if isinstance(value, list):
        return value[0] if value and isinstance(value[0], list) else value
    return [{"role": "user", "content": value}] if isinstance(value, str) and value else []


def tail_of(history: Sequence[Json], position: int | None = None) -> Tail:
    """Read the tail of a history: what the model's last message asked for and what came after it."""
    messages = [
        message for item in history[-MAX_TAIL_MESSAGES:] if (message := read_message(item)) is not None
    ]
    return tail_of_messages(messages, len(history) if position is None else position)


def transcript_of(history: Sequence[Json]) -> tuple[tuple[Ask, ...], tuple[Answer, ...]]:
    """Read a whole conversation: all calls in it and all that they brought back, in order."""
    messages = [message for item in history if (message := read_message(item)) is not None]
    return (
        tuple(ask for message in messages for ask in message.asks),
        tuple(answer for message in messages for answer in message.answers),
    )


def tail_of_messages(messages: Sequence[Message], position: int) -> Tail:
    """Read the tail of a history whose messages are taken apart already."""
    first = next((i for i in range(len(messages) - 1, -1, -1) if _by_model(messages[i])), -1)
    while first > 0 and _by_model(messages[first - 1]):
        first -= 1
    told: list[Ask] = []
    answers: list[Answer] = []
    for message in messages[max(first, 0) :]:
        told.extend(message.asks)
        answers.extend(message.answers)
    return Tail(tuple(told), tuple(answers), _user_text(messages, first, told, answers), position)


def _by_model(message: Message) -> bool:
    return (message.role in _MODEL_ROLES and not message.answers) or bool(message.asks)


def _user_text(messages: Sequence[Message], first: int, told: list[Ask], answers: list[Answer]) -> str | None:
    if not messages or len(messages) - 1 == first:
        return None
    last = messages[-1]
    if last.role not in _USER_ROLES or last.answers or not last.texts or (told and not answers):
        return None
    text = "\n".join(last.texts).strip()
    if not text or _DISGUISE.match(text):
        return None
    return text[:MAX_USER_TEXT]


def output_of(value: Json) -> tuple[tuple[Ask, ...], str | None]:
    """Read a model call's output: the calls it asks for, and its text."""
    asks: list[Ask] = []
    texts: list[str] = []
    for item in _outputs(value):
        message = read_message(item)
        if message is not None:
            asks.extend(message.asks)
            texts.extend(message.texts)
    return tuple(asks), "\n".join(texts)[:MAX_USER_TEXT] or None


def _outputs(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        for key in (
            "choices",
            "generations",
            "candidates",
            "output",
            "outputs",
            "replies",
            "messages",
            "response",
            "content",
        ):
            inner = value.get(key)
            if (
                isinstance(inner, list)
                and inner
                and not (key == "content" and ("role" in value or "type" in value))
            ):
                return inner[0] if isinstance(inner[0], list) else inner
            if isinstance(inner, dict) and key in ("output", "response"):
                return _outputs(inner)
        return [value]
    if isinstance(value, list):
        return value[0] if value and isinstance(value[0], list) else value
    return [value] if isinstance(value, str) and value else []


_FLAT_IN: Final = re.compile(r"^(?:llm\.input_messages|gen_ai\.prompt)\.(\d+)\.(?:message\.)?(.+)$")
_FLAT_OUT: Final = re.compile(r"^(?:llm\.output_messages|gen_ai\.completion)\.(\d+)\.(?:message\.)?(.+)$")
_FLAT_CALL: Final = re.compile(r"^tool_calls\.(\d+)\.(?:tool_call\.)?(?:function\.)?(id|name|arguments)$")


def flattened(attributes: Mapping[str, str]) -> tuple[Tail, tuple[Ask, ...], str | None]:
    """Read messages that were spread over attributes (OpenInference; Traceloop until 0.40)."""
    inputs: dict[int, dict[str, str]] = {}
    outputs: dict[int, dict[str, str]] = {}
    for key, value in attributes.items():
        if key.startswith(("llm.input_messages.", "gen_ai.prompt.")):
            _sort_in(_FLAT_IN.match(key), value, inputs)
        elif key.startswith(("llm.output_messages.", "gen_ai.completion.")):
            _sort_in(_FLAT_OUT.match(key), value, outputs)
    start = max((i for i, fields in inputs.items() if fields.get("role") in _MODEL_ROLES), default=-1)
    while start - 1 in inputs and inputs[start - 1].get("role") in _MODEL_ROLES:
        start -= 1
    messages = [_unflat(inputs[i]) for i in sorted(inputs) if i >= start]
    tail = tail_of_messages(messages, max(inputs) + 1) if inputs else NO_TAIL
    asks: list[Ask] = []
    texts: list[str] = []
    for index in sorted(outputs):
        message = _unflat(outputs[index])
        asks.extend(message.asks)
        texts.extend(message.texts)
    return tail, tuple(asks), "\n".join(texts)[:MAX_USER_TEXT] or None


def _sort_in(match: re.Match[str] | None, value: str, into: dict[int, dict[str, str]]) -> None:
    if match is not None:
        into.setdefault(int(match[1]), {})[match[2]] = value


def _unflat(fields: Mapping[str, str]) -> Message:
    message = Message(fields.get("role", ""), [], [], [])
    calls: dict[int, dict[str, str]] = {}
    for key, value in fields.items():
        match = _FLAT_CALL.match(key)
        if match is not None:
            calls.setdefault(int(match[1]), {})[match[2]] = value
        elif key == "content" or (key.startswith("contents.") and key.endswith(".text")):
            message.texts.append(value)
    for index in sorted(calls):
        call = calls[index]
        if call.get("name"):
            raw = call.get("arguments")
            arguments = open_arguments(raw) if raw else {}
            message.asks.append(Ask(call.get("id", ""), call["name"], arguments))
    call_id = fields.get("tool_call_id", "")
    if message.role in ("tool", "function") or call_id:
        text = "\n".join(message.texts)
        content = parse(text) if text[:1] in "{[" else text
        _answer(
            message,
            call_id,
            fields.get("name", ""),
            content if isinstance(content, str | list | dict) else text,
            failed=None,
        )
        message.texts = []
    elif message.texts and message.texts[0][:1] == "[" and message.role in _USER_ROLES | _MODEL_ROLES:
        _open_texts(message)
    return message


def _open_texts(message: Message) -> None:
    """Content blocks that were written as one JSON text."""
    value = parse(message.texts[0])
    if (
        isinstance(value, list)
        and value
        and all(isinstance(item, dict) and ("type" in item or "text" in item) for item in value)
    ):
        del message.texts[0]
        _read_body({"role": message.role, "content": value}, message)


def told_by_events(
    events: Iterable[tuple[str, Mapping[str, str]]],
) -> tuple[list[Message], list[Message], str | None]:
    """Read messages that came as span events or log records `gen_ai.*.message` and `gen_ai.choice`.

    Takes (name, fields) pairs; returns the input messages, the output messages and the finish reason.
    """
    inputs: list[Message] = []
    outputs: list[Message] = []
    finish: str | None = None
    for name, fields in events:
        if not name.startswith("gen_ai."):
            continue
        kind = name.removeprefix("gen_ai.").removesuffix(".message")
        if kind in ("user", "assistant", "tool", "system"):
            message = _from_event(kind, fields)
            if message is not None:
                inputs.append(message)
        elif kind == "choice":
            finish = fields.get("finish_reason") or finish
            message = _from_event("assistant", fields)
            if message is not None:
                outputs.append(message)
    return inputs, outputs, finish


def _from_event(role: str, fields: Mapping[str, str]) -> Message | None:
    raw = fields.get("message") or fields.get("content") or ""
    value: Json = parse(raw) if raw[:1] in ("{", "[") else raw
    holder: dict[str, Json] = {"role": role}
    if isinstance(value, dict):
        holder.update(value)
        holder["role"] = role if role == "tool" else value.get("role") or role
    elif raw:
        holder["content"] = value
    for key in ("id", "name", "tool_calls"):
        if fields.get(key):
            holder[key] = parse(fields[key]) if key == "tool_calls" else fields[key]
    return read_message(holder)
