"""An OpenAI-compatible model server on loopback that plays a script instead of thinking.

It answers `POST .../chat/completions` and `POST .../responses`, plain and streamed. Every request takes
the next turn of the script, whatever was asked, so that a framework's own prompts cannot change what is
recorded. A client may replace the script before it starts with `POST /script` and a JSON list of turns.

A turn is `{"calls": [[tool name, arguments], ...]}` or `{"text": "..."}`. Call ids are `call_<turn>_<k>`;
input tokens are 100 + turn, output 20, cached 40, reasoning 5.
"""

from __future__ import annotations

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "stub-model-2026-01-01"
CREATED = 1_767_225_600

MAIN: list[dict[str, Any]] = [
    {"calls": [["get_weather", {"city": "Paris"}]]},
    *[{"calls": [["fetch_page", {"url": "https://example.invalid/status"}]]} for _ in range(6)],
    *[{"calls": [["run_query", {"sql": f"SELECT * FROM ordres LIMIT {10 + n}"}]]} for n in range(6)],
    {"calls": [["get_weather", {"city": "Oslo"}], ["get_weather", {"city": "Rome"}]]},
    {"text": "Paris is fine; the status page and the orders table are not."},
]


class Script:
    """The turns to serve, and how far a run has come."""

    def __init__(self, turns: list[dict[str, Any]]) -> None:
        self._lock = threading.Lock()
        self._turns = turns
        self._next = 0

    def replace(self, turns: list[dict[str, Any]]) -> None:
        """Start over with other turns."""
        with self._lock:
            self._turns, self._next = turns, 0

    def take(self) -> tuple[int, dict[str, Any]]:
        """Return the next turn with its number; a run that asks on past the end is told to stop."""
        with self._lock:
            number = self._next
            self._next += 1
        return number, self._turns[number] if number < len(self._turns) else {"text": "Done."}


def chat_usage(number: int) -> dict[str, Any]:
    """Return a turn's usage as chat completions name it."""
    return {
        "prompt_tokens": 100 + number,
        "completion_tokens": 20,
        "total_tokens": 120 + number,
        "prompt_tokens_details": {"cached_tokens": 40, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 5, "audio_tokens": 0},
    }


def chat_calls(number: int, turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a turn's tool calls as chat completions spell them."""
    return [
        {
            "id": f"call_{number:02d}_{k}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for k, (name, arguments) in enumerate(turn.get("calls", []))
    ]


def chat_completion(number: int, turn: dict[str, Any]) -> dict[str, Any]:
    """Return a whole chat completion."""
    calls = chat_calls(number, turn)
    message: dict[str, Any] = {"role": "assistant", "content": turn.get("text"), "refusal": None}
    if calls:
        message["tool_calls"] = calls
    return {
        "id": f"chatcmpl-{number:03d}",
        "object": "chat.completion",
        "created": CREATED + number,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None,
                "finish_reason": "tool_calls" if calls else "stop",
            }
        ],
        "usage": chat_usage(number),
    }


