"""Haystack Agent with Haystack's own tracer, or OpenInference.

pip: haystack-ai opentelemetry-haystack openinference-instrumentation-haystack opentelemetry-sdk
opentelemetry-exporter-otlp-proto-http. usage: haystack_agent.py native|content|openinference
"""

import os
import sys

if sys.argv[1] == "content":
    os.environ["HAYSTACK_CONTENT_TRACING_ENABLED"] = "true"

import scenario

scenario.telemetry()
from opentelemetry import trace

if sys.argv[1] == "openinference":
    from openinference.instrumentation.haystack import HaystackInstrumentor

    HaystackInstrumentor().instrument()
else:
    from haystack import tracing
    from haystack_integrations.tracing.opentelemetry import OpenTelemetryTracer

    tracing.enable_tracing(OpenTelemetryTracer(trace.get_tracer("haystack")))

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

generator = OpenAIChatGenerator(
    model="stub-model", api_base_url=scenario.BASE_URL, api_key=Secret.from_token("stub")
)
agent = Agent(chat_generator=generator, tools=[create_tool_from_function(tool) for tool in scenario.TOOLS])
if sys.argv[1] == "openinference":
    from haystack import Pipeline

    pipeline = Pipeline()
    pipeline.add_component("ops_agent", agent)
    pipeline.run({"ops_agent": {"messages": [ChatMessage.from_user(scenario.PROMPT)]}})
else:
    agent.run(messages=[ChatMessage.from_user(scenario.PROMPT)])
scenario.write_notes(
    ["haystack-ai", "opentelemetry-haystack", "openinference-instrumentation-haystack", "opentelemetry-sdk"],
    instrumentation=sys.argv[1],
)
