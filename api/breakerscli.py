"""The commands `breakers …` and `stop`, through the running sidecar."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote

import typer

from api.asking import (
    MAKES_NO_SENSE,
    AsJson,
    Config,
    Reason,
    Url,
    answering,
    fail,
    only_listing,
    path_of,
    say,
    say_json,
    seconds,
    sidecar,
    since,
    until,
    warn,
)
from api.breakerwords import PARTS, facts, scope_words, spelled, why
from control.action import Action

if TYPE_CHECKING:
    from api.talking import Sidecar

_HEADS: Final = ("id", "state", "strength", "since", "until", "denied")
_MISSING: Final = "`recloser breakers --all` lists those that there are"
_CONFLICT: Final = "`recloser breakers show ID` tells how it stands"
_NOT_FOUND: Final = 404
_CONFLICTS: Final = 409
_REFUSING: Final = ("open", "forced_open")

commands = typer.Typer(
    name="breakers",
    invoke_without_command=True,
)

BreakerId = Annotated[str, typer.Argument(metavar="ID", help="As `recloser breakers` shows it: br_…")]
MaybeId = Annotated[
    str | None, typer.Argument(metavar="ID", help="As `recloser breakers` shows it; or say the scope")
]
Strength = Annotated[Action | None, typer.Option("--action", help="How strong; as it was, or deny")]
Length = Annotated[
    str | None, typer.Option("--for", help="How long: 30m, 2h, 7d; without: until a person acts")
]
Service = Annotated[str | None, typer.Option("--service", help="Scope: this service")]
Agent = Annotated[str | None, typer.Option("--agent", help="Scope: this agent, or name@version")]
Session = Annotated[str | None, typer.Option("--session", help="Scope: this session")]
Run = Annotated[str | None, typer.Option("--run", help="Scope: this run")]
Tool = Annotated[str | None, typer.Option("--tool", help="Scope: this tool")]
Args = Annotated[str | None, typer.Option("--args", help="Scope: this signature of a call, 16 hex digits")]
Model = Annotated[str | None, typer.Option("--model", help="Scope: this model")]


@commands.callback()
def list_(
    context: typer.Context,
    *,
    every: Annotated[bool, typer.Option("--all", help="Closed ones, too")] = False,
    session: Annotated[str | None, typer.Option("--session", help="Only of this session")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="With --all: how many at most")] = 100,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """List what is stopped now; stop more, let it go on, hold it.

    Asks the running sidecar, with RECLOSER_TOKEN where tokens are needed. Ends with status 0; 1 when a change
    makes no sense as the breaker stands; 2 when there is none, it is not allowed, or nobody can be asked.
    """
    if not only_listing(context):
        return
    place = sidecar(url, config)
    with answering():
        if every:
            found = place.get(path_of("breakers"), session_id=session, limit=limit)
        else:
            found = place.get(path_of("breakers"), session_id=session, active=True)
    if as_json:
        say_json(found)
        return
    _print(found["breakers"], "there is no breaker" if every else "nothing is stopped: no breaker is open")
    if found["next_before"] is not None:
        warn(f"there are more, changed earlier: --limit shows more than {limit}")


@commands.command()
def show(breaker_id: BreakerId, *, as_json: AsJson = False, url: Url = None, config: Config = None) -> None:
    """Show one breaker: what it covers, how it stands, why, and what to do next."""
    from api.listing import print_facts

    place = sidecar(url, config)
    with answering(_MISSING):
        breaker = place.get(path_of("breakers", breaker_id))
    if as_json:
        say_json(breaker)
    else:
        print_facts(facts(breaker, datetime.now(UTC)))


@commands.command()
def trip(
    breaker_id: MaybeId = None,
    *,
    reason: Reason,
    action: Strength = None,
    length: Length = None,
    service: Service = None,
    agent: Agent = None,
    session: Session = None,
    run: Run = None,
    tool: Tool = None,
    args: Args = None,
    model: Model = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Refuse calls: of a breaker by its ID, or of all that a scope covers. Makes a weaker one stronger."""
    target = _target(breaker_id, (service, agent, session, run, tool, args, model))
    _act("trip", target, _terms(reason, length, action), sidecar(url, config), as_json=as_json)


