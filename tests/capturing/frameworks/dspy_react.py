"""DSPy ReAct, whose tool calls are text and not the provider's.

pip: dspy opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentation named:
openinference-instrumentation-dspy | opentelemetry-instrumentation-genai-dspy. usage: dspy_react.py
openinference|genai
"""

import json
import sys

import scenario
import stub_model

scenario.telemetry()
if sys.argv[1] == "openinference":
    from openinference.instrumentation.dspy import DSPyInstrumentor
else:
    from opentelemetry.instrumentation.genai.dspy import DSPyInstrumentor
DSPyInstrumentor().instrument()

import dspy


def act(name, arguments):
    fields = {"next_thought": "I need more.", "next_tool_name": name, "next_tool_args": json.dumps(arguments)}
    return {
        "text": "\n\n".join(f"[[ ## {key} ## ]]\n{value}" for key, value in fields.items())
        + "\n\n[[ ## completed ## ]]"
    }


turns = [act(name, arguments) for turn in stub_model.MAIN for name, arguments in turn.get("calls", [])]
closing = "[[ ## reasoning ## ]]\nSo it is.\n\n[[ ## answer ## ]]\nParis is fine.\n\n[[ ## completed ## ]]"
scenario.use([*turns, act("finish", {}), {"text": closing}])
dspy.configure(lm=dspy.LM("openai/stub-model", api_base=scenario.BASE_URL, api_key="stub", cache=False))
dspy.ReAct("question -> answer", tools=scenario.TOOLS, max_iters=40)(question=scenario.PROMPT)
scenario.write_notes(
    [
        "dspy",
        "openinference-instrumentation-dspy",
        "opentelemetry-instrumentation-genai-dspy",
        "opentelemetry-sdk",
    ],
    [*scenario.MAIN[:3], "get_weather x2 in two turns (ok)"],
    instrumentation=sys.argv[1],
)
