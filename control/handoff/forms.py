"""A hand-off report as JSON, and as Markdown that a person reads in two minutes.

What agents and tools said is in it as quoted text: in Markdown between back quotes, on one line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import orjson

from control.plain import plain

if TYPE_CHECKING:
    from control.handoff.record import Handoff

UNKNOWN: Final = "unknown"
_STATES: Final = {"running": "goes on", "stopped": "is stopped by a breaker", "ended": "has ended"}
_TITLES: Final = {
    "goal": "Goal",
    "onset": "Onset",
    "next_step": "Next step",
    "causes": "Causes",
    "failing_paths": "What was tried and failed",
    "not_tried": "Not tried",
    "side_effects": "Side effects already done",
    "cost": "Cost",
    "timeline": "Timeline",
    "links": "Spans",
}
"""The fields in the order in which a person needs them."""


def to_dict(handoff: Handoff) -> dict[str, Any]:
    """The report as plain data; a field of which nothing at all was recorded is the text `unknown`."""
    told: dict[str, Any] = orjson.loads(orjson.dumps(handoff))
    told["filled"] = round(handoff.filled(), 3)
    for name in handoff.unknown:
        told[name] = told[name] if _says_something(told[name]) else UNKNOWN
    return told


def _says_something(value: Any) -> bool:  # noqa: ANN401 - JSON
    return any(value.values()) if isinstance(value, dict) else bool(value)


def to_json(handoff: Handoff) -> bytes:
    """The report as JSON."""
    return orjson.dumps(to_dict(handoff))


def to_markdown(told: dict[str, Any]) -> str:
    """Write a report (as `to_dict` gives it) as Markdown."""
    lines = [f"# Hand-off: session {_code(told['session_id'])}", ""]
    lines += [f"{_who(told)} {_STATES.get(told['state'], told['state'])}. {_headline(told)}".rstrip()]
    lines += _held(told.get("held_by") or [])
    for name, title in _TITLES.items():
        lines += ["", f"## {title}", ""]
        value = told[name]
        lines += [UNKNOWN] if value == UNKNOWN else list(_WRITERS[name](value))
    unknown = ", ".join(_TITLES[name].lower() for name in told["unknown"]) or "nothing"
    made = _time(told["made_ns"])
    lines += ["", f"Made {made}; {told['filled']:.0%} of its fields are filled, unknown: {unknown}.", ""]
    return "\n".join(lines)


def _who(told: dict[str, Any]) -> str:
    agent, service = (_plain(told[part] or "") for part in ("agent", "service"))
    return f"The run of {agent or 'an agent'}{f' of {service}' if service else ''}"


def _held(breakers: list[dict[str, Any]]) -> Iterator[str]:
    """What refuses its calls; reports of versions that did not tell have none."""
    if breakers:
        yield ""
    for one in breakers:
        parts = [f"{part} {_code(value)}" for part, value in one["scope"].items() if part != "tenant"]
        over = ", ".join(parts) or f"every agent of tenant {_code(one['scope'].get('tenant', ''))}"
        state = "" if one["state"] == "open" else f", {one['state'].replace('_', ' ')}"
        since = _time(one["since_ns"])
        yield f"- Held by breaker {_code(one['id'])} ({one['action']}{state}) over {over} since {since}."


def _headline(told: dict[str, Any]) -> str:
    if not told["kind"]:
        return "Nothing was found."
    return f"**{told['kind']}** ({told['severity']}): {_code(told['headline'])}"


def _goal(value: str) -> Iterator[str]:
    yield f"> {_code(value)}"


def _onset(value: dict[str, Any]) -> Iterator[str]:
    call = f"call {value['number']}, " if value["number"] else ""
    span = f", span {_code(value['span_id'])}" if value["span_id"] else ""
    yield f"Stuck since {call}{_time(value['at_ns'])} ({value['rule']}){span}."
    began = f"call {value['began_number']}, " if value["began_number"] else ""
    if value["began_ns"]:
        yield f"The streak began with {began}{_time(value['began_ns'])}."
    if value["found_ns"]:
        found = f"call {value['found_number']}, " if value["found_number"] else ""
        yield f"It was found at {found}{_time(value['found_ns'])}{_latest(value)}."


def _latest(value: dict[str, Any]) -> str:
    """At which call what is said of it now was seen, when that is a later one."""
    at_ns, number = value.get("latest_ns", 0), value.get("latest_number", 0)
    if at_ns <= value["found_ns"] or number == value["found_number"]:
        return ""
    return f"; what is said of it now is as of {f'call {number}, ' if number else ''}{_time(at_ns)}"


def _next_step(value: dict[str, Any]) -> Iterator[str]:
    yield f"**{value['prescription']}** ({value['because']}): {_plain(value['text'])}"


def _causes(value: dict[str, Any]) -> Iterator[str]:
    for name in ("confirmed", "suspected"):
        for cause in value[name]:
            yield f"- {name}: {_code(cause['text'])} ({_plain(cause['evidence'])})"


def _failing_paths(value: list[dict[str, Any]]) -> Iterator[str]:
    for path in value:
        calls = f"calls {path['first_number']} to {path['last_number']}"
        different = f", {path['different']} different calls" if path["different"] > 1 else ""
        end = "; it worked later" if path["recovered"] else ""
        failed = f"{_times(path['failures'])} {path['error_class']}"
        yield f"- {_code(path['operation'])}: {failed} ({calls}{different}){end}"
        if path["arguments"]:
            yield f"  - first asked: {_code(path['arguments'])}"
        if path["error"]:
            yield f"  - error: {_code(path['error'])}"


def _not_tried(value: list[dict[str, Any]]) -> Iterator[str]:
    for one in value:
        yield f"- {_plain(one['what'])} ({_plain(one['evidence'])})"


def _side_effects(value: dict[str, Any]) -> Iterator[str]:
    for one in value["done"]:
        safe = "repeat is safe" if one["repeat_safe"] else "no idempotency key"
        called = f"{_code(one['tool'])} {_code(one['arguments'])}"
        yield f"- {one['level']}: {called} ({_times(one['times'])}, {safe})"
    if value["more"]:
        yield f"- {value['more']} more"
    if value["unclear"]:
        tools = ", ".join(map(_code, value["unclear_tools"]))
        yield f"- unclear: {value['unclear']} calls that worked may have changed something ({tools})"
    elif not value["done"]:
        reads = value["reads"]
        yield f"None: all {reads} calls that worked only read." if reads else "None: no call has worked."


def _cost(value: dict[str, Any]) -> Iterator[str]:
    tokens, usd = value["tokens"], value["usd"]
    since = value["calls_since_onset"]
    yield (
        f"{value['calls']} calls ({value['failures']} failed, {value['denied']} refused"
        + (f", {since} since the onset" if since is not None else "")
        + f"), {value['model_calls']} model calls, {_known(tokens, 'tokens')}, {_known(usd, 'US dollars')} "
        f"in {value['seconds']:.0f} s."
    )
    rates = [
        f"{_known(value[name], unit)}"
        for name, unit in (
            ("calls_per_minute", "calls"),
            ("tokens_per_minute", "tokens"),
            ("usd_per_minute", "US dollars"),
        )
    ]
    yield f"Burn in the last five minutes, a minute: {', '.join(rates)}."


def _timeline(value: list[dict[str, Any]]) -> Iterator[str]:
    for one in value:
        call = f"call {one['number']}: " if one["number"] else ""
        yield f"- {_time(one['at_ns'])} {call}{_plain(one['text'])}"


def _links(value: list[dict[str, Any]]) -> Iterator[str]:
    for one in value:
        trace = f"trace {_code(one['trace_id'])}, " if one["trace_id"] else ""
        yield f"- {_plain(one['what'])}: {trace}span {_code(one['span_id'])}"


_WRITERS: Final[dict[str, Callable[[Any], Iterator[str]]]] = {
    "goal": _goal,
    "onset": _onset,
    "next_step": _next_step,
    "causes": _causes,
    "failing_paths": _failing_paths,
    "not_tried": _not_tried,
    "side_effects": _side_effects,
    "cost": _cost,
    "timeline": _timeline,
    "links": _links,
}


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _known(value: float | None, unit: str) -> str:
    return f"unknown {unit}" if value is None else f"{value:,.6g} {unit}"


def _time(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _code(text: object) -> str:
    """Foreign text that Markdown leaves alone: a line in back quotes, without any of its own."""
    return f"`{' '.join(plain(str(text)).replace('`', chr(0x2019)).split()) or ' '}`"


def _plain(text: object) -> str:
    """Text with what Markdown, HTML and terminals would read taken out of force."""
    line = " ".join(plain(str(text)).split())
    for sign in "\\`*_[]<>|#!":
        line = line.replace(sign, f"\\{sign}")
    return line
