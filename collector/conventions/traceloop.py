"""OpenLLMetry (Traceloop): `traceloop.*` attributes, decorators without operations, tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from collector.batch import Signal
from collector.conventions import generic
from collector.conventions.definitions import offered_of
from collector.conventions.messages import output_of, tail_of
from collector.conventions.observation import ModelFacts, Observation, Telling, ToolFacts
from collector.conventions.values import arguments_of, brought, parse
from collector.record import Record

NAME: Final = "traceloop"
FAILURES_WITHOUT_SPAN: Final = (
    "opentelemetry.instrumentation.llamaindex"  # a call that fails has no span there
)
_TOOL_TASKS: Final = ("FunctionTool.task", "QueryEngineTool.task", "RetrieverTool.task")


def read(record: Record) -> Observation | None:
    """Read a span of one of Traceloop's instrumentations or of its SDK's decorators."""
    if record.signal is Signal.LOGS:
        return generic.observe(record, NAME)
    attributes = record.attributes
    kind = attributes.get("traceloop.span.kind", "")
    if kind == "task" or record.name.endswith(".task"):
        if record.name in _TOOL_TASKS:
            return _tool_task(record)
        if (
            "messages" in attributes.get("traceloop.entity.output", "")[:16]
            or '"message"' in attributes.get("traceloop.entity.output", "")[:16]
        ):
            return _model_task(record)
        return generic.base(record, Telling.CONTEXT, NAME)
    observation = generic.observe(record, NAME)
    if observation is not None and observation.telling is Telling.AGENT and record.name == "crewai.workflow":
        return replace(observation, name="")
    return observation


def _tool_task(record: Record) -> Observation:
    """LlamaIndex: the tool's name is only in the output; a call that failed has no span at all."""
    output = parse(record.attributes.get("traceloop.entity.output", ""))
    name = output.get("tool_name") if isinstance(output, dict) else None
    if not isinstance(name, str) or not name:
        return generic.base(record, Telling.CONTEXT, NAME)
    seen = brought(output)
    failed, error = generic.told_by_status(record)
    tool = ToolFacts(
        name,
        arguments=arguments_of(record.attributes.get("traceloop.entity.input", ""), name),
        result=seen.text,
        failed=failed or seen.failed,
        error=error or seen.error,
    )
    return generic.base(record, Telling.TOOL, NAME, tool=tool)


def _model_task(record: Record) -> Observation:
    """LlamaIndex: methods of a model class are tasks; one prepares the request, others return the answer."""
    output = parse(record.attributes.get("traceloop.entity.output", ""))
    if not isinstance(output, dict):
        return generic.base(record, Telling.CONTEXT, NAME)
    messages = output.get("messages")
    if isinstance(messages, list) and "tools" in output:
        tail = tail_of(messages)
        facts = ModelFacts(told=tail.told, answers=tail.answers)
        return generic.base(record, Telling.PART, NAME, model=facts)
    message, raw = output.get("message"), output.get("raw")
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return generic.base(record, Telling.CONTEXT, NAME)
    asks, text = output_of([message])
    usage = raw.get("usage") if isinstance(raw, dict) else None
    model = raw.get("model") if isinstance(raw, dict) else None
    offered = offered_of(record.attributes)
    facts = ModelFacts(
        model=model if isinstance(model, str) else None,
        asks=asks,
        text=text,
        usage=generic.usage_in(usage) if isinstance(usage, dict) else ModelFacts().usage,
        finish_reason="tool_calls" if asks else None,
        offered_tools=offered.names,
        definitions=offered.definitions,
    )
    return generic.base(record, Telling.MODEL, NAME, model=facts)
