"""What must be there before the documented example of a route can be asked for, and the example itself.

A path's parameters are filled by name: `PREPARED` makes the thing and returns its id. A route that needs
another state has an entry of its own in `BEFORE`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from api.reload import PolicyPlace
from control.actor import Actor
from control.breakers.states import Event
from control.notices import rfc3339
from control.policy import BudgetRule, Per, Unit
from control.scope import Scope
from control.tokens import Wanted
from control.verbs import Verb
from tests.control.support import another

if TYPE_CHECKING:
    from tests.api.conftest import Api

SOMEBODY: Final = Actor(type="person", id="somebody")
NUMBERS: Final = count(1)
"""Things get names of their own, so that all examples can be asked of one app."""
STRUCTURE: Final = "application/json"
LATER: Final = "2030-01-01T00:00:00Z"


def open_breaker(api: Api) -> str:
    scope = Scope(session=f"chat-{next(NUMBERS)}", tool="fetch_page")
    return api.parts.control.breakers.act(scope, Event.TRIP, SOMEBODY, "stuck").id


def held_breaker(api: Api) -> str:
    key = open_breaker(api)
    api.parts.control.breakers.act(key, Event.FORCE_OPEN, SOMEBODY, "held")
    return key


def half_open_breaker(api: Api) -> str:
    scope = Scope(service="shop", tool=f"tool-{next(NUMBERS)}")
    breaker = api.parts.control.breakers.act(scope, Event.TRIP, SOMEBODY, "down", ttl_s=60)
    api.parts.clock.advance(61)
    api.parts.control.breakers.tick()
    return breaker.id


def closed_breaker(api: Api) -> str:
    key = open_breaker(api)
    api.parts.control.breakers.act(key, Event.RESET, SOMEBODY, "over")
    return key


def lease(api: Api) -> str:
    granted = api.parts.control.breakers.grant_lease(half_open_breaker(api), "buyer-1")
    assert granted is not None
    return granted.id


def alert(api: Api) -> str:
    number = next(NUMBERS)
    finding = another(number, session_id=f"stuck-{number}")
    api.spool.add(finding)
    api.parts.decide_all()
    return f"al_{finding.id}"


def budget(api: Api) -> str:
    rule = BudgetRule(name="calls", per=Per.SESSION, unit=Unit.CALLS, limit=1e6)
    holder = api.parts.control.policies
    holder.current = replace(holder.current, budgets=(rule,))
    return rule.name


def reservation(api: Api) -> str:
    got = api.services.budgets.reserve(budget(api), {"session": "chat-17"}, 2)
    return str(getattr(got, "id", ""))


def token(api: Api) -> str:
    wanted = [Wanted(name=f"token-{next(NUMBERS)}", verbs=frozenset(Verb)) for _ in range(2)]
    first, _ = [api.services.tokens.create(each, SOMEBODY)[0].id for each in wanted]
    return first


def policy_file(api: Api) -> str:
    path = api.parts.db.path.with_name("policy.toml")
    path.write_text("[breaker]\nbase_open_s = 30\n", encoding="utf-8")
    api.services.policy.place = PolicyPlace(path=path)
    return ""


def silence(api: Api) -> str:
    ends = api.parts.clock() + 3600 * 10**9
    body = {
        "matchers": [{"name": "service", "op": "=", "value": "shop"}],
        "ends_at": rfc3339(ends),
        "comment": f"silence {next(NUMBERS)}",
    }
    made: str = api.ask("POST", "/v1/silences", json=body).json()["id"]
    return made


def delivery(api: Api) -> str:
    """A message that is over."""
    alert(api)
    with api.parts.db.transaction() as tx:
        row = tx.one("SELECT max(seq) AS seq FROM outbox")
        assert row is not None
        tx.execute("UPDATE outbox SET state = 'delivered' WHERE seq = ?", (row["seq"],))
    return str(row["seq"])


PREPARED: Final[Mapping[str, Callable[[Api], str]]] = {
    "breaker_id": open_breaker,
    "alert_id": alert,
    "lease_id": lease,
    "reservation_id": reservation,
    "token_id": token,
    "silence_id": silence,
    "seq": delivery,
    "session_id": lambda api: f"stuck-{int(alert(api)[3:], 16)}",
    "name": budget,
    "key": lambda _api: "allow.fetch_page",
    "agent": lambda _api: "buyer",
}
BEFORE: Final[Mapping[tuple[str, str], Callable[[Api], str]]] = {
    ("POST", "/v1/breakers/{breaker_id}/trip"): closed_breaker,
    ("POST", "/v1/breakers/{breaker_id}/release"): held_breaker,
    ("POST", "/v1/breakers/{breaker_id}/leases"): half_open_breaker,
    ("POST", "/v1/tokens"): token,
    ("POST", "/v1/destinations/{name}/test"): lambda _api: "hook",
    ("POST", "/v1/destinations/{name}/enable"): lambda _api: "hook",
    ("POST", "/v1/policy/reload"): policy_file,
}


class NoExampleError(Exception):
    """The document has none for a request's field."""


def example_of(document: Mapping[str, Any], operation: Mapping[str, Any], now_ns: int) -> Any:  # noqa: ANN401 - JSON
    """Return the documented body of a request; None when it has none. Raises `NoExampleError`.

    A time far ahead stands for one in an hour.
    """
    if "requestBody" not in operation:
        return None
    content = operation["requestBody"]["content"][STRUCTURE]
    found = content["example"] if "example" in content else _made(document, content["schema"], "the body")
    return json.loads(json.dumps(found).replace(LATER, rfc3339(now_ns + 3600 * 10**9)))


def _made(document: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401 - JSON
    if "examples" in schema:
        return schema["examples"][0]
    if "default" in schema:
        return schema["default"]
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return _made(document, document["components"]["schemas"][name], f"{where} ({name})")
    if schema.get("type") == "array":
        return [_made(document, schema["items"], where)]
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "object" and "properties" in schema:
        fields = schema["properties"]
        required = schema.get("required", [])
        return {name: _made(document, fields[name], f"{where}.{name}") for name in required}
    raise NoExampleError(where)
