"""Qwen-Agent's Assistant, an agent library (not the Qwen Code command line).

pip: qwen-agent opentelemetry-instrumentation-genai-qwen-agent opentelemetry-sdk
opentelemetry-exporter-otlp-proto-http. usage: qwen_agent_assistant.py
"""

import json

import scenario

scenario.telemetry()
from opentelemetry.instrumentation.genai.qwen_agent import QwenAgentInstrumentor

QwenAgentInstrumentor().instrument()

from qwen_agent.agents import Assistant
from qwen_agent.tools.base import BaseTool, register_tool


def registered(name, field):
    schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}

    @register_tool(name)
    class Tool(BaseTool):
        description = scenario.BY_NAME[name].__doc__
        parameters = schema

        def call(self, params, **_):
            return scenario.BY_NAME[name](**json.loads(params))

    return name


names = [registered(*pair) for pair in scenario._FIELDS.items()]
llm = {
    "model": "stub-model",
    "model_type": "oai",
    "model_server": scenario.BASE_URL,
    "api_key": "stub",
    "generate_cfg": {"use_raw_api": True},
}
agent = Assistant(llm=llm, function_list=names, name="ops_agent", description="Checks things.")
for _ in agent.run(messages=[{"role": "user", "content": scenario.PROMPT}]):
    pass
scenario.write_notes(
    ["qwen-agent", "opentelemetry-instrumentation-genai-qwen-agent", "opentelemetry-sdk"],
    instrumentation="genai",
)
