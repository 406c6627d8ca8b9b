"""A policy file: TOML in, the policy or everything that is wrong with it (file, line, key) out."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from api.policycompile import Compiler, Problem, suggestion
from api.policykeys import FileKeys
from api.tomllines import Lines
from api.tomllines import Path as KeyPath
from control.policy import Policy

MAX_BYTES: Final = 1 << 20
_AT_LINE: Final = re.compile(r"(?P<message>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", re.DOTALL)
_AT_END: Final = "(at end of document)"
_SAID: Final[Mapping[str, str]] = {
    "missing": "is needed",
    "tuple_type": "must be a list",
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "model_type": "must be a table",
    "finite_number": "must be a number that is finite",
}
"""What pydantic's types of errors are called here; all others keep pydantic's words."""


class PolicyError(Exception):
    """A policy file is wrong; each line of the message names file, line and key."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy as it was read: its text, the SHA-256 of that (hex), and what it says."""

    path: Path
    text: str
    sha256: str
    policy: Policy


def read_policy(path: Path, destinations: Iterable[str] | None = None, escalate_after: int = 3) -> PolicyFile:
    """Read a policy file. Raises `PolicyError`; all else as in `parse_policy`."""
    try:
        raw = _read(path)
    except OSError as error:
        raise PolicyError(f"{path}: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise PolicyError(f"{path}:{line}: is not UTF-8: {error.reason}") from error
    policy = parse_policy(text, str(path), destinations, escalate_after)
    return PolicyFile(path, text, hashlib.sha256(raw).hexdigest(), policy)


def _read(path: Path) -> bytes:
    """Read a file that has an end: a running process would wait for a pipe and read on in a device."""
    with open(path, "rb", opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PolicyError(f"{path}: is no regular file")
        raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        size = max(status.st_size, len(raw))
        raise PolicyError(f"{path}: a policy may have {MAX_BYTES} bytes at most, this file has {size}")
    return raw


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def parse_policy(
    text: str, name: str, destinations: Iterable[str] | None = None, escalate_after: int = 3
) -> Policy:
    """Make a policy of TOML.

    `destinations`: names that may be told, None: any. `escalate_after`: what holds where the text does not
    say it. Raises `PolicyError` that names everything that is wrong, each with `name`, line and key.
    """
    text = text.replace("\r\n", "\n")
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(_syntax(name, text, str(error))) from error
    compiler = Compiler(destinations, escalate_after)
    policy: Policy | None = None
    try:
        keys = FileKeys.model_validate_json(json.dumps(given, default=str), strict=True)
    except ValidationError as error:
        problems = _problems(error, given)
    else:
        policy = compiler.policy(keys)
        problems = compiler.problems
    if policy is None:
        lines = Lines(text)
        told = sorted({(lines.of(each.path), spelled(each.path), each.message) for each in problems})
        raise PolicyError("\n".join(f"{name}:{line}: {key}: {message}" for line, key, message in told))
    return policy


def spelled(path: KeyPath) -> str:
    """Write a key as messages name it; lists count from 1.

    >>> spelled(("rule", 1, "trip", "scope"))
    'rule.2.trip.scope'
    """
    return ".".join(str(part + 1) if isinstance(part, int) else part for part in path)


def _syntax(name: str, text: str, message: str) -> str:
    match = _AT_LINE.fullmatch(message)
    if match is None:  # at the end of the text
        line = text.rstrip().count("\n") + 1
        return f"{name}:{line}: {message.replace(_AT_END, '(at the end)')}"
    return f"{name}:{match['line']}: {match['message']} (column {match['column']})"


def _problems(error: ValidationError, given: Mapping[str, Any]) -> list[Problem]:
    """Say in our words what pydantic found, once a key."""
    found: dict[KeyPath, str] = {}
    for each in error.errors(include_url=False):
        path = _real(each["loc"], given, each["type"])
        ctx: Mapping[str, Any] = each.get("ctx", {})
        if each["type"] == "extra_forbidden":
            message = f"there is no such key; {suggestion(str(path[-1]), _keys_at(path[:-1]))}"
        elif each["type"] == "literal_error":
            known = re.findall(r"'([^']*)'", str(ctx.get("expected", "")))
            message = f"{each['input']!r} is not known; {suggestion(str(each['input']), known)}"
        else:
            message = _SAID.get(each["type"], each["msg"].replace("Input should", "must"))
        alternatives = found.get(path)
        found[path] = message if alternatives in (None, message) else f"{alternatives}, or {message}"
    return [Problem(path, message) for path, message in found.items()]


def _real(location: tuple[int | str, ...], given: object, kind: str) -> KeyPath:
    """Leave out of a location what pydantic adds for the alternatives of a type."""
    path: list[int | str] = []
    at = given
    for number, part in enumerate(location, start=1):
        last = number == len(location)
        if isinstance(at, Mapping) and (part in at or (last and kind == "missing")):
            at = at.get(part)
        elif isinstance(at, list) and isinstance(part, int) and part < len(at):
            at = at[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _keys_at(path: KeyPath) -> list[str]:
    """Return the keys that a table may have."""
    model: type[BaseModel] = FileKeys
    for part in path:
        if isinstance(part, str):
            inner = _model(model.model_fields[part].annotation)
            model = model if inner is None else inner
    return sorted(model.model_fields)


def _model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (tuple, Union, UnionType):
        return next((found for each in get_args(annotation) if (found := _model(each)) is not None), None)
    return None
