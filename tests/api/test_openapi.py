from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jsonschema_rs import validator_for

from tests.api.examples import BEFORE, PREPARED, NoExampleError, example_of

if TYPE_CHECKING:
    from tests.api.conftest import Api

PROJECT: Final = Path(__file__).parents[2]
WATCH: Final = "/v1/breakers/watch"
STOP: Final = "/stop"
ELSEWHERE: Final = {WATCH, STOP}
"""A stream goes on and on, a page needs a signed link: they have tests of their own."""
OF_OFREP: Final = {
    "/ofrep/v1/evaluate/flags/{key} 400",
    "/ofrep/v1/evaluate/flags/{key} 404",
    "/ofrep/v1/evaluate/flags 400",
}
"""OFREP says how to refuse."""
GOLDEN: Final = PROJECT / "tests/golden/openapi.json"


def test_the_document_is_the_golden_one(api: Api) -> None:
    """Write it anew with RECLOSER_WRITE_GOLDEN=1 when the change is meant."""
    document = json.dumps(api.app.openapi(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    if os.environ.get("RECLOSER_WRITE_GOLDEN"):
        GOLDEN.write_text(document, encoding="utf-8")
    assert document == GOLDEN.read_text(encoding="utf-8")


def test_the_document_is_served(api: Api) -> None:
    assert api.ask("GET", "/openapi.json").json() == api.app.openapi()


def test_every_refusal_has_the_one_shape(api: Api) -> None:
    others = {
        f"{path} {status}"
        for path, methods in api.app.openapi()["paths"].items()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status.startswith("4") and path != STOP and _schema(answer) != "#/components/schemas/Problem"
    }
    assert others == OF_OFREP


def _schema(answer: dict[str, Any]) -> object:
    content = answer.get("content", {}).get("application/json", {})
    return content.get("schema", {}).get("$ref")


def test_the_documentation_has_every_route(api: Api) -> None:
    text = (PROJECT / "docs/api.md").read_text(encoding="utf-8")
    routes = {
        f"{method.upper()} {re.sub('{[a-z]+_id}', '{id}', path)}"
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
    }
    assert {name for name in routes if f"### {name}\n" not in text} == set()


def test_every_route_says_what_it_does(api: Api) -> None:
    silent = {
        f"{method.upper()} {path}"
        for path, methods in api.app.openapi()["paths"].items()
        for method, operation in methods.items()
        if not operation.get("summary") or not operation.get("description")
    }
    assert silent == set()


def test_every_example_works_and_is_answered_as_documented(api: Api) -> None:
    document = api.app.openapi()
    wrong = {
        f"{method.upper()} {path}": problem
        for path, methods in document["paths"].items()
        for method in methods
        if path not in ELSEWHERE and (problem := asked(api, document, method.upper(), path))
    }
    assert wrong == {}


def asked(api: Api, document: dict[str, Any], method: str, path: str) -> str:
    """Ask for the example of one route; return what is wrong with it, or nothing."""
    operation = document["paths"][path][method.lower()]
    try:
        filled, body = path, example_of(document, operation, api.parts.clock())
    except NoExampleError as error:
        return f"no example of {error}"
    if (method, path) in BEFORE and "{" not in path:
        BEFORE[method, path](api)
    for parameter in re.findall(r"{(\w+)}", path):
        prepare = BEFORE.get((method, path)) or PREPARED.get(parameter)
        if prepare is None:
            return f"tests/api/examples.py knows no {parameter}"
        filled = filled.replace(f"{{{parameter}}}", prepare(api))
    answer = api.ask(method, filled, **({} if body is None else {"json": body}))
    documented = operation["responses"].get(str(answer.status_code))
    if documented is None or (answer.status_code >= 300 and path != "/readyz"):
        return f"{answer.status_code} {answer.text}"
    content = documented.get("content", {}).get("application/json")
    if content is None or not answer.headers.get("content-type", "").startswith("application/json"):
        return "" if content is None else f"no JSON: {answer.headers}"
    schema = {**content["schema"], "components": document["components"]}
    return "; ".join(str(error) for error in validator_for(schema).iter_errors(answer.json()))
