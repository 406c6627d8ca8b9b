"""What the OpenAPI document allows is asked of the real server: no 5xx, no answer that it does not document.

Requests are generated from the document itself, well-formed and malformed ones; half of the ids in paths are
ids of things that exist.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from control.notifiers.webhook import WebhookConfig
from control.policy import Policy, Rule
from control.verbs import Verb
from tests.api.serving import Served, served
from tests.control.support import SECRET, STUCK, Spool, another

if TYPE_CHECKING:
    from schemathesis import Case as AnyCase

    Case: TypeAlias = AnyCase[Any]

# The server's threads beside us draw random pauses, which hypothesis takes for the strategies' doing.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module inside strategies")
CHECKS: Final = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
QUICK: Final = 4
DEEP: Final = 60
JUNK: Final = (b"", b"{", b"[]", b"null", b'"\\ud800"', b"\xff\xfe", b'{"a":' * 2000, b"1e999", b'{"":{}}')
KINDS: Final = (b"application/json", b"text/plain", b"application/json; charset=\xff", None)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plane")
    spool = Spool(folder / "spool.db")
    spool.add(STUCK, *(another(n, session_id=f"session-{n}") for n in range(2, 5)))
    policy = Policy(rules=(Rule(name="deny"),))
    nobody = WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,))
    with served(folder, policy=policy, destinations=(nobody,)) as plane:
        plane.secret = plane.token("everything", *Verb)
        deadline = time.monotonic() + 10
        while not known(plane)["breaker_id"] and time.monotonic() < deadline:
            time.sleep(0.02)
        yield plane


def known(plane: Served) -> dict[str, list[Any]]:
    """What exists, by the name of the path's parameter."""

    def ids(path: str, key: str, field: str = "id") -> list[Any]:
        found = plane.ask("GET", path, plane.secret).json()[key]
        return [entry[field] for entry in found]

    return {
        "breaker_id": ids("/v1/breakers", "breakers"),
        "alert_id": ids("/v1/alerts", "alerts"),
        "silence_id": ids("/v1/silences", "silences"),
        "token_id": ids("/v1/tokens", "tokens")[1:],
        "session_id": [STUCK.session_id, "session-2"],
        "seq": ids("/v1/deliveries", "deliveries", "seq"),
        "name": ids("/v1/destinations", "destinations", "name"),
        "agent": ["buyer"],
    }


def document(plane: Served) -> Any:  # noqa: ANN401 - JSON
    return plane.ask("GET", "/openapi.json").json()


def operations(plane: Served) -> list[Any]:
    schema = schemathesis.openapi.from_dict(document(plane))
    schema.config.update(base_url=str(plane.client.base_url))
    found: list[Any] = list(schema.get_all_operations())
    return [result.ok() for result in found]


def send(plane: Served, case: Case) -> httpx.Response:
    """Send it by the client of these tests, which does not wait for the end of streams."""
    sent = case.as_transport_kwargs(base_url=str(plane.client.base_url))
    request = {"params": sent.get("params"), "headers": dict(sent.get("headers") or {})}
    if (sent.get("params") or {}).get("wait"):
        request["params"] = {**sent["params"], "wait": 0}  # nothing happens, so it would wait to the end
    if "json" in sent:
        request["json"] = sent["json"]
    elif sent.get("data") is not None:
        request["content"] = sent["data"]
    return plane.ask(sent["method"], sent["url"], plane.secret, **request)


def broken(plane: Served, operation: Any, mode: GenerationMode, examples: int, *, quick: bool) -> str | None:  # noqa: ANN401 - of schemathesis
    """Ask many times; return what is wrong first, or None."""
    ids = known(plane)

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=quick,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.explicit, Phase.generate] if quick else list(Phase),
    )
    @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans(), number=st.integers(0, 9))
    def asked(case: Case, real: bool, number: int) -> None:  # noqa: FBT001 - hypothesis passes it by name
        for name in case.path_parameters or {}:
            if real and ids.get(name):
                case.path_parameters[name] = ids[name][number % len(ids[name])]
        case.validate_response(send(plane, case), checks=CHECKS)

    try:
        asked()
    except Unsatisfiable:
        return None  # nothing can be wrong about it
    except (Exception, FailureGroup) as error:  # noqa: BLE001 - every kind of failure is reported, with all others
        return f"{operation.label} ({mode.value}): {told(error)}"
    return None


def told(error: BaseException) -> str:
    """Say all that an error says, those inside it, too."""
    inside = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return "\n".join([f"{type(error).__name__}: {error}", *map(told, inside)])


def ask_all(plane: Served, examples: int, *, quick: bool) -> list[str]:
    found = []
    for operation in operations(plane):
        for mode in GenerationMode:
            try:
                wrong = broken(plane, operation, mode, examples, quick=quick)
            except schemathesis.errors.InvalidSchema as error:
                wrong = f"{operation.label}: {error}"
            if wrong is not None:
                found.append(wrong)
    return found


def test_the_document_is_kept(plane: Served) -> None:
    assert "\n\n".join(ask_all(plane, QUICK, quick=True)) == ""


@pytest.mark.accept
def test_the_document_is_kept_for_long(plane: Served) -> None:
    assert "\n\n".join(ask_all(plane, DEEP, quick=False)) == ""


def test_bodies_that_are_none_are_refused_as_documented(plane: Served) -> None:
    wrong = []
    for path, methods in document(plane)["paths"].items():
        for method, operation in methods.items():
            if method not in {"post", "put", "patch"}:
                continue
            for junk, kind in product(JUNK, KINDS):
                headers: dict[str, Any] = {} if kind is None else {"content-type": kind}
                where = path.replace("{", "").replace("}", "")
                answer = plane.ask(method.upper(), where, plane.secret, headers, content=junk)
                if str(answer.status_code) not in operation["responses"]:
                    wrong.append((method, path, junk[:20], kind, answer.status_code, answer.text[:200]))
    assert wrong == []
