"""A hand-written loop around the openai client.

pip: openai opentelemetry-sdk opentelemetry-exporter-otlp-proto-http and, by the instrumentation named:
openinference-instrumentation-openai | opentelemetry-instrumentation-genai-openai |
opentelemetry-instrumentation-openai-v2 | traceloop-sdk opentelemetry-instrumentation-openai.
usage: openai_raw.py openinference|genai|v2|traceloop chat|stream|responses
"""

import json
import sys

import scenario

INSTRUMENTATION, API = sys.argv[1:]


def instrument() -> None:
    if INSTRUMENTATION == "traceloop":
        from traceloop.sdk import Traceloop

        Traceloop.init(
            app_name="recorded-agent", api_endpoint=scenario.os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        )
        Traceloop.set_association_properties({"session_id": "sess-raw-1", "user_id": "user-7"})
        return
    scenario.telemetry()
    if INSTRUMENTATION == "openinference":
        from openinference.instrumentation.openai import OpenAIInstrumentor
    elif INSTRUMENTATION == "genai":
        from opentelemetry.instrumentation.genai.openai import OpenAIInstrumentor
    else:
        from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor
    OpenAIInstrumentor().instrument()


def answer(name: str, arguments: str) -> str:
    try:
        return TOOLS[name](**json.loads(arguments))
    except Exception as error:
        return f"Error: {error}"


def chat(client, messages, *, stream):
    if not stream:
        return (
            client.chat.completions.create(model="stub-model", messages=messages, tools=scenario.chat_tools())
            .choices[0]
            .message.model_dump(exclude_none=True)
        )
    calls, text = {}, ""
    for chunk in client.chat.completions.create(
        model="stub-model",
        messages=messages,
        tools=scenario.chat_tools(),
        stream=True,
        stream_options={"include_usage": True},
    ):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or []:
                call = calls.setdefault(
                    part.index, {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                )
                call["id"] += part.id or ""
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    return {"role": "assistant", "content": text} | ({"tool_calls": list(calls.values())} if calls else {})


def chat_loop(client, *, stream) -> None:
    messages = [
        {"role": "system", "content": "You are ops_agent."},
        {"role": "user", "content": scenario.PROMPT},
    ]
    while True:
        message = chat(client, messages, stream=stream)
        messages.append(message)
        if not message.get("tool_calls"):
            return
        for call in message["tool_calls"]:
            text = answer(call["function"]["name"], call["function"]["arguments"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})


def responses_loop(client) -> None:
    items = [{"role": "user", "content": scenario.PROMPT}]
    tools = [{"type": "function", **tool["function"]} for tool in scenario.chat_tools()]
    while True:
        made = client.responses.create(
            model="stub-model", instructions="You are ops_agent.", input=items, tools=tools
        )
        calls = [item for item in made.output if item.type == "function_call"]
        items += [item.model_dump(exclude_none=True) for item in made.output]
        if not calls:
            return
        items += [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": answer(call.name, call.arguments),
            }
            for call in calls
        ]


instrument()
TOOLS = scenario.BY_NAME
loop = chat_loop
if INSTRUMENTATION == "traceloop":
    from traceloop.sdk.decorators import tool, workflow

    TOOLS = {name: tool(name=name)(function) for name, function in TOOLS.items()}
    chat_loop, responses_loop = workflow(name="ops")(chat_loop), workflow(name="ops")(responses_loop)

import openai

client = openai.OpenAI()
if API == "responses":
    responses_loop(client)
else:
    chat_loop(client, stream=API == "stream")
scenario.write_notes(
    [
        "openai",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-genai-openai",
        "opentelemetry-instrumentation-openai-v2",
        "opentelemetry-instrumentation-openai",
        "traceloop-sdk",
        "opentelemetry-sdk",
    ],
    instrumentation=INSTRUMENTATION,
    llm_api=API,
)
