"""The certificate that both receivers show, when they are to speak TLS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict


class UvicornTls(TypedDict, total=False):
    """What `uvicorn.Config` calls them."""

    ssl_certfile: str
    ssl_keyfile: str


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files: a certificate (with its chain) and its private key."""

    certificate_file: Path
    key_file: Path

    def uvicorn_options(self) -> UvicornTls:
        """Return the keyword arguments that make `uvicorn.Config` serve TLS."""
        return {"ssl_certfile": str(self.certificate_file), "ssl_keyfile": str(self.key_file)}
