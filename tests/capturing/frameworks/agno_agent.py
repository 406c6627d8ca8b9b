"""Agno agent.

pip: agno openai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentation
named: openinference-instrumentation-agno | opentelemetry-instrumentation-genai-agno. usage: agno_agent.py
openinference|genai
"""

import sys

import scenario

scenario.telemetry()
if sys.argv[1] == "openinference":
    from openinference.instrumentation.agno import AgnoInstrumentor
else:
    from opentelemetry.instrumentation.genai.agno import AgnoInstrumentor
AgnoInstrumentor().instrument()

from agno.agent import Agent
from agno.models.openai.like import OpenAILike

agent = Agent(
    name="ops_agent",
    model=OpenAILike(id="stub-model", base_url=scenario.BASE_URL, api_key="stub"),
    tools=scenario.TOOLS,
    telemetry=False,
)
agent.run(scenario.PROMPT, session_id="sess-agno-1", user_id="user-7")
scenario.write_notes(
    [
        "agno",
        "openinference-instrumentation-agno",
        "opentelemetry-instrumentation-genai-agno",
        "opentelemetry-sdk",
    ],
    instrumentation=sys.argv[1],
    session_id_passed="sess-agno-1",
    user_id_passed="user-7",
)
