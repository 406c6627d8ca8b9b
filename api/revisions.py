"""Revisions as HTTP writes them: ETag, If-None-Match, If-Match."""

from __future__ import annotations

import re
from typing import Final

from api.problems import ApiError

CACHE: Final = "max-age=1, stale-if-error=60"
_TAG: Final = re.compile(r'(?:W/)?"rev-(\d{1,19})"')


def etag(revision: int) -> str:
    """Write a revision.

    >>> etag(41)
    '"rev-41"'
    """
    return f'"rev-{revision}"'


def matches(header: str | None, revision: int) -> bool:
    """Tell whether an If-None-Match header names this revision.

    >>> matches('W/"rev-40", "rev-41"', 41), matches("*", 41), matches('"rev-40"', 41), matches(None, 0)
    (True, True, False, False)
    """
    if header is None:
        return False
    return header.strip() == "*" or str(revision) in _TAG.findall(header)


def revision_of(header: str | None) -> int | None:
    """Read an If-Match header; None when there is none, or it takes any revision. Raises `ApiError` 422.

    >>> revision_of('"rev-41"'), revision_of("*"), revision_of(None)
    (41, None, None)
    """
    if header is None or header.strip() == "*":
        return None
    found = _TAG.fullmatch(header.strip())
    if found is None:
        raise ApiError(422, "invalid", 'If-Match: expected the ETag of the breaker, e.g. "rev-41"')
    return int(found[1])
