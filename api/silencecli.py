"""The commands `silence add`, `silence list` and `silence end`, through the running sidecar."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api.asking import (
    AsJson,
    Config,
    Url,
    answering,
    fail,
    path_of,
    say,
    say_json,
    seconds,
    sidecar,
    since,
    until,
)

if TYPE_CHECKING:
    from api.talking import Sidecar

_MATCHER: Final = re.compile(r"\s*([A-Za-z_]+)\s*(=~|!~|!=|=)(.*)", re.DOTALL)
_HEADS: Final = ("id", "state", "ends in", "made by")
_PAGE: Final = 1000

commands = typer.Typer(
    name="silence",
    help="Hold back for a time what alerts would announce; list and end such silences.\n\n"
    "Asks the running sidecar, with RECLOSER_TOKEN where tokens are needed.",
    no_args_is_help=True,
)


@commands.command()
def add(
    *,
    match: Annotated[
        list[str],
        typer.Option(
            "--match",
            help="label=value, !=, or =~ and !~ for a pattern of the whole value; repeat: all must hold. "
            "Labels: kind, severity, service, agent, tool, session_id, alert_id, rule",
        ),
    ],
    length: Annotated[str, typer.Option("--for", help="How long: 30m, 2h, 7d; 30 days at most")],
    comment: Annotated[str, typer.Option(help="Why; others see it")],
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Silence alerts for which all --match hold. What still fires at the end is announced then.

    Ends with status 0; 1 when there are too many silences; 2 when it makes no sense or is not allowed.
    """
    wanted = {
        "matchers": [matcher(each) for each in match],
        "ends_at": _end(length),
        "comment": comment,
    }
    place = sidecar(url, config)
    with answering(conflict="`recloser silence list` shows which can be ended"):
        made = place.post(path_of("silences"), wanted)
    if as_json:
        say_json(made)
        return
    say(f"{made['id']} is {made['state']} until {made['ends_at']}: {_matchers(made)}")
    held = _held(place, made["id"])
    if held is not None:
        say(f"alerts that fire now and match it: {held or 'none'}")


@commands.command("list")
def list_(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over")] = False,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """List silences, the newest first. Ends with status 0; 2 when nobody can be asked."""
    from api.listing import Entry, print_list

    place = sidecar(url, config)
    with answering():
        found = place.get(path_of("silences"), over=every, limit=_PAGE)
    if as_json:
        say_json(found)
        return
    if not found["silences"]:
        say("there is no silence")
        return
    now = datetime.now(UTC)
    entries = [
        Entry(
            cells=(
                each["id"],
                each["state"],
                f"{since(each['ends_at'], now)} ago"
                if each["state"] == "over"
                else until(each["ends_at"], now),
                each["created_by"],
            ),
            lines=(_matchers(each), each["comment"]),
        )
        for each in found["silences"]
    ]
    print_list(_HEADS, entries)


@commands.command()
def end(
    silence_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `recloser silence list` shows it: si_…")
    ],
    *,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """End a silence now; what still fires is announced.

    Ends with status 0; 1 when it is over already; 2 when there is none, or it is not allowed.
    """
    place = sidecar(url, config)
    with answering("`recloser silence list` lists those that there are"):
        ended = place.delete(path_of("silences", silence_id))
    if as_json:
        say_json(ended)
    else:
        say(f"{ended['id']} is over: {_matchers(ended)}")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)


def matcher(text: str) -> dict[str, str]:
    """Read one condition. Ends with status 2 when it is none.

    >>> matcher("service=~shop.*=1")
    {'name': 'service', 'op': '=~', 'value': 'shop.*=1'}
    """
    found = _MATCHER.fullmatch(text)
    if found is None:
        raise fail(f"--match {text}: write label=value, with =, !=, =~ or !~, e.g. kind=doom_loop")
    return {"name": found[1], "op": found[2], "value": found[3]}


def _end(length: str) -> str:
    try:
        return (datetime.now(UTC) + timedelta(seconds=seconds("--for", length))).isoformat()
    except OverflowError as error:
        raise fail(f"--for {length}: 30 days at most") from error


def _held(place: Sidecar, silence_id: str) -> int | None:
    """Count the firing alerts that a silence matches, of the newest thousand; None when nobody tells."""
    from api.talking import TalkError

    try:
        firing = place.get(path_of("alerts"), state="firing", silenced=True, limit=_PAGE)["alerts"]
    except TalkError:
        return None
    return sum(silence_id in alert["silenced_by"] for alert in firing)


def _matchers(silence: dict[str, Any]) -> str:
    return "  ".join(f"{each['name']}{each['op']}{each['value']}" for each in silence["matchers"])
