"""A breaker of the API in words for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from api.asking import since, until

PARTS: Final = ("service", "agent", "session", "run", "tool", "args", "model")
"""The parts of a scope that a command can say."""


def scope_words(scope: Mapping[str, str | None]) -> str:
    """Say what is covered.

    >>> scope_words({"tenant": "default", "session": "chat-17", "tool": "fetch", "run": None})
    'session chat-17, tool fetch'
    """
    said = [f"{part} {scope[part]}" for part in PARTS if scope.get(part) is not None]
    tenant = scope["tenant"]
    if tenant != "default":
        said.insert(0, f"tenant {tenant}")
    return ", ".join(said) if said else f"everything of tenant {tenant}"


def why(breaker: Mapping[str, Any]) -> str:
    """Say who opened it for what.

    >>> why({"reason": "doom_loop", "actor": {"type": "rule", "id": "stop"}, "note": ""})
    'doom_loop, by rule stop'
    """
    actor = breaker["actor"]
    by = f"{breaker['reason']}, by {actor['type']} {actor['id']}"
    return f"{by}: {breaker['note']}" if breaker["note"] else by


def spelled(breaker: Mapping[str, Any]) -> str:
    """Say how it stands, and until when.

    >>> spelled({"state": "open", "action": "halt", "forced_until": None, "until": None})
    'open (halt)'
    """
    refuses = breaker["state"] in ("open", "half_open", "forced_open")
    strength = f" ({breaker['action']})" if refuses else ""
    end = breaker["forced_until"] or breaker["until"]
    return f"{breaker['state']}{strength}{f' until {end}' if end else ''}"


def facts(breaker: Mapping[str, Any], now: datetime) -> list[tuple[str, str]]:
    """All that a person asks about it, by name."""
    end = breaker["forced_until"] or breaker["until"]
    session = breaker["scope"]["session"]
    tainted = (breaker["quarantine"] or {}).get("tainted_steps")
    return [
        ("id", breaker["id"]),
        ("covers", scope_words(breaker["scope"])),
        ("state", breaker["state"]),
        ("strength", breaker["action"]),
        ("opened", f"{breaker['opened_at']} ({since(breaker['opened_at'], now)} ago)"),
        ("until", f"{end} (in {until(end, now)})" if end else ""),
        ("closed", breaker["closed_at"] or ""),
        ("latched", "it opened too often and stays open until a person resets it" * breaker["latched"]),
        ("denied", str(breaker["denied"])),
        ("why", why(breaker)),
        ("finding", breaker["finding_id"]),
        ("rule", breaker["rule"]),
        ("told", breaker["message_for_human"]),
        ("model is told", breaker["message_for_model"]),
        ("tainted", f"{len(tainted)} steps" if tainted else ""),
        ("look", f"recloser handoff {shlex.quote(session)}" if session else ""),
        ("next", _next(breaker)),
    ]


def _next(breaker: Mapping[str, Any]) -> str:
    word = {"forced_open": "release", "forced_closed": "release", "closed": "trip"}.get(
        breaker["state"], "reset"
    )
    return f"recloser breakers {word} {breaker['id']} --reason …"
