"""AutoGen AssistantAgent, whose own tracer is always on once a provider is set.

pip: autogen-agentchat autogen-ext[openai] opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
openinference-instrumentation-autogen-agentchat. usage: autogen_agent.py native|openinference|team
"""

import sys

import scenario

scenario.telemetry()
if sys.argv[1] == "openinference":
    from openinference.instrumentation.autogen_agentchat import AutogenAgentChatInstrumentor

    AutogenAgentChatInstrumentor().instrument()

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(
    model="stub-model",
    base_url=scenario.BASE_URL,
    api_key="stub",
    model_info={
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "family": "unknown",
        "structured_output": False,
    },
)
agent = AssistantAgent("ops_agent", model_client=client, tools=scenario.TOOLS, max_tool_iterations=40)


async def main() -> None:
    worker = agent
    if sys.argv[1] == "team":
        worker = RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(4))
    await worker.run(task=scenario.PROMPT)


scenario.run(main())
scenario.write_notes(
    ["autogen-agentchat", "openinference-instrumentation-autogen-agentchat", "opentelemetry-sdk"],
    instrumentation=sys.argv[1],
)
