"""A CrewAI crew of one agent.

pip: crewai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentations named:
openinference-instrumentation-crewai | openinference-instrumentation-openai |
opentelemetry-instrumentation-crewai opentelemetry-instrumentation-openai. usage: crewai_crew.py
openinference|openinference+openai|traceloop+openai [guard]

CrewAI stops by itself at the fifth identical call, so the main script varies the pages unless `guard` is
named.
"""

import sys

import scenario
import stub_model

scenario.telemetry()
if sys.argv[1].startswith("openinference"):
    from openinference.instrumentation.crewai import CrewAIInstrumentor

    if sys.argv[1].endswith("+openai"):
        from openinference.instrumentation.openai import OpenAIInstrumentor
else:
    from opentelemetry.instrumentation.crewai import CrewAIInstrumentor
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

if sys.argv[1].endswith("+openai"):
    OpenAIInstrumentor().instrument()
CrewAIInstrumentor().instrument()

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool

if "guard" not in sys.argv:
    pages = iter(range(1, 7))
    scenario.use(
        [
            {"calls": [["fetch_page", {"url": f"https://example.invalid/status?try={next(pages)}"}]]}
            if turn.get("calls", [[""]])[0][0] == "fetch_page"
            else turn
            for turn in stub_model.MAIN
        ]
    )
agent = Agent(
    role="ops_agent",
    goal="Check things",
    backstory="You check things.",
    tools=[tool(function.__name__)(function) for function in scenario.TOOLS],
    llm=LLM(model="openai/stub-model", base_url=scenario.BASE_URL, api_key="stub"),
    max_iter=40,
)
task = Task(description=scenario.PROMPT, expected_output="A summary", agent=agent)
try:
    Crew(agents=[agent], tasks=[task]).kickoff(inputs={"id": "kick-crew-1"})
except Exception as error:
    print(f"the run ended with {type(error).__name__}")
scenario.write_notes(
    [
        "crewai",
        "openinference-instrumentation-crewai",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-crewai",
        "opentelemetry-instrumentation-openai",
        "opentelemetry-sdk",
    ],
    "the framework's own guard ends the run at the fifth identical call"
    if "guard" in sys.argv
    else [scenario.MAIN[0], "fetch_page x6 varied args (all fail)", *scenario.MAIN[2:]],
    instrumentation=sys.argv[1],
)
