"""LangChain's create_agent on LangGraph, under whatever instruments it.

pip: langchain langgraph langchain-openai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by
the instrumentations named: openinference-instrumentation-langchain (openinference) |
openinference-instrumentation-openai (openinference-openai) | opentelemetry-instrumentation-genai-langchain
(genai) | opentelemetry-instrumentation-langchain (traceloop) | langsmith[otel] (langsmith) | langfuse |
openlit | mlflow | none (with opentelemetry-instrument in front). usage: langgraph_agent.py
INSTRUMENTATION[+INSTRUMENTATION] [main|sub|noargs]
"""

import os
import sys

import scenario

NAMES = sys.argv[1].split("+")
KIND = sys.argv[2] if len(sys.argv) > 2 else "main"


def instrument(name: str) -> None:
    if name == "openinference":
        from openinference.instrumentation.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument()
    elif name == "openinference-openai":
        from openinference.instrumentation.openai import OpenAIInstrumentor

        OpenAIInstrumentor().instrument()
    elif name == "genai":
        from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor

        LangChainInstrumentor().instrument()
    elif name == "traceloop":
        from opentelemetry.instrumentation.langchain import LangchainInstrumentor

        LangchainInstrumentor().instrument()
    elif name == "langsmith":
        os.environ.update(
            LANGSMITH_TRACING="true",
            LANGSMITH_OTEL_ENABLED="true",
            LANGSMITH_OTEL_ONLY="true",
            LANGSMITH_API_KEY="stub",
        )


if "mlflow" in NAMES:
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = (
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
    )
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    import mlflow

    mlflow.langchain.autolog()
elif "langfuse" in NAMES:
    os.environ.update(
        LANGFUSE_BASE_URL=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
        LANGFUSE_HOST=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
        LANGFUSE_PUBLIC_KEY="pk-stub",
        LANGFUSE_SECRET_KEY="sk-stub",
    )
    from langfuse import get_client
    from langfuse.langchain import CallbackHandler
elif "openlit" in NAMES or "openlit-nocontent" in NAMES:
    import openlit

    openlit.init(
        service_name="recorded-agent",
        disable_metrics=True,
        pricing_json=os.devnull,
        capture_message_content="openlit" in NAMES,
    )
elif "none" not in NAMES:
    scenario.telemetry()
    for each in NAMES:
        instrument(each)

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@wrap_tool_call
def catch(request, handler):
    try:
        return handler(request)
    except Exception as error:
        return ToolMessage(content=f"Error: {error}", tool_call_id=request.tool_call["id"], status="error")


model = ChatOpenAI(model="stub-model", base_url=scenario.BASE_URL, api_key="stub")
tools = [tool(function) for function in [*scenario.TOOLS, scenario.list_jobs]]
if KIND == "sub":
    inner = create_agent(model, tools, middleware=[catch], name="researcher")

    @tool
    def researcher(question: str) -> str:
        """Ask the researcher."""
        text = inner.invoke({"messages": [("user", question)]})["messages"][-1].content
        scenario.note_call("researcher", {"question": question}, failed=False)
        return text

    tools = [researcher]
    scenario.use(
        [
            {"calls": [["researcher", {"question": "What is wrong with the status page?"}]]},
            *[{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(3)],
            {"text": "It does not answer."},
            {"text": "The status page does not answer."},
        ]
    )
elif KIND == "noargs":
    scenario.use([*[{"calls": [["list_jobs", {}]]} for _ in range(4)], {"text": "Nothing runs."}])
agent = create_agent(model, tools, middleware=[catch], name="ops_agent")
agent.invoke(
    {"messages": [("user", scenario.PROMPT)]},
    {
        "recursion_limit": 100,
        "configurable": {"thread_id": "thread-lg-1"},
        "metadata": {"session_id": "sess-lg-1", "user_id": "user-7"},
        "callbacks": [CallbackHandler()] if "langfuse" in NAMES else [],
    },
)
if "langfuse" in NAMES:
    get_client().flush()
if "langsmith" in NAMES:
    from langchain_core.tracers.langchain import wait_for_all_tracers

    wait_for_all_tracers()
if "mlflow" in NAMES:
    mlflow.flush_trace_async_logging()
scenario.write_notes(
    [
        "langgraph",
        "langchain",
        "langchain-openai",
        "openinference-instrumentation-langchain",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-genai-langchain",
        "opentelemetry-instrumentation-genai-openai",
        "opentelemetry-instrumentation-langchain",
        "langsmith",
        "langfuse",
        "openlit",
        "mlflow",
        "opentelemetry-sdk",
    ],
    scenario.MAIN if KIND == "main" else KIND,
    instrumentation=sys.argv[1],
    thread_id_passed="thread-lg-1 (configurable.thread_id)",
    metadata_passed={"session_id": "sess-lg-1", "user_id": "user-7"},
)