@commands.command("force-open")
def force_open(
    breaker_id: MaybeId = None,
    *,
    reason: Reason,
    action: Strength = None,
    length: Length = None,
    service: Service = None,
    agent: Agent = None,
    session: Session = None,
    run: Run = None,
    tool: Tool = None,
    args: Args = None,
    model: Model = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Hold open whatever else happens, until `release` or the end of --for."""
    target = _target(breaker_id, (service, agent, session, run, tool, args, model))
    _act("force_open", target, _terms(reason, length, action), sidecar(url, config), as_json=as_json)


@commands.command("force-close")
def force_close(
    breaker_id: MaybeId = None,
    *,
    reason: Reason,
    length: Annotated[str, typer.Option("--for", help="How long: 30m, 2h; 30 days at most")],
    service: Service = None,
    agent: Agent = None,
    session: Session = None,
    run: Run = None,
    tool: Tool = None,
    args: Args = None,
    model: Model = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Let calls through for a while, although breakers of this or a wider scope are open."""
    target = _target(breaker_id, (service, agent, session, run, tool, args, model))
    _act("force_close", target, _terms(reason, length), sidecar(url, config), as_json=as_json)


@commands.command()
def shadow(
    breaker_id: BreakerId,
    *,
    reason: Reason,
    length: Length = None,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Only record what it would refuse."""
    _act("shadow", breaker_id, _terms(reason, length), sidecar(url, config), as_json=as_json)


@commands.command()
def reset(
    breaker_id: BreakerId, *, reason: Reason, as_json: AsJson = False, url: Url = None, config: Config = None
) -> None:
    """Close it: calls go on. It opens again only for what is found after this."""
    _act("reset", breaker_id, _terms(reason), sidecar(url, config), as_json=as_json)


@commands.command()
def release(
    breaker_id: BreakerId, *, reason: Reason, as_json: AsJson = False, url: Url = None, config: Config = None
) -> None:
    """End a hold: what was open before it is open again, all else is closed."""
    _act("release", breaker_id, _terms(reason), sidecar(url, config), as_json=as_json)


def stop(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="The session's id, as the agent sends it")
    ],
    *,
    reason: Reason,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """Stop a session: refuse all its further calls, and tell its run to end. A person can reset that.

    Asks the running sidecar, with RECLOSER_TOKEN where tokens are needed. Ends with status 0, also when it is
    stopped already; 1 when a person holds its breaker otherwise; 2 when it is not allowed, or nobody can be
    asked.
    """
    if not session:
        raise fail("SESSION: say which one")
    place = sidecar(url, config)
    with answering():
        breaker, stopped_before = _halted(place, session, reason)
        known = _is_known(place, session)
    if as_json:
        say_json(breaker)
    elif stopped_before:
        say(f"session {session} is halted already: {breaker['id']} ({breaker['state']})")
    else:
        say(f"session {session} is halted: {breaker['id']}")
        say("if its run goes on all the same, an alert still_running says so")
        say(f"to let it go on: recloser breakers reset {breaker['id']} --reason …")
    if not known:
        warn(f"nothing was seen of a session {session!r}: is it spelled as the agent sends it?")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)
    app.command()(stop)


def _target(breaker_id: str | None, parts: tuple[str | None, ...]) -> str | dict[str, str]:
    """Return what is meant. Ends with status 2 unless it is a breaker by its id or the parts of a scope."""
    scope = {name: value for name, value in zip(PARTS, parts, strict=True) if value is not None}
    if (breaker_id is None) is not bool(scope):
        raise fail(f"give either the ID of a breaker or a scope: {', '.join(f'--{name}' for name in PARTS)}")
    return scope if breaker_id is None else breaker_id


def _terms(reason: str, length: str | None = None, action: Action | None = None) -> dict[str, Any]:
    terms: dict[str, Any] = {"reason": reason}
    if length is not None:
        terms["ttl_s"] = seconds("--for", length)
    if action is not None:
        terms["action"] = action.value
    return terms


def _act(
    do: str, target: str | dict[str, str], terms: dict[str, Any], place: Sidecar, *, as_json: bool
) -> None:
    with answering(_MISSING, _CONFLICT):
        if isinstance(target, str):
            breaker = place.post(path_of("breakers", target, do), terms)
        else:
            breaker = place.post(path_of("breakers"), {"scope": target, "do": do, **terms})
    if as_json:
        say_json(breaker)
    else:
        say(f"{breaker['id']} over {scope_words(breaker['scope'])} is {spelled(breaker)}")


def _halted(place: Sidecar, session: str, reason: str) -> tuple[dict[str, Any], bool]:
    """Halt a session; return its breaker, and whether it was halted before. Raises `TalkError`.

    Ends with status 1 when a person holds the breaker in another way.
    """
    from api.talking import RefusedError

    scope, halt = {"session": session}, Action.HALT.value
    try:
        made = place.post(path_of("breakers"), {"scope": scope, "action": halt, "reason": reason})
    except RefusedError as error:
        if error.status != _CONFLICTS:
            raise
        found = _over(place, session)
        if not found:
            raise
    else:
        return made, False
    (breaker,) = found
    if breaker["action"] == halt and breaker["state"] in _REFUSING:
        return breaker, True
    how = f"{breaker['id']} over session {session} is {spelled(breaker)}"
    do = f"recloser breakers force-open {breaker['id']} --action halt --reason …"
    raise fail(f"NOT stopped: {how}; to stop it all the same: {do}", MAKES_NO_SENSE)


def _over(place: Sidecar, session: str) -> list[dict[str, Any]]:
    """Return the breaker over a session; nothing when there is none, or this caller may not look."""
    from api.talking import RefusedError

    scope = f"session:{quote(session, safe='')}"
    try:
        found: list[dict[str, Any]] = place.get(path_of("breakers"), scope=scope)["breakers"]
    except RefusedError:
        return []
    return found


def _is_known(place: Sidecar, session: str) -> bool:
    """Tell whether anything was seen of a session; what this caller may not know counts as seen."""
    from api.talking import RefusedError, TalkError

    try:
        run = place.get(path_of("runs", session))
    except RefusedError as error:
        return error.status != _NOT_FOUND
    except TalkError:
        return True
    return run["notes"] is not None or bool(run["findings"])


def _print(breakers: list[dict[str, Any]], none: str) -> None:
    from api.listing import Entry, print_list

    if not breakers:
        say(none)
        return
    now = datetime.now(UTC)
    entries = [
        Entry(
            cells=(
                each["id"],
                each["state"],
                each["action"],
                since(each["opened_at"], now),
                "latched" if each["latched"] else until(each["forced_until"] or each["until"], now),
                str(each["denied"]),
            ),
            lines=(scope_words(each["scope"]), why(each)),
        )
        for each in breakers
    ]
    print_list(_HEADS, entries)
