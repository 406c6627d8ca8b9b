"""A tiny OTLP/HTTP receiver on loopback that saves every body as it came, gzipped.

Bodies become `NNN-<traces|logs>.<pb|json>.gz` in the output folder, numbered in the order they arrived.
Metrics are accepted and dropped. Any path prefix will do; chunked and gzipped requests are understood.
"""

from __future__ import annotations

import argparse
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Folder:
    """Numbers the bodies of one recording and writes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._count = 0

    def save(self, signal: str, suffix: str, body: bytes) -> None:
        """Write one body; the compressed bytes depend on nothing but the body."""
        with self._lock:
            self._count += 1
            name = f"{self._count:03d}-{signal}.{suffix}.gz"
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / name).write_bytes(gzip.compress(body, 9, mtime=0))


class Handler(BaseHTTPRequestHandler):
    """Takes what exporters post and always says it went well."""

    protocol_version = "HTTP/1.1"
    folder: Folder

    def do_POST(self) -> None:
        """Save one export request."""
        body = self._body()
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        signal = self.path.split("?")[0].rstrip("/").rsplit("/", 1)[-1]
        kind = self.headers.get("content-type", "")
        if signal in ("traces", "logs"):
            self.folder.save(signal, "json" if "json" in kind else "pb", body)
        self.send_response(200)
        self.send_header("content-type", kind)
        answer = b"{}" if "json" in kind else b""
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Say nothing: the recorder's output is the framework's."""


def serve(path: Path, port: int = 0) -> ThreadingHTTPServer:
    """Start the receiver in a thread and return its server; `server_address` has the port."""
    handler = type("BoundHandler", (Handler,), {"folder": Folder(path)})
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--port", type=int, default=4318)
    options = parser.parse_args()
    serve(options.out, options.port)
    threading.Event().wait()


if __name__ == "__main__":
    main()
