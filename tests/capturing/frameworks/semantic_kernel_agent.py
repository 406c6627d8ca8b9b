"""Semantic Kernel ChatCompletionAgent with its own diagnostics.

pip: semantic-kernel opentelemetry-sdk opentelemetry-exporter-otlp-proto-http.
usage: semantic_kernel_agent.py diagnostics|sensitive
"""

import logging
import os
import sys

key = "SENSITIVE" if sys.argv[1] == "sensitive" else ""
os.environ["SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS" + ("_SENSITIVE" if key else "")] = (
    "true"
)

import scenario

scenario.telemetry()
from opentelemetry.sdk._logs import LoggingHandler

logging.getLogger().addHandler(LoggingHandler())
logging.getLogger("semantic_kernel").setLevel(logging.INFO)

from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

import stub_model


class Tools:
    @kernel_function
    def get_weather(self, city: str) -> str:
        """Get the current weather of a city."""
        return scenario.get_weather(city)

    @kernel_function
    def fetch_page(self, url: str) -> str:
        """Fetch a web page."""
        return scenario.fetch_page(url)

    @kernel_function
    def run_query(self, sql: str) -> str:
        """Run a SQL query."""
        return scenario.run_query(sql)


scenario.use(
    [
        {"calls": [[f"Tools-{name}", arguments] for name, arguments in turn["calls"]]}
        if "calls" in turn
        else turn
        for turn in stub_model.MAIN
    ]
)
agent = ChatCompletionAgent(
    name="ops_agent",
    service=OpenAIChatCompletion(
        ai_model_id="stub-model", async_client=AsyncOpenAI(base_url=scenario.BASE_URL, api_key="stub")
    ),
    plugins=[Tools()],
    function_choice_behavior=FunctionChoiceBehavior.Auto(maximum_auto_invoke_attempts=40),
)


async def main() -> None:
    await agent.get_response(messages=scenario.PROMPT)


scenario.run(main())
scenario.write_notes(["semantic-kernel", "opentelemetry-sdk"], instrumentation=sys.argv[1])
