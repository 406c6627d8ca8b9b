"""The commands `alerts`, `alerts show`, `alerts ack` and `alerts resolve`, through the running sidecar."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from api.asking import (
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
    sidecar,
    since,
    warn,
)

if TYPE_CHECKING:
    from api.listing import Entry
    from api.talking import Sidecar

_HEADS: Final = ("id", "age", "severity", "kind", "state")
_MISSING: Final = "`recloser alerts --all` lists those that there are"


class AlertState(StrEnum):
    """As the API names them; not control's own, which would be slow to load."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


commands = typer.Typer(
    name="alerts",
    invoke_without_command=True,
)

AlertId = Annotated[str, typer.Argument(metavar="ID", help="As `recloser alerts` shows it: al_…")]


@commands.callback()
def list_(
    context: typer.Context,
    *,
    every: Annotated[bool, typer.Option("--all", help="Resolved and pending ones, too")] = False,
    state: Annotated[AlertState | None, typer.Option(help="Only in this state, instead of firing")] = None,
    session: Annotated[str | None, typer.Option(help="Only of this session")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many at most")] = 100,
    as_json: AsJson = False,
    url: Url = None,
    config: Config = None,
) -> None:
    """List the alerts that fire, the newest first; acknowledge and resolve them.

    Asks the running sidecar, with RECLOSER_TOKEN where tokens are needed. Ends with status 0; 2 when nobody
    can be asked.
    """
    if not only_listing(context):
        return
    if every and state is not None:
        raise fail("--all and --state: give one of them")
    wanted = None if every else state or AlertState.FIRING
    place = sidecar(url, config)
    with answering():
        found = place.get(path_of("alerts"), state=wanted, session_id=session, limit=limit)
        if as_json:
            say_json(found)
            return
        active = _active(place, found["alerts"])
    _print(found["alerts"], active, wanted)
    if found["next_before"] is not None:
        warn(f"there are more, older ones: --limit shows more than {limit}")


@commands.command()
def show(alert_id: AlertId, *, as_json: AsJson = False, url: Url = None, config: Config = None) -> None:
    """Show one alert: what is stuck, what holds it, who was told, and what to do next."""
    from api.listing import print_facts

    place = sidecar(url, config)
    with answering(_MISSING):
        alert = place.get(path_of("alerts", alert_id))
        if as_json:
            say_json(alert)
            return
        active = _active(place, [alert])
    print_facts(_facts(alert, active, datetime.now(UTC)))


@commands.command()
def ack(
    alert_id: AlertId, *, reason: Reason, as_json: AsJson = False, url: Url = None, config: Config = None
) -> None:
    """Say that you look after it. It goes on to fire; others see who has it.

    Ends with status 0; 1 when it does not fire; 2 when there is none, or it is not allowed.
    """
    alert = _changed(alert_id, "ack", reason, sidecar(url, config))
    if as_json:
        say_json(alert)
    else:
        say(f"{alert['id']} is acknowledged by {alert['acknowledged_by']}: {alert['acknowledgement']}")


@commands.command()
def resolve(
    alert_id: AlertId, *, reason: Reason, as_json: AsJson = False, url: Url = None, config: Config = None
) -> None:
    """End it, and tell everybody who was told of it. It fires again only when its finding goes on.

    Ends with status 0; 1 when it is over already; 2 when there is none, or it is not allowed.
    """
    alert = _changed(alert_id, "resolve", reason, sidecar(url, config))
    if as_json:
        say_json(alert)
    else:
        say(f"{alert['id']} is resolved by {alert['resolved_by']}: {alert['note'] or reason}")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.add_typer(commands)


def _changed(alert_id: str, verb: str, reason: str, place: Sidecar) -> dict[str, Any]:
    with answering(_MISSING, "`recloser alerts show ID` tells how it stands"):
        return place.post(path_of("alerts", alert_id, verb), {"reason": reason})


def _active(place: Sidecar, alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All breakers that are not closed; none are asked for when there is no alert. Raises `TalkError`."""
    found: list[dict[str, Any]] = place.get(path_of("breakers"), active=True)["breakers"] if alerts else []
    return found


def _breakers(alert: dict[str, Any], active: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """How the breakers stand that the alert tripped or that name its session, by id."""
    named, session = alert["breaker_ids"], alert["finding"]["session_id"]
    held = {
        each["id"]: f"{each['state']} ({each['action']})"
        for each in active
        if each["id"] in named or (session and each["scope"]["session"] == session)
    }
    return dict.fromkeys(named, "closed") | held


def _print(
    alerts: list[dict[str, Any]], active: Sequence[Mapping[str, Any]], wanted: AlertState | None
) -> None:
    from api.listing import print_list

    if not alerts:
        say("there is no alert" if wanted is None else f"no alert is {wanted.value}")
        return
    now = datetime.now(UTC)
    print_list(_HEADS, [_entry(alert, active, now) for alert in alerts])


def _entry(alert: dict[str, Any], active: Sequence[Mapping[str, Any]], now: datetime) -> Entry:
    from api.listing import Entry

    finding = alert["finding"]
    age = since(alert["fired_at"], now)
    marks = [f"breaker {stands}" for stands in dict.fromkeys(_breakers(alert, active).values())]
    if alert["silenced_by"]:
        marks.append("silenced")
    if alert["covered_by"]:
        marks.append(f"covered by {alert['covered_by']}")
    if alert["acknowledged_by"]:
        marks.append(f"acked by {alert['acknowledged_by']}")
    told = ", ".join(filter(None, (_where(finding), finding["tool"], _calls(finding), *marks)))
    return Entry(
        cells=(alert["id"], age, finding["severity"], finding["kind"], alert["state"]), lines=(told,)
    )


def _where(finding: dict[str, Any]) -> str:
    """Service, agent and session.

    >>> _where({"service": "shop", "agent": None, "session_id": "", "session_ids": ["a", "b"]})
    'shop / 2 sessions'
    """
    sessions = finding["session_ids"]
    session = f"{len(sessions)} sessions" if len(sessions) > 1 else finding["session_id"]
    return " / ".join(filter(None, (finding["service"], finding["agent"], session)))


def _calls(finding: dict[str, Any]) -> str:
    calls = finding["occurrences"]
    return f"{calls} call{'' if calls == 1 else 's'}" if finding["detector"] != "recloser" else ""


def _facts(
    alert: dict[str, Any], active: Sequence[Mapping[str, Any]], now: datetime
) -> list[tuple[str, str]]:
    finding = alert["finding"]
    over = f"by {alert['resolved_by']}, {since(alert['resolved_at'], now)} ago"
    acked = f"{alert['acknowledged_by']}, {since(alert['acknowledged_at'], now)} ago"
    session, firing = finding["session_id"], alert["state"] == AlertState.FIRING
    breakers = [f"{each} {stands}" for each, stands in _breakers(alert, active).items()]
    return [
        ("id", alert["id"]),
        ("state", alert["state"]),
        ("severity", finding["severity"]),
        ("kind", finding["kind"]),
        ("summary", finding["summary"]),
        ("since", f"{alert['fired_at']} ({since(alert['fired_at'], now)} ago), episode {alert['episode']}"),
        ("where", _where(finding)),
        ("tool", finding["tool"] or ""),
        ("calls", _calls(finding).partition(" ")[0]),
        ("breakers", ", ".join(breakers)),
        ("silenced by", ", ".join(alert["silenced_by"])),
        ("covered by", alert["covered_by"]),
        ("acked", f"{acked}: {alert['acknowledgement']}" if alert["acknowledged_by"] else ""),
        ("resolved", f"{over} {alert['note']}".rstrip() if alert["resolved_by"] else ""),
        ("rules", ", ".join(alert["rules"])),
        ("told", ", ".join(_delivered(each) for each in alert["deliveries"])),
        ("look", f"recloser handoff {shlex.quote(session)}" if session else ""),
        ("stop", f"recloser stop {shlex.quote(session)} --reason …" if session and firing else ""),
    ]


def _delivered(delivery: dict[str, Any]) -> str:
    error = f" ({delivery['last_error']})" if delivery["last_error"] else ""
    return f"{delivery['destination']} {delivery['type']} {delivery['state']}{error}"
