"""How the API says no: JSON with one sentence for people, and the fields that are wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import Request, Response
from pydantic import BaseModel, Field

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

JSON: Final = "application/json"
SEND_JSON: Final = f"send JSON as {JSON}"


class FieldProblem(BaseModel):
    """One field that cannot be taken as it is."""

    field: str = Field(description="Path of the field, e.g. `calls.0.session_id`.")
    problem: str


class Problem(BaseModel):
    """Why a request was refused."""

    code: str = Field(description="Stable name of the reason, e.g. `invalid`, `not_found`, `conflict`.")
    detail: str
    fields: list[FieldProblem] = []


class ApiError(Exception):
    """Raised by routes; becomes a `Problem`."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.problem = Problem(code=code, detail=detail)


def not_found(what: str, name: str) -> ApiError:
    """Make the answer for an id that nothing has."""
    return ApiError(404, "not_found", f"no {what} has the id {name!r}")


def invalid(errors: Iterable[Mapping[str, Any]], where: tuple[str, ...] = ()) -> Problem:
    """Turn pydantic's list of errors into a `Problem`; `where` are leading path parts to leave out."""
    fields = [FieldProblem(field=_path(error["loc"], where), problem=_said(error)) for error in errors]
    detail = "; ".join(f"{f.field}: {f.problem}" if f.field else f.problem for f in fields)
    return Problem(code="invalid", detail=detail, fields=[f for f in fields if f.field])


def answer(status: int, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """Write a `Problem` as a response."""
    return Response(dump(problem), status, dict(headers or {}), JSON)


def dump(problem: Problem) -> bytes:
    """Write a `Problem` as JSON."""
    return orjson.dumps(problem.model_dump())


def unexpected(_request: Request, _error: Exception) -> Response:
    """Answer for a defect, without telling its inside."""
    return answer(500, Problem(code="internal", detail="an unexpected error; the log has it"))


def _said(error: Mapping[str, Any]) -> str:
    return "there is no such field" if error["type"] == "extra_forbidden" else str(error["msg"])


def _path(location: Iterable[object], where: tuple[str, ...]) -> str:
    parts = [str(part) for part in location]
    if parts and parts[0] in where:
        parts = parts[1:]
    return ".".join(parts)
