"""Names as the sidecar keeps them: of bounded length, without control characters; equal names stay equal.

A session or tool is compared by its kept name, here as there.
"""

from __future__ import annotations

import hashlib
import re

MAX_NAME = 256  # characters
KEPT = 200  # of a longer one; a hash of the whole tells it from others that begin alike
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def name_kept(name: object) -> str:
    r"""Return a name as it is kept; what is no text (a number, a UUID) is kept as telemetry writes it.

    >>> name_kept("chat\x00-1"), name_kept("x" * 256) == "x" * 256, len(name_kept("x" * 257))
    ('chat-1', True, 217)
    """
    if not isinstance(name, str):
        name = str(name)
    if len(name) <= MAX_NAME and name.isprintable():
        return name
    name = _UNFIT.sub("", name)
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:KEPT]}~{hashlib.blake2b(name.encode(), digest_size=8).hexdigest()}"
