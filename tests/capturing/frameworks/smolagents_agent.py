"""smolagents ToolCallingAgent.

pip: smolagents openai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentation
named: opentelemetry-instrumentation-genai-smolagents | openinference-instrumentation-smolagents. usage:
smolagents_agent.py genai|openinference
"""

import sys

import scenario
import stub_model

scenario.telemetry()
if sys.argv[1] == "genai":
    from opentelemetry.instrumentation.genai.smolagents import SmolagentsInstrumentor
else:
    from openinference.instrumentation.smolagents import SmolagentsInstrumentor
SmolagentsInstrumentor().instrument()

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def get_weather(city: str) -> str:
    """Get the current weather of a city.

    Args:
        city: where
    """
    return scenario.get_weather(city)


@tool
def fetch_page(url: str) -> str:
    """Fetch a web page.

    Args:
        url: which
    """
    return scenario.fetch_page(url)


@tool
def run_query(sql: str) -> str:
    """Run a SQL query.

    Args:
        sql: what
    """
    return scenario.run_query(sql)


scenario.use([*stub_model.MAIN[:-1], {"calls": [["final_answer", {"answer": "Paris is fine."}]]}])
agent = ToolCallingAgent(
    tools=[get_weather, fetch_page, run_query],
    model=OpenAIModel("stub-model", api_base=scenario.BASE_URL, api_key="stub"),
    max_steps=40,
    name="ops_agent",
    description="Checks things.",
)
agent.run(scenario.PROMPT)
scenario.write_notes(
    [
        "smolagents",
        "opentelemetry-instrumentation-genai-smolagents",
        "openinference-instrumentation-smolagents",
        "opentelemetry-sdk",
    ],
    instrumentation=sys.argv[1],
)
