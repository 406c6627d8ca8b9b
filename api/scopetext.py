"""Scopes in a query string: `session:chat-17,tool:fetch_page`."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from api.breakerview import kept_in_scope
from api.problems import ApiError
from control.scope import PARTS, Asked, Scope

_ARGS: Final = re.compile("[0-9a-f]{16}")


def scope_from(text: str) -> Scope:
    """Read a scope. Raises `ApiError` 422.

    >>> scope_from("session:a%2Cb,tool:t") == Scope(session="a,b", tool="t")
    True
    """
    return Scope(**_parts(text))


def asked_from(text: str) -> Asked:
    """Read what a call says of itself; an agent may be `name@version`. Raises `ApiError` 422."""
    parts = _parts(text)
    agent, at, version = parts.get("agent", "").rpartition("@")
    if at and agent:
        parts["agent"], parts["agent_version"] = agent, version
    return Asked(**parts)


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for item in text.split(","):
        name, colon, value = item.partition(":")
        if not colon or not value or name not in PARTS or name in parts:
            known = ", ".join(PARTS)
            raise ApiError(422, "invalid", f"scope: expected part:value with one of {known}, not {item!r}")
        parts[name] = kept_in_scope(name, unquote(value))
    if not _ARGS.fullmatch(parts.get("args", "0" * 16)):
        raise ApiError(422, "invalid", "scope: args is a signature of 16 hex digits")
    return parts
