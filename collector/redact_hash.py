"""Hash-only mode: what was said, asked and answered becomes hashes; what was done stays readable.

A text becomes `[HASH:<16 hex digits of its SHA-256>]`. JSON keeps its structure, its names and its numbers
of up to six digits, and its leaves become hashes, so that two calls still compare argument by argument. No
key goes into a hash: the same content has the same hash on every machine, which is what lets fleets be
compared; short guessable contents can be guessed.

What stays: attributes that say which tool, model, session, status, version or count, by an allow-list, so
that an attribute nobody knows is hashed; in JSON the call's own fields (role, type, tool name, call id,
outcome words); in texts how a call ended ("Error", "exit code 1", "HTTP 503").
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import orjson

from collector.arrow_types import Json

_MARK: Final = r"\[(?:HASH|REDACTED):[0-9a-z_:]+\]"
_MARKED: Final = re.compile(rf"(?:[A-Za-z0-9 ]{{1,48}}: )?{_MARK}")
_NUMBER: Final = re.compile(
    r"-?[0-9]{1,6}(?:\.[0-9]{1,12})?(?:e[+-]?[0-9]{1,3})?|true|false|True|False|null|"
)
_MAX_NUMBER: Final = 1_000_000
_MAX_DEPTH: Final = 64
_MAX_TOKEN: Final = 128
_TOKEN: Final = re.compile(r"[\w.:/@+\-]+")

# Attributes that say what was done, not what was said.
_STRUCTURE: Final = re.compile(
    r"(?:service|telemetry|host|os|process\.(?:pid|runtime\..*|executable\.name)|deployment|cloud|k8s|container"
    r"|network|server|client|rpc|error\.type|exception\.type|otel|thread|code|faas|device|user_agent)(?:\..*)?"
    r"|http\.(?:request\.method|response\.status_code|route|status_code|method)"
    r"|gen_ai\.(?:operation\.name|system|provider\.name|conversation\.id|data_source\.id|output\.type)"
    r"|gen_ai\.(?:agent\.(?:id|name|version|call\.id)|tool\.(?:name|type|call\.id|status|message\.id))"
    r"|gen_ai\.(?:request|response)\.(?!.*(?:instructions|messages|prompt)).*"
    r"|gen_ai\.(?:usage|aggregated_usage|token|client|server|workflow|evaluation\.(?:name|score))\..*"
    r"|gen_ai\.(?:task\.status|framework\.error\.type|agent\.tools|event\..*|server\..*)"
    r"|gen_ai\.(?:prompt|completion)\.\d+\.(?:role|finish_reason|tool_calls\.\d+\.(?:id|name|type))"
    r"|openinference\.span\.kind|llm\.(?:model_name|provider|system|token_count\..*|cost\..*|finish_reason"
    r"|request\.type|usage\..*|request\.model_name|response\.model_name|is_streaming)"
    r"|llm\.(?:input|output)_messages\.\d+\.message\.(?:role|tool_call_id|name"
    r"|tool_calls\.\d+\.tool_call\.(?:id|function\.name))"
    r"|tool\.(?:name|id|call_id|type)|tool_call\.(?:id|type|function\.name)|tool_call_id|tool_use_id|call_id"
    r"|tool_name|function_name|tool_type|tool_namespace|tool_result_seq|agent_name|agent_id|parent_agent_id|agent_type"
    r"|subagent_name|parent_call_id|prompt_id|prompt\.id|mcp_server(?:_name|_scope)?|mcp\.(?:method\.name|session\.id"
    r"|request\.id|protocol\.version|server\.name)|fastmcp\.server\.name"
    r"|recloser\.(?:expected_tool|task\.(?:id|success))"
    r"|ai\.(?:operationId|toolCall\.(?:id|name)|model\..*|usage\..*|settings\.(?:maxRetries|maxSteps).*"
    r"|response\.(?:finishReason|id|model|timestamp|ms.*|avg.*)|telemetry\.(?:functionId|metadata\..*Id))"
    r"|traceloop\.(?:span\.kind|entity\.(?:name|version|path)|workflow\.name"
    r"|association\.properties\..*(?:id|name))"
    r"|langsmith\.(?:span\.(?:kind|id)|trace\.(?:id|session_name|name)|metadata\.(?:.*_id|ls_.*|lc_agent_name))"
    r"|langfuse\.(?:observation\.(?:type|level|model\.name|usage_details|cost_details)|.*\.id|release|environment|version"
    r"|observation\.metadata\.tool_call_id)"
    r"|mlflow\.(?:spanType|traceRequestId|llm\..*|chat\.tokenUsage|spanFunctionName)"
    r"|mastra\.(?:span\.type|.*[iI]d)|haystack\.(?:tool\.(?:name|error)|component\.(?:name|type|visits))"
    r"|gcp\.vertex\.agent\.(?:session_id|event_id|invocation_id|associated_event_ids)"
    r"|logfire\.(?:span_type|level_num|msg_template|json_schema)|pydantic_ai\.tool\.retry\..*"
    r"|session\.id|user\.id|enduser\.id|thread\.id|conversation\.id|sessionId|session_id|thread_id|conversation_id"
    r"|group_id|kickoff_id|run_id|crew_id|crew_key|agno\.run\.id|agno\..*\.id|organization\.id|app\.version|terminal\.type"
    r"|event\.(?:name|timestamp|sequence|kind)|model|model_name|success|status|decision|decision_type|decision_source"
    r"|source|error_type|status_code|attempt|request_id|query_source|finish_reason|loop_type|execution_status|role"
    r"|level|logger|operation\.name|resource\.name|name|id|type|kind|signal|interrupted|speed|effort"
    r"|.*(?:_tokens|_count|duration_ms|\.count|_ms|_bytes|_usd|_seconds|\.version|\.kind|\.type)",
)

# Fields of a call or message as models' interfaces write them, kept inside hashed JSON.
_CALL_TYPES: Final = frozenset(
    {
        "tool_call",
        "tool_use",
        "tool_result",
        "tool_call_response",
        "tool-call",
        "tool-result",
        "tool",
        "function",
        "function_call",
        "function_call_output",
        "function_response",
        "message",
        "text",
        "reasoning",
        "thinking",
    }
)
_ROLES: Final = frozenset(
    {"system", "user", "assistant", "tool", "developer", "model", "function", "human", "ai"}
)
_OUTCOMES: Final = frozenset(
    {
        "ok",
        "success",
        "succeeded",
        "error",
        "failed",
        "failure",
        "fail",
        "completed",
        "complete",
        "cancelled",
        "canceled",
        "denied",
        "rejected",
        "timeout",
        "incomplete",
        "in_progress",
        "stop",
        "tool_calls",
        "tool_call",
        "tool_use",
        "end_turn",
        "length",
        "max_tokens",
        "content_filter",
    }
)
_CALL_FIELDS: Final = frozenset(
    {"id", "name", "call_id", "callId", "tool_call_id", "toolCallId", "tool_use_id", "tool_name", "toolName"}
)
_OUTCOME_FIELDS: Final = frozenset(
    {"status", "finish_reason", "finishReason", "stop_reason", "outcome", "state"}
)
_ARGUMENT_FIELDS: Final = frozenset(
    {"arguments", "args", "tool_calls", "toolCallId", "tool_call_id", "callId"}
)

_ENDINGS: Final = (
    re.compile(r"\A\s*(?:[a-z ]{0,20}: )?(?P<ending>[A-Z]\w{0,40}(?:Error|Exception))\b"),
    re.compile(r"(?P<ending>(?:[Pp]rocess exited with code|[Ee]xit code|[Ee]xited with code):? -?\d{1,3})\b"),
    re.compile(r"\b(?P<ending>HTTP [45]\d\d)\b"),
    re.compile(r"\A\s*(?P<ending>Error executing tool|An error occurred|Permission denied)\b"),
    re.compile(r"\A\s*(?P<ending>Error|Traceback|Failed|Failure|Exception|Denied)\b"),
)


def is_content_key(key: str) -> bool:
    """Tell whether an attribute of this name may hold what somebody wrote: all that are not known better."""
    return len(key) > _MAX_TOKEN or _is_content_key(key)


@lru_cache(maxsize=8192)
def _is_content_key(key: str) -> bool:
    return _STRUCTURE.fullmatch(key) is None


def hashed(text: str, clean: Callable[[str], str]) -> str:
    """Return the text with its content hashed; `clean` takes secrets out of the names in JSON."""
    return _hashed(text, clean, 0)


def _hashed(text: str, clean: Callable[[str], str], depth: int) -> str:
    if _NUMBER.fullmatch(text) or _MARKED.fullmatch(text):
        return text
    if text[:1] in ("{", "[") or text.lstrip()[:1] in ("{", "["):
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            parsed = None
        if isinstance(parsed, dict | list) and depth < _MAX_DEPTH:
            return orjson.dumps(_leaves(parsed, clean, depth + 1)).decode()
    return _marked(text)


def _leaves(parsed: Json, clean: Callable[[str], str], depth: int) -> Json:
    if depth > _MAX_DEPTH:
        return _marked(orjson.dumps(parsed).decode())
    if isinstance(parsed, dict):
        call = _is_call(parsed)
        return {clean(key): _field(key, value, clean, depth, call=call) for key, value in parsed.items()}
    if isinstance(parsed, list):
        return [_leaves(item, clean, depth + 1) for item in parsed]
    if isinstance(parsed, str):
        return _hashed(parsed, clean, depth)
    if isinstance(parsed, bool) or parsed is None or abs(parsed) < _MAX_NUMBER:
        return parsed
    return _marked(str(parsed))


def _field(key: str, value: Json, clean: Callable[[str], str], depth: int, *, call: bool) -> Json:
    if isinstance(value, str) and len(value) <= _MAX_TOKEN and _TOKEN.fullmatch(value):
        if key == "role" and value in _ROLES:
            return value
        if key in ("type", "kind") and value in _CALL_TYPES:
            return value
        if key in _OUTCOME_FIELDS and value.lower() in _OUTCOMES:
            return value
        if call and key in _CALL_FIELDS:
            return value
    return _leaves(value, clean, depth + 1)


def _is_call(parsed: dict[str, Json]) -> bool:
    kind, role = parsed.get("type"), parsed.get("role")
    if (isinstance(kind, str) and kind in _CALL_TYPES) or (isinstance(role, str) and role in _ROLES):
        return True
    return not _ARGUMENT_FIELDS.isdisjoint(parsed)


def _marked(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    ending = _ending(text)
    return f"{ending}: [HASH:{digest}]" if ending else f"[HASH:{digest}]"


def _ending(text: str) -> str:
    for pattern in _ENDINGS:
        found = pattern.search(text)
        if found:
            return found["ending"].replace(":", "")
    return ""
