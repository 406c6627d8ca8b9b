"""What marks a span or log record as one that a convention may read: cheap tests on names, never on values.

Generous on purpose: a row marked for nothing costs one Python object, a row missed is a step that no
detector ever sees.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

# Attribute key prefixes of the instrumentation families.
_KEY: Final = re.compile(
    r"(?:gen_ai|openinference|llm|tool|ai|traceloop|langsmith|langfuse|langgraph|langchain|mlflow|mcp|haystack"
    r"|llamaindex|llama_index|mastra|agno|crewai|crew|autogen|pydantic_ai|logfire\.(?:span_type|msg_template)"
    r"|gcp\.vertex\.agent|openlit|strands|smolagents|dspy|sk|agent|agent_framework|claude_code|codex|gemini_cli"
    r"|qwen-code|qwen_code|opencode|github\.copilot|goose|cline|cursor|google_adk|adk|arize|phoenix|opik"
    r"|recloser|braintrust|weave|lmnr|helicone|inference|workflow|executor|message|conversation|prompt|completion"
    r"|embedding|retrieval|reranker|graph)[._].*"
    r"|(?:input|output)\.(?:value|mime_type)"
    r"|(?:session|user|enduser|conversation|interaction|prompt|message)\.id"
    r"|tool|tools|tool_.*|tool[A-Z].*|function_.*|mcp_.*|agent|agent_.*|agent[A-Z].*|subagent_.*|call_id"
    r"|tool_call_id|parent_call_id|session_id|sessionId|thread_id|threadId|conversation_id|group_id|run_id|kickoff_id"
    r"|arguments|input|output|raw_input|request_data|response_data|model_request_parameters|model|model_name"
    r"|all_messages(?:_events)?|final_result|final_answer|usage|input_tokens|output_tokens|total_tokens|prompt"
    r"|.*token_count.*|.*_tokens|completion|response|messages|event\.name|prompt_id|llm|metadata",
    re.IGNORECASE,
)

# Instrumentation scopes whose spans belong to an agent even when the attributes were evicted.
_SCOPE: Final = re.compile(
    r".*(?:gen[_.-]?ai|openinference|traceloop|openllmetry|langsmith|langfuse|langchain|langgraph|mlflow|mcp"
    r"|haystack|llama[_-]?index|mastra|agno|crewai|autogen|ag2|pydantic[_-]?ai|logfire|vertex|openlit|strands"
    r"|smolagents|dspy|semantic[_-]?kernel|agent|claude|codex|gemini|qwen|opencode|copilot|goose|cline|openai"
    r"|anthropic|bedrock|ollama|litellm|cohere|mistral|groq|vercel|phoenix|arize|opik|braintrust|adk).*"
    r"|ai",
    re.IGNORECASE,
)

# Span and event names of conventions that name rather than mark.
_NAME: Final = re.compile(
    r"(?:execute_tool|invoke_agent|invoke_workflow|create_agent|chat|generate_content|text_completion"
    r"|embeddings|handoff|tools/call|tool_call|llm_call|call_llm|llm_request|agent_run|running tools?"
    r"|running \d+ tools?)\b.*"
    r"|(?:Function|Agent run|Handoff|Responses API|Chat Completion|Message with)\b.*"
    r"|ai\.(?:toolCall|generateText|streamText|generateObject|streamObject|embed).*"
    r"|(?:claude_code|codex|gemini_cli|gemini-cli|qwen-code|qwen_code|opencode|copilot|goose|cline|haystack"
    r"|gen_ai)\b.*"
    r"|Tool\.execute|dispatch_tool_call|FunctionTool\..*|.*\.(?:tool|agent|workflow|kickoff|task|run|__call__)"
    r"|(?:tool_result|tool_decision|tool_use|api_request|api_error|api_response|user_prompt|assistant_response"
    r"|compaction|loop_detected|subagent_.*|conversation_.*|chat_compression)",
    re.IGNORECASE,
)

# Services whose log records are events of an agent whatever they are called.
_SERVICE: Final = re.compile(
    r".*(?:claude|codex|gemini|qwen|opencode|copilot|goose|cline|cursor|aider|openhands|swe-agent).*",
    re.IGNORECASE,
)


_NAME_CHARS: Final = 200  # what is remembered of names stays small, whatever a sender makes up


def is_agent_key(key: str) -> bool:
    """Tell whether an attribute of this name occurs on spans or log records of agents."""
    return _matches(_KEY, key[:_NAME_CHARS])


def is_agent_scope(scope: str) -> bool:
    """Tell whether an instrumentation scope of this name emits spans of agents."""
    return _matches(_SCOPE, scope[:_NAME_CHARS])


def is_agent_name(name: str) -> bool:
    """Tell whether a span, span event or log event of this name comes from an agent."""
    return _matches(_NAME, name[:_NAME_CHARS])


def is_agent_service(service: str) -> bool:
    """Tell whether a service of this name is a command line agent."""
    return _matches(_SERVICE, service[:_NAME_CHARS])


@lru_cache(maxsize=16384)
def _matches(pattern: re.Pattern[str], text: str) -> bool:
    return pattern.fullmatch(text) is not None
