"""LangGraph 0.6's create_react_agent on LangChain 0.3, under the Traceloop SDK of that time.

pip: traceloop-sdk<=0.40 langchain<1 langgraph<1 langchain-openai<1 openai<2 setuptools httpx.
usage: langgraph_prebuilt.py
"""

import os

from traceloop.sdk import Traceloop

import scenario

Traceloop.init(app_name="recorded-agent", api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])
Traceloop.set_association_properties({"session_id": "sess-lg-1", "user_id": "user-7"})

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import ToolNode, create_react_agent

model = ChatOpenAI(model="stub-model", base_url=scenario.BASE_URL, api_key="stub")
tools = ToolNode([tool(function) for function in scenario.TOOLS], handle_tool_errors=True)
agent = create_react_agent(model, tools, name="ops_agent")
agent.invoke({"messages": [("user", scenario.PROMPT)]}, {"recursion_limit": 100})
scenario.write_notes(
    [
        "langgraph",
        "langchain-core",
        "langchain-openai",
        "traceloop-sdk",
        "opentelemetry-instrumentation-langchain",
    ],
    instrumentation="traceloop",
)
