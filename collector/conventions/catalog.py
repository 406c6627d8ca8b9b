"""The conventions, in the order in which they are asked. Adding one is one file and one line here."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from collector.batch import Signal
from collector.conventions import (
    autogen,
    claude_code,
    codex,
    dspy,
    gemini_cli,
    generic,
    haystack,
    llama_index,
    logfire,
    mcp,
    opencode,
    qwen_code,
    traceloop,
)
from collector.conventions.observation import Observation
from collector.record import Record

Read: TypeAlias = Callable[[Record], Observation | None]


@dataclass(frozen=True, slots=True)
class Convention:
    """A family of instrumentations: whose records are its own, and how they are read.

    A record is its own by instrumentation scope (`scopes`) or service name (`services`), both patterns that
    must match whole, or by one of the attributes `marks`. `read` None: the generic reader does.
    """

    name: str
    scopes: str = ""
    services: str = ""
    marks: tuple[str, ...] = ()
    read: Read | None = None


CONVENTIONS: Final[tuple[Convention, ...]] = (
    Convention("claude_code", scopes=r"com\.anthropic\.claude_code.*", services="claude-code.*",
               read=claude_code.read),
    Convention("codex", scopes=r"codex_otel.*", services=r"codex.*", read=codex.read),
    Convention("qwen_code", scopes=r"qwen-code.*", services=r"qwen-code.*", read=qwen_code.read),
    Convention("gemini_cli", scopes=r"gemini-cli.*", services=r"gemini-cli.*", read=gemini_cli.read),
    Convention("opencode", scopes=r"opencode.*", services=r"opencode.*", read=opencode.read),
    Convention("copilot", scopes=r"(?:github[.-])?copilot.*", services=r"(?:github-)?copilot.*"),
    Convention("dspy", scopes=r".*\bdspy\b.*", read=dspy.read),
    Convention("autogen", scopes=r"autogen.*|.*\.autogen(?:_agentchat)?", read=autogen.read),
    Convention("haystack", scopes=r"(?:opentelemetry-)?haystack.*|openinference\.instrumentation\.haystack",
               marks=("haystack.tool.name", "haystack.agent.tools"), read=haystack.read),
    Convention("openinference", scopes=r"openinference\..*"),
    Convention("logfire", scopes=r"logfire\..*", read=logfire.read),
    Convention("pydantic_ai", scopes=r"pydantic-ai.*"),
    Convention("langsmith", scopes=r"langsmith.*", marks=("langsmith.span.kind",)),
    Convention("langfuse", scopes=r"langfuse.*", marks=("langfuse.observation.type",)),
    Convention("mlflow", scopes=r"mlflow.*", marks=("mlflow.spanType",)),
    Convention("google_adk", scopes=r"gcp\.vertex\.agent.*"),
    Convention("strands", scopes=r"strands.*"),
    Convention("agent_framework", scopes=r"agent_framework.*"),
    Convention("semantic_kernel", scopes=r"semantic_kernel.*|Microsoft\.SemanticKernel.*"),
    Convention("mastra", scopes=r"@?mastra.*", marks=("mastra.span.type",)),
    Convention("openlit", scopes=r"openlit.*", marks=("openlit.sdk.version", "gen_ai.sdk.version")),
    Convention("traceloop",
               scopes=r"traceloop.*|opentelemetry\.instrumentation\.(?:langchain|crewai|llamaindex|mcp).*",
               marks=(
        "traceloop.span.kind", "traceloop.entity.name", "traceloop.workflow.name", "traceloop.entity.input"),
        read=traceloop.read),
    Convention("llama_index", scopes="llama[_-]?index.*", marks=("llamaindex.run_id",),
               read=llama_index.read),
    Convention("mcp", scopes=r"mcp.*|fastmcp.*", marks=("mcp.method.name",), read=mcp.read),
    Convention("vercel_ai", scopes=r"ai|gen_ai", marks=("ai.operationId",)),
    Convention("openinference", marks=("openinference.span.kind",)),
    Convention(generic.NAME),
)  # fmt: skip

_LAST: Final = len(CONVENTIONS) - 1
_MARKS: Final = frozenset(mark for convention in CONVENTIONS for mark in convention.marks)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What a scope and a service name say: the convention, or what remains to be decided by attributes."""

    index: int
    by_name: bool


@lru_cache(maxsize=8192)
def _by_names(scope: str, service: str) -> _Chosen:
    for index, convention in enumerate(CONVENTIONS):
        if (convention.services and re.fullmatch(convention.services, service)) or (
            convention.scopes and re.fullmatch(convention.scopes, scope)
        ):
            return _Chosen(index, by_name=True)
    return _Chosen(_LAST, by_name=False)


def convention_of(record: Record) -> Convention:
    """Tell whose a record is."""
    chosen = _by_names(record.scope, record.service)
    if not chosen.by_name:
        attributes = record.attributes
        if not _MARKS.isdisjoint(attributes):
            return next(each for each in CONVENTIONS if not attributes.keys().isdisjoint(each.marks))
        if record.name.startswith("haystack."):
            return next(each for each in CONVENTIONS if each.name == haystack.NAME)
    return CONVENTIONS[chosen.index]


def read(record: Record) -> Observation | None:
    """Read one record by the convention that it belongs to; None when it says nothing about an agent."""
    if record.signal is Signal.LOGS and (judged := generic.observe_evaluation(record)) is not None:
        return judged
    convention = convention_of(record)
    if convention.read is None:
        return generic.observe(record, convention.name)
    return convention.read(record)
