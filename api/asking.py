"""What the commands of on-call have in common: where the sidecar is, how they end, and times in words."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from api.config import ConfigError, load
from api.printable import printable

if TYPE_CHECKING:
    from api.talking import Sidecar

BAD_INPUT: Final = 2
MAKES_NO_SENSE: Final = 1
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LENGTH: Final = re.compile(r"([0-9]{1,7})([smhd])")

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="RECLOSER_URL",
        help="The sidecar's API, e.g. http://127.0.0.1:4319; without: by the settings",
    ),
]
Config = Annotated[
    Path | None, typer.Option("--config", help="TOML file with settings; RECLOSER_* variables come before it")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON")]
Reason = Annotated[str, typer.Option("--reason", help="Why; others see it, the audit keeps it")]


def sidecar(url: str | None, config: Path | None) -> Sidecar:
    """Find the sidecar: by `url`, else by the settings. Ends with status 2 when those make no sense."""
    from api.talking import Sidecar, address

    try:
        base = address(load({}, config), url)
    except ConfigError as error:
        raise fail(str(error)) from error
    return Sidecar(base=base, token=os.environ.get("RECLOSER_TOKEN"))


@contextmanager
def answering(missing: str = "", conflict: str = "") -> Iterator[None]:
    """End the program in words: status 1 for what makes no sense as things are, else 2.

    `missing`, `conflict`: what to do when the API answers 404, 409.
    """
    from api.talking import CONFLICT, RefusedError, TalkError

    try:
        yield
    except RefusedError as error:
        hint = {404: missing, 409: conflict}.get(error.status, "")
        code = MAKES_NO_SENSE if error.status in CONFLICT else BAD_INPUT
        raise fail(f"{error}{'; ' if hint else ''}{hint}", code) from error
    except TalkError as error:
        raise fail(str(error)) from error


def fail(message: str, code: int = BAD_INPUT) -> typer.Exit:
    """Say what is wrong; return what ends the program."""
    warn(message)
    return typer.Exit(code)


def warn(message: str) -> None:
    """Say something beside the answer."""
    sys.stderr.write(f"recloser: {printable(message)}\n")


def say(line: str) -> None:
    """Print one line of an answer, harmless whoever wrote it."""
    sys.stdout.write(f"{printable(line)}\n")


def say_json(answer: dict[str, Any]) -> None:
    """Print the API's JSON, in ASCII: a terminal obeys none of it."""
    sys.stdout.write(json.dumps(answer, indent=2) + "\n")


def only_listing(context: typer.Context) -> bool:
    """Tell whether a group was called by itself, to list.

    Ends with status 2 when an option stands between the group and one of its commands: it would be lost.
    """
    if context.invoked_subcommand is None:
        return True
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            word = context.invoked_subcommand
            raise fail(f"{parameter.opts[0]} belongs behind `{word}`: {context.command_path} {word} …")
    return False


def path_of(*parts: str) -> str:
    """Make a path of the API; what is in a part stays in it.

    >>> path_of("alerts", "al_1/../x")
    '/v1/alerts/al_1%2F..%2Fx'
    """
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def seconds(option: str, text: str) -> int:
    """Read a length of time. Ends with status 2 when it is none.

    >>> seconds("--for", "30m")
    1800
    """
    found = _LENGTH.fullmatch(text)
    if found is None or not int(found[1]):
        raise fail(f"{option} {text}: say a number and s, m, h or d, e.g. 30m")
    return int(found[1]) * _UNITS[found[2]]


def since(at: str | None, now: datetime) -> str:
    """How long ago a time of the API is, in its largest units; `-` for none.

    >>> now = datetime.fromisoformat("2026-11-01T12:00:00Z")
    >>> since("2026-11-01T10:55:00Z", now), since("2026-10-28T11:00:00Z", now), since(None, now)
    ('1h05m', '4d1h', '-')
    """
    return "-" if at is None else _words(now - datetime.fromisoformat(at))


def until(at: str | None, now: datetime) -> str:
    """How long it is until a time of the API, as `since`."""
    return "-" if at is None else _words(datetime.fromisoformat(at) - now)


def _words(length: timedelta) -> str:
    whole = max(0, round(length.total_seconds()))
    if whole < 60:  # noqa: PLR2004 - seconds
        return f"{whole}s"
    minutes, hours, days = whole // 60 % 60, whole // 3600 % 24, whole // 86_400
    if days:
        return f"{days}d{hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    return f"{minutes}m"
