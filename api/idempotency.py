"""A change that is asked for twice under one key is made once, and both are answered alike.

The answer is written in the transaction that makes the change, so that neither exists without the other.
Refusals are not kept: what was not changed may be asked for again. Source: the IETF draft
`draft-ietf-httpapi-idempotency-key-header`, and ops_anchors §2.2 (24 h; another body is 422).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Final

import orjson
from fastapi import Header, Response

from api.problems import JSON, ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import BaseModel

    from api.auth import Caller
    from api.services import Services
    from control.db import Transaction

KEEP_S: Final = 86_400.0
REPLAYED: Final = "idempotency-replayed"
_NS: Final = 1_000_000_000

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        pattern=r"^[\x21-\x7e]+$",
        description="Any text of the caller's. Asked again within 24 h under the same key, the change is not "
        "made again: the answer is the first one, with `idempotency-replayed: true`. Another body is 422.",
    ),
]


def once(
    services: Services,
    caller: Caller,
    key: str | None,
    asked: tuple[str, BaseModel],
    change: Callable[[Transaction], tuple[int, BaseModel]],
) -> Response:
    """Make a change and answer with the status and body that it gives; under a known key, answer as before.

    `asked` is the route with its path, and the body. Raises `ApiError` 422 when the key was used for
    something else, and what `change` raises, which then leaves nothing behind.
    """
    route, body = asked
    digest = hashlib.sha256(orjson.dumps(body.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS))
    with services.control.db.transaction() as tx:
        if key is None:
            status, shown = change(tx)
            return Response(shown.model_dump_json(), status, media_type=JSON)
        now = services.now_ns()
        tx.execute("DELETE FROM idempotency WHERE created_ns < ?", (now - int(KEEP_S * _NS),))
        known = tx.one(
            "SELECT route, body_sha256, status, answer FROM idempotency WHERE caller = ? AND key = ?",
            (caller.identity, key),
        )
        if known is not None:
            if (known["route"], known["body_sha256"]) != (route, digest.hexdigest()):
                raise ApiError(422, "invalid", "Idempotency-Key: was used for another request")
            return Response(bytes(known["answer"]), known["status"], {REPLAYED: "true"}, JSON)
        status, shown = change(tx)
        answer = shown.model_dump_json().encode()
        tx.execute(
            "INSERT INTO idempotency (key, caller, route, body_sha256, status, answer, headers, created_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, '{}', ?)",
            (key, caller.identity, route, digest.hexdigest(), status, answer, now),
        )
    return Response(answer, status, media_type=JSON)