def chat_chunks(number: int, turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the same completion as the chunks of a stream."""
    base = {
        "id": f"chatcmpl-{number:03d}",
        "object": "chat.completion.chunk",
        "created": CREATED + number,
        "model": MODEL,
    }

    def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    chunks = [chunk({"role": "assistant", "content": None if turn.get("calls") else ""})]
    for index, call in enumerate(chat_calls(number, turn)):
        text = call["function"]["arguments"]
        head = {"index": index, **call, "function": {"name": call["function"]["name"], "arguments": ""}}
        chunks.append(chunk({"tool_calls": [head]}))
        half = len(text) // 2
        chunks += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
            for part in (text[:half], text[half:])
        ]
    if "text" in turn:
        chunks += [chunk({"content": f"{word} "}) for word in turn["text"].split()]
    chunks.append(chunk({}, "tool_calls" if turn.get("calls") else "stop"))
    chunks.append({**base, "choices": [], "usage": chat_usage(number)})
    return chunks


def response_items(number: int, turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a turn as the output items of the responses API."""
    if "text" in turn:
        part = {"type": "output_text", "text": turn["text"], "annotations": [], "logprobs": []}
        return [
            {
                "id": f"msg_{number:03d}",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        ]
    return [
        {
            "id": f"fc_{number:03d}_{k}",
            "type": "function_call",
            "status": "completed",
            "call_id": f"call_{number:02d}_{k}",
            "name": name,
            "arguments": json.dumps(arguments),
        }
        for k, (name, arguments) in enumerate(turn.get("calls", []))
    ]


def response(number: int, turn: dict[str, Any], *, finished: bool = True) -> dict[str, Any]:
    """Return a response object, or its beginning when it is not finished yet."""
    usage = {
        "input_tokens": 100 + number,
        "input_tokens_details": {"cached_tokens": 40},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 120 + number,
    }
    return {
        "id": f"resp_{number:03d}",
        "object": "response",
        "created_at": CREATED + number,
        "status": "completed" if finished else "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "model": MODEL,
        "output": response_items(number, turn) if finished else [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": usage if finished else None,
        "user": None,
        "metadata": {},
    }


def item_events(index: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the stream events of one output item."""
    where = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        begun = {**item, "arguments": "", "status": "in_progress"}
        middle = [
            {"type": "response.function_call_arguments.delta", **where, "delta": item["arguments"]},
            {
                "type": "response.function_call_arguments.done",
                **where,
                "arguments": item["arguments"],
                "name": item["name"],
            },
        ]
    else:
        begun = {**item, "content": [], "status": "in_progress"}
        part = item["content"][0]
        here = {**where, "content_index": 0}
        middle = [
            {"type": "response.content_part.added", **here, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **here, "delta": part["text"], "logprobs": []},
            {"type": "response.output_text.done", **here, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **here, "part": part},
        ]
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *middle,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def response_events(number: int, turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the same response as the events of a stream."""
    begun = response(number, turn, finished=False)
    events = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(response_items(number, turn)):
        events += item_events(index, item)
    events.append({"type": "response.completed", "response": response(number, turn)})
    return [{**event, "sequence_number": n} for n, event in enumerate(events)]


class Handler(BaseHTTPRequestHandler):
    """Speaks the few requests that frameworks make of a model server."""

    protocol_version = "HTTP/1.1"
    script: Script

    def do_GET(self) -> None:
        """List the one model, for clients that look first."""
        self._json(
            {
                "object": "list",
                "data": [{"id": "stub-model", "object": "model", "created": CREATED, "owned_by": "stub"}],
            }
        )

    def do_POST(self) -> None:
        """Serve the next turn, or take a new script."""
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.split("?")[0]
        if path.endswith("/script"):
            self.script.replace(asked)
            self._json({})
        elif path.endswith("/chat/completions"):
            number, turn = self.script.take()
            if asked.get("stream"):
                self._stream(
                    [f"data: {json.dumps(chunk)}\n\n" for chunk in chat_chunks(number, turn)]
                    + ["data: [DONE]\n\n"]
                )
            else:
                self._json(chat_completion(number, turn))
        elif path.endswith("/responses"):
            number, turn = self.script.take()
            if asked.get("stream"):
                events = response_events(number, turn)
                self._stream([f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events])
            else:
                self._json(response(number, turn))
        else:
            self.send_error(404)

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, frames: list[str]) -> None:
        body = "".join(frames).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: the recorder's output is the framework's."""


def serve(port: int = 0) -> ThreadingHTTPServer:
    """Start the stub in a thread and return its server; `server_address` has the port."""
    handler = type("BoundHandler", (Handler,), {"script": Script(MAIN)})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8399)
    serve(parser.parse_args().port)
    threading.Event().wait()


if __name__ == "__main__":
    main()
