"""What records tell beside the call itself: its server, our own attributes, evaluations of it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from collector.conventions.observation import OwnFacts
from collector.conventions.spellings import Ladder
from collector.conventions.values import number, truth
from collector.naming import name_kept
from collector.record import Event
from collector.step import MAX_EVALUATIONS, Evaluation

MAX_TARGET: Final = 200
EXPECTED_TOOL: Final = "recloser.expected_tool"
TASK_ID: Final = "recloser.task.id"
TASK_SUCCESS: Final = "recloser.task.success"
EVALUATION: Final = "gen_ai.evaluation.result"

_SERVER: Final = Ladder((
    "mcp.server.name", "mcp_server_name", "mcp_server", "fastmcp.server.name", "gen_ai.mcp.server.name",
))  # fmt: skip
_URL: Final = Ladder(("mcp.server.url", "url.full", "http.url"))
_TELL_TARGET: Final = ("server.address", *_SERVER.keys, *_URL.keys)
_MODEL_URL: Final = "gen_ai.openai.api_base"
_PROVIDER: Final = ("gen_ai.provider.name", "gen_ai.system")
_MCP: Final = ("mcp.method.name", "mcp.session.id", "mcp.protocol.version")
_MCP_TOOL: Final = re.compile(r"mcp__(.+?)__.")
_HOST: Final = re.compile(r"[\w.:\[\]-]+")


def target_of_tool(attributes: Mapping[str, str], tool: str) -> str:
    """The server that a tool call went to: its address, its MCP server's name, its URL's host; else empty.

    An address beside the name of a model's provider is the model's, which some instrumentations write on
    every span; only where the protocol is MCP it is the tool's. Command line agents put the MCP server into
    the tool's name.

    >>> target_of_tool({"server.address": "mcp.example", "server.port": "8443"}, "f"), target_of_tool({}, "f")
    ('mcp.example:8443', '')
    >>> target_of_tool({}, "mcp__github__create_issue")
    'github'
    """
    if any(map(attributes.__contains__, _TELL_TARGET)):
        address = attributes.get("server.address")
        if address and (
            not any(key in attributes for key in _PROVIDER) or any(key in attributes for key in _MCP)
        ):
            return _address(address, attributes.get("server.port", ""))
        name = _SERVER.pick(attributes)
        if name:
            return name[:MAX_TARGET]
        url = _URL.pick(attributes)
        if url:
            return host_of(url)
    match = _MCP_TOOL.match(tool) if tool.startswith("mcp__") else None
    return match[1][:MAX_TARGET] if match else ""


def target_of_model(attributes: Mapping[str, str]) -> str:
    """The server that a model call went to; empty when that was not recorded.

    >>> target_of_model({"server.address": "http://127.0.0.1:8080/v1/"})
    '127.0.0.1:8080'
    """
    address = attributes.get("server.address")
    if address:
        return _address(address, attributes.get("server.port", ""))
    url = attributes.get(_MODEL_URL)
    return host_of(url) if url else ""


def _address(address: str, port: str) -> str:
    if "/" in address:
        return host_of(address)
    return f"{address}:{port}"[:MAX_TARGET] if port else address[:MAX_TARGET]


@lru_cache(maxsize=1024)
def host_of(url: str) -> str:
    """Host and port of a URL, without whoever logs in there; empty when it has none.

    >>> host_of("https://user:secret@example.com:8443/v1?x=1"), host_of("not a url")
    ('example.com:8443', '')
    """
    try:
        host = urlsplit(url if "//" in url else f"//{url}").netloc.rpartition("@")[2]
    except ValueError:
        return ""
    return host[:MAX_TARGET] if _HOST.fullmatch(host) else ""


def own_facts(attributes: Mapping[str, str], resource: Mapping[str, str]) -> OwnFacts | None:
    """What whoever ran the agent said with our own attributes; None when nothing."""
    task = resource.get(TASK_ID, "")
    if not (task or TASK_ID in attributes or EXPECTED_TOOL in attributes or TASK_SUCCESS in attributes):
        return None
    return OwnFacts(
        attributes.get(EXPECTED_TOOL, ""),
        attributes.get(TASK_ID) or task,
        truth(attributes.get(TASK_SUCCESS, "")),
    )


def evaluations_in(events: Iterable[Event]) -> tuple[Evaluation, ...]:
    """The evaluations among a span's events."""
    found = [
        evaluation
        for event in events
        if event.name == EVALUATION and (evaluation := evaluation_of(event.attributes)) is not None
    ]
    return tuple(found[:MAX_EVALUATIONS])


def evaluation_of(attributes: Mapping[str, str]) -> Evaluation | None:
    """Read one evaluation event; None when it does not say what was evaluated.

    >>> evaluation_of({"gen_ai.evaluation.name": "Relevance", "gen_ai.evaluation.score.value": "0.5"})
    Evaluation(name='Relevance', score=0.5, label=None)
    """
    name = attributes.get("gen_ai.evaluation.name")
    if not name:
        return None
    score = number(attributes.get("gen_ai.evaluation.score.value", ""))
    label = attributes.get("gen_ai.evaluation.score.label", "")
    return Evaluation(
        name_kept(name),
        score if score is not None and math.isfinite(score) else None,
        name_kept(label) or None,
    )
