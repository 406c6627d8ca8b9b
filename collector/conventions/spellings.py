"""How instrumentations spell the same thing: ladders of attribute names, best first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Ladder:
    """Attribute names that mean one thing, best first."""

    keys: tuple[str, ...]
    _set: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_set", frozenset(self.keys))

    def find(self, attributes: Mapping[str, str]) -> tuple[str, int]:
        """Return the best attribute that is there and not empty, and its rank; `("", len(keys))` if none is.

        >>> Ladder(("a", "b")).find({"b": "2", "c": "3"})
        ('2', 1)
        """
        best = attributes.get(self.keys[0])
        if best:
            return best, 0
        if not self._set.isdisjoint(attributes):
            for rank, key in enumerate(self.keys):
                value = attributes.get(key)
                if value:
                    return value, rank
        return "", len(self.keys)

    def pick(self, attributes: Mapping[str, str]) -> str:
        """Return the value that `find` finds."""
        return self.find(attributes)[0]


def _spread(prefixes: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(prefix + name for prefix in prefixes for name in names)


_CONTEXTS: Final = (
    "ai.telemetry.metadata.", "ai.settings.context.", "ai.settings.runtimeContext.", "ai.runtimeContext.",
    "gen_ai.runtime_context.", "runtimeContext.",
)  # fmt: skip
_SESSION_NAMES: Final = (
    "sessionId", "session_id", "chatId", "chat_id", "threadId", "thread_id", "conversationId",
    "conversation_id",
)  # fmt: skip
_USER_NAMES: Final = ("userId", "user_id")

SESSION: Final = Ladder((
    "gen_ai.conversation.id",
    "session.id",
    "langfuse.session.id",
    *_spread(("traceloop.association.properties.",), ("session_id", "conversation_id", "thread_id")),
    *_spread(("langsmith.metadata.",), ("session_id", "thread_id", "conversation_id")),
    *_spread(_CONTEXTS, _SESSION_NAMES),
    *_spread(("mastra.metadata.",), ("threadId", "sessionId")),
    "gcp.vertex.agent.session_id",
    "conversation.id",
    "gen_ai.client.session_id",
    "group_id",
    "kickoff_id",
    "session_id",
    "thread_id",
))  # fmt: skip
USER: Final = Ladder((
    "user.id", "enduser.id", "langfuse.user.id", "traceloop.association.properties.user_id",
    "langsmith.metadata.user_id",
    *_spread(_CONTEXTS, _USER_NAMES), "mastra.metadata.userId",
))  # fmt: skip
AGENT: Final = Ladder((
    "gen_ai.agent.name", "agent.name", "agent_name", "subagent_name", "langsmith.metadata.lc_agent_name",
    "traceloop.association.properties.lc_agent_name", "haystack.agent.name", "crewai.agent.role",
    "ai.telemetry.functionId",
))  # fmt: skip
TOOL_NAME: Final = Ladder((
    "gen_ai.tool.name", "tool.name", "ai.toolCall.name", "haystack.tool.name", "function_name", "tool_name",
    "traceloop.entity.name", "name", "mcp.tool.name", "mcp.request.argument.name",
))  # fmt: skip
CALL_ID: Final = Ladder((
    "gen_ai.tool.call.id", "gen_ai.tool.call_id", "tool_call.id", "tool.call_id", "tool.id", "ai.toolCall.id",
    "tool_use_id", "call_id", "tool_call_id", "langfuse.observation.metadata.tool_call_id",
    "haystack.tool.call_id",
))  # fmt: skip
ARGUMENTS: Final = Ladder((
    "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "tool_arguments", "ai.toolCall.args",
    "mlflow.spanInputs", "langfuse.observation.input", "haystack.agent.step.tool.input",
    "haystack.tool.input",
    "function_args", "tool_input", "arguments", "traceloop.entity.input", "input.value", "gen_ai.prompt",
    "input",
    "mcp.request.argument", "gen_ai.tool.input",
))  # fmt: skip
RESULT: Final = Ladder((
    "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "tool_response", "ai.toolCall.result",
    "mlflow.spanOutputs", "langfuse.observation.output", "haystack.agent.step.tool.output",
    "haystack.tool.output",
    "traceloop.entity.output", "output.value", "gen_ai.completion", "output", "gen_ai.tool.output",
))  # fmt: skip
RESPONSE_MODEL: Final = Ladder(("gen_ai.response.model", "llm.response.model_name", "ai.response.model"))
REQUEST_MODEL: Final = Ladder((
    "gen_ai.request.model", "llm.request.model_name", "llm.model_name", "ai.model.id",
    "langfuse.observation.model.name",
    "mlflow.llm.model", "llm.request.model", "model", "model_name",
))  # fmt: skip
PROVIDER: Final = Ladder((
    "llm.provider", "gen_ai.provider.name", "gen_ai.system", "langsmith.metadata.ls_provider",
    "traceloop.association.properties.ls_provider", "mlflow.llm.provider", "ai.model.provider", "llm.system",
))  # fmt: skip
INPUT_TOKENS: Final = Ladder((
    "gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens",
    "ai.usage.promptTokens",
    "ai.usage.inputTokens", "input_token_count", "llm.usage.prompt_tokens",
))  # fmt: skip
OUTPUT_TOKENS: Final = Ladder((
    "gen_ai.usage.output_tokens", "llm.token_count.completion", "gen_ai.usage.completion_tokens",
    "ai.usage.completionTokens", "ai.usage.outputTokens", "output_token_count", "output_tokens",
    "llm.usage.completion_tokens",
))  # fmt: skip
CACHED_TOKENS: Final = Ladder((
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
    "ai.usage.inputTokenDetails.cacheReadTokens", "cached_token_count", "cached_content_token_count",
    "cache_read_tokens",
))  # fmt: skip
RESPONSE_ID: Final = Ladder(
    ("gen_ai.response.id", "ai.response.id", "response_id", "gcp.vertex.agent.event_id")
)
FINISH: Final = Ladder((
    "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason", "llm.finish_reason",
    "ai.response.finishReason",
    "gen_ai.completion.0.finish_reason", "llm.response.finish_reason", "stop_reason", "finish_reasons",
    "gen_ai.completion.0.stop_reason",
))  # fmt: skip
ERROR_TEXT: Final = Ladder((
    "langfuse.observation.status_message", "gen_ai.framework.error.message", "error.message", "error",
    "exception.message",
    "haystack.tool.error.message",
))  # fmt: skip
COST: Final = Ladder(
    (
        "cost_usd",
        "gen_ai.usage.cost",
        "llm.cost.total",
        "operation.cost",
        "gen_ai.cost.total_cost",
        "gen_ai.cost",
    )
)
OFFERED: Final = Ladder((
    "gen_ai.tool.definitions", "mlflow.chat.tools", "gen_ai.request.tools", "gen_ai.agent.tools",
    "haystack.agent.tools",
    "crewai.agent.tools", "ai.prompt.tools", "llm.request.functions", "sk.available_functions",
))  # fmt: skip
CONTENT_IN: Final = Ladder((
    "gen_ai.input.messages", "ai.prompt.messages", "langfuse.observation.input", "mlflow.spanInputs",
    "haystack.agent.step.llm.input", "gcp.vertex.agent.llm_request", "request_text", "raw_input",
    "request_data", "events",
    "all_messages_events", "pydantic_ai.all_messages", "all_messages", "gen_ai.prompt",
    "traceloop.entity.input",
    "input.value",
))  # fmt: skip
CONTENT_OUT: Final = Ladder((
    "gen_ai.output.messages", "langfuse.observation.output", "mlflow.spanOutputs",
    "haystack.agent.step.llm.output",
    "gcp.vertex.agent.llm_response", "response", "response_data", "gen_ai.completion",
    "traceloop.entity.output",
    "output.value",
))  # fmt: skip

FRAMEWORKS: Final = frozenset({
    "langchain", "langgraph", "crewai", "strands-agents", "autogen", "microsoft.agent_framework",
    "gcp.vertex.agent",
    "llama_index", "llamaindex", "agno", "dspy", "haystack", "smolagents", "pydantic-ai", "pydantic_ai",
    "mastra",
    "semantic_kernel", "ag2", "openai_agents", "function",
})  # fmt: skip
