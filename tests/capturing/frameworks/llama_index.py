"""LlamaIndex FunctionAgent.

pip: llama-index-core llama-index-llms-openai-like opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
and, by the instrumentation named: openinference-instrumentation-llama-index |
opentelemetry-instrumentation-genai-llama-index | opentelemetry-instrumentation-llamaindex |
llama-index-observability-otel (native). usage: llama_index.py openinference|genai|traceloop|native
"""

import sys

import scenario

sys.path.pop(0)
if sys.argv[1] == "native":
    from llama_index.observability.otel import LlamaIndexOpenTelemetry as LlamaIndexInstrumentor
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    native = LlamaIndexInstrumentor(
        span_exporter=OTLPSpanExporter(), service_name_or_resource="recorded-agent"
    )
    native.start_registering()
else:
    scenario.telemetry()
if sys.argv[1] == "openinference":
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor
elif sys.argv[1] == "genai":
    from opentelemetry.instrumentation.genai.llama_index import LlamaIndexInstrumentor
elif sys.argv[1] == "traceloop":
    from opentelemetry.instrumentation.llamaindex import LlamaIndexInstrumentor
if sys.argv[1] != "native":
    LlamaIndexInstrumentor().instrument()

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model="stub-model",
    api_base=scenario.BASE_URL,
    api_key="stub",
    is_chat_model=True,
    is_function_calling_model=True,
)
agent = FunctionAgent(
    name="ops_agent",
    tools=[FunctionTool.from_defaults(tool) for tool in scenario.TOOLS],
    llm=llm,
    streaming=False,
)


async def main() -> None:
    await agent.run(scenario.PROMPT, max_iterations=40)


scenario.run(main())
scenario.write_notes(
    [
        "llama-index-core",
        "openinference-instrumentation-llama-index",
        "opentelemetry-instrumentation-genai-llama-index",
        "opentelemetry-instrumentation-llamaindex",
        "opentelemetry-sdk",
    ],
    instrumentation=sys.argv[1],
)
