"""The HTTP API as an ASGI app."""

from __future__ import annotations

import logging
import sqlite3
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from api.auth import Authority, Denied
from api.bodies import BoundedBodies
from api.problems import SEND_JSON, ApiError, Problem, answer, invalid, unexpected
from api.routes import (
    alerts,
    audit,
    breakers,
    budgets,
    changes,
    check,
    clients,
    deliveries,
    destinations,
    findings,
    health,
    leases,
    metrics,
    modes,
    ofrep,
    policy,
    runs,
    silences,
    stop,
    tokens,
    watch,
)
from api.shortcut import CheckShortcut

if TYPE_CHECKING:
    from api.services import Services

_log = logging.getLogger(__name__)
_RESOURCES: Final = (
    check,
    watch,  # before breakers: `watch` is no breaker's id
    breakers,
    changes,
    leases,
    budgets,
    clients,
    audit,
    ofrep,
    alerts,
    silences,
    stop,
    findings,
    runs,
    deliveries,
    destinations,
    health,
    metrics,
    tokens,
    policy,
    modes,
)
_CODES: Final = {404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def create_app(services: Services) -> FastAPI:
    """Build the app: every route, JSON for every refusal, `/v1/check` in front of all else."""
    app = FastAPI(
        title="Recloser",
        version="1",
        description="Alerts and circuit breakers for AI agents.",
        openapi_url="/openapi.json",
        docs_url=None,  # both pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.authority = services.authority
    for resource in _RESOURCES:
        app.include_router(resource.router(services))
    app.add_exception_handler(ApiError, _api_error)
    app.add_exception_handler(Denied, _denied)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(sqlite3.Error, _disk_trouble)
    app.add_exception_handler(Exception, unexpected)
    app.add_middleware(BoundedBodies)
    app.add_middleware(CheckShortcut, services=services)
    return app


def _disk_trouble(_request: Request, error: Exception) -> Response:
    _log.warning("control.db cannot be used: %s", error)
    problem = Problem(code="unavailable", detail=f"control.db cannot be used now: {error}")
    return answer(503, problem, {"retry-after": "2"})


def _api_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)  # noqa: S101 - registered for this type only
    return answer(error.status, error.problem)


def _denied(request: Request, error: Exception) -> Response:
    assert isinstance(error, Denied)  # noqa: S101 - registered for this type only
    authority: Authority = request.app.state.authority
    authority.note(error, request.scope)
    return answer(error.status, Problem(code=error.code, detail=error.detail), error.headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for this type only
    of_body = any(wrong["loc"][:1] == ("body",) for wrong in error.errors())
    if of_body and "json" not in request.headers.get("content-type", ""):
        return answer(415, Problem(code="unsupported_media_type", detail=SEND_JSON))
    return answer(422, invalid(error.errors(), ("body", "query", "path")))


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type only
    if error.status_code == 400:  # noqa: PLR2004 - what the framework says of a body that is no text
        return answer(422, Problem(code="invalid", detail="the body cannot be read as JSON"))
    code = _CODES.get(error.status_code, "error")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return answer(error.status_code, Problem(code=code, detail=detail), error.headers)
