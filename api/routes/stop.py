"""/stop: the page behind the link of a message, on which a person stops one session.

No token is asked for, because the link is signed, expires, and allows nothing else. Looking changes nothing,
so that programs that preview links stop nobody.
"""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from api.routes.access import refusals_of_text
from control.actor import Actor
from control.stop_link import MAX_SESSION, BadLink, ExpiredLink
from control.stopping import Stopping

if TYPE_CHECKING:
    from api.services import Services

LINK: Final = Actor(type="person", id="link")
_REASON: Final = "stopped by the link of a message"
_STYLE: Final = (
    "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;color:#222;"
    "background:#fff}h1{font-size:1.4rem}code{overflow-wrap:anywhere}button{font:inherit;"
    "padding:.6rem 1.2rem;border:0;border-radius:.3rem;background:#b00020;color:#fff}"
)
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "cache-control": "no-store",
    "x-robots-tag": "noindex",
}
_NO_LINK: Final = "This is no link of ours, or a part of it is missing. Nothing was stopped."
_OLD_LINK: Final = "This link is too old. Nothing was stopped. Newer messages have newer links."

Text = Annotated[str, Query(max_length=MAX_SESSION)]
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    **refusals_of_text(422),
    200: {"description": "The page.", "content": {"text/html": {}}},
    403: {"description": "The link is not one of ours.", "content": {"text/html": {}}},
    410: {"description": "The link is too old.", "content": {"text/html": {}}},
}


def router(services: Services) -> APIRouter:
    """Make the routes."""
    routes = APIRouter(tags=["stop"])
    stopping = Stopping(services.control.db, services.control.breakers, services.now_ns)

    @routes.get(
        "/stop", responses=_ANSWERS, response_class=HTMLResponse, summary="The page that stops a session"
    )
    def show(session: Text = "", exp: Text = "", sig: Text = "") -> HTMLResponse:
        """Show which session would be stopped, and a button."""
        return refusal(session, exp, sig) or _question(stopping, session)

    @routes.post("/stop", responses=_ANSWERS, response_class=HTMLResponse, summary="Stop a session by a link")
    def stop(session: Text = "", exp: Text = "", sig: Text = "") -> HTMLResponse:
        """Halt the session of the link."""
        refused = refusal(session, exp, sig)
        if refused is not None:
            return refused
        try:
            breaker = stopping.stop(session, LINK, _REASON)
        except ValueError as error:
            return _page(403, "Nothing was stopped", f"<p>{escape(str(error))}</p>")
        if breaker is None:
            return _stopped_already(session)
        return _page(
            200,
            "Stopped",
            f"<p>The session <code>{escape(session)}</code> is halted: breaker "
            f"<code>{escape(breaker.id)}</code>. If its run goes on all the same, an alert will say so.</p>",
        )

    def refusal(session: str, exp: str, sig: str) -> HTMLResponse | None:
        try:
            services.stop_links.check(session, exp, sig)
        except ExpiredLink:
            stopping.refused(session, LINK, "the link has expired")
            return _page(410, "Too late", f"<p>{_OLD_LINK}</p>")
        except BadLink:
            stopping.refused(session, LINK, "the link is not one of ours")
            return _page(403, "No such link", f"<p>{_NO_LINK}</p>")
        return None

    return routes


def _question(stopping: Stopping, session: str) -> HTMLResponse:
    if stopping.is_stopped(session):
        return _stopped_already(session)
    return _page(
        200,
        "Stop this session?",
        f"<p>All further calls of the session <code>{escape(session)}</code> will be refused, and its "
        "run told to end. A person can reset that later.</p>"
        '<form method="post"><button type="submit">Stop it</button></form>',
    )


def _stopped_already(session: str) -> HTMLResponse:
    return _page(
        200, "It is stopped already", f"<p>The session <code>{escape(session)}</code> is halted.</p>"
    )


def _page(status: int, title: str, body: str) -> HTMLResponse:
    """Make a page; `body` is HTML in which everything that others wrote is escaped."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)} - Recloser</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
    return HTMLResponse(page, status, _HEADERS)
