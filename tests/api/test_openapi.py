from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from tests.api.conftest import Api

PROJECT: Final = Path(__file__).parents[2]
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
    shapes = {
        answer["content"]["application/json"]["schema"]["$ref"]
        for methods in api.app.openapi()["paths"].values()
        for operation in methods.values()
        for status, answer in operation["responses"].items()
        if status.startswith("4")
    }
    assert shapes == {"#/components/schemas/Problem"}


@pytest.mark.parametrize("page", ["docs/api.md"])
def test_the_documentation_has_every_route_and_metric(api: Api, page: str) -> None:
    text = (PROJECT / page).read_text(encoding="utf-8")
    routes = {
        f"{method.upper()} {path.replace('{breaker_id}', '{id}').replace('{alert_id}', '{id}')}"
        for path, methods in api.app.openapi()["paths"].items()
        for method in methods
    }
    metrics = {family.name for family in api.parts.registry.collect()}
    assert {name for name in routes | metrics if name not in text} == set()
