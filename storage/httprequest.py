"""One request of ClickHouse's HTTP interface, as clickhouse-connect sends it, read into what it asks for.

Reference: ClickHouse documentation, "HTTP Interface"; clickhouse-connect `driver/_backend/httpcommon.py`.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from email.parser import BytesParser
from email.policy import HTTP
from typing import Final, Protocol
from urllib.parse import parse_qsl

import lz4.frame
import zstandard

MAX_BODY_BYTES: Final = 512 * 1024 * 1024

# Parameters that speak to the HTTP interface, not to the engine. Answers are never compressed and always
# complete, so there is nothing to tune.
_TRANSPORT: Final = frozenset(
    {
        "buffer_size",
        "client_protocol_version",
        "compress",
        "decompress",
        "enable_http_compression",
        "http_headers_progress_interval_ms",
        "cancel_http_readonly_queries_on_client_close",
        "quota_key",
        "role",
        "send_progress_in_http_headers",
        "session_check",
        "session_timeout",
        "wait_end_of_query",
    }
)
_IDENTIFIER: Final = r"(?:`(?:[^`\\]|\\.)+`|[A-Za-z_]\w*)"
_NAME: Final = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})*"
_INSERT: Final = re.compile(
    rf"\s*(?P<statement>INSERT\s+INTO\s+(?:TABLE\s+)?{_NAME}"
    rf"(?:\s*\(\s*{_NAME}(?:\s*,\s*{_NAME})*\s*\))?)\s*\bFORMAT\s+(?P<format>\w+)[ \t]*(?:\r?\n|\Z)",
    re.IGNORECASE,
)
_TRAILING_FORMAT: Final = re.compile(r"\bFORMAT\s+(\w+)\s*;?\s*\Z", re.IGNORECASE)
_STATEMENT_LIMIT: Final = 256 * 1024


class Headers(Protocol):
    """Header fields by name, without regard to case."""

    def get(self, name: str, /) -> str | None:
        """Return one field's value, None when it is absent."""
        ...


class BadRequest(Exception):  # noqa: N818 - names the HTTP status that it becomes
    """The request is none that this endpoint serves; `status` is the HTTP status to answer with."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Insert:
    """Rows to take: `statement` ends before FORMAT, `data` is in `data_format`."""

    statement: str
    data_format: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Query:
    """Any other statement; `answer_format` is the format that its rows come back in."""

    statement: str
    answer_format: str


@dataclass(frozen=True, slots=True)
class Request:
    """What to do, and under which database, session, settings and `{name:Type}` parameters."""

    work: Insert | Query
    query_id: str
    database: str
    session: str
    settings: Mapping[str, str]
    parameters: Mapping[str, str]


def read_request(query_string: str, headers: Headers, body: bytes) -> Request:
    """Read a request from its parts. Raises `BadRequest`."""
    fields = dict(parse_qsl(query_string, keep_blank_values=True))
    content_type = headers.get("Content-Type") or ""
    body = decompressed(body, headers.get("Content-Encoding") or "")
    if content_type.startswith("multipart/form-data"):
        fields.update(_form_fields(content_type, body))
        body = b""
    default_format = fields.pop("default_format", "TabSeparated")
    statement = fields.pop("query", "")
    database = fields.pop("database", "") or headers.get("X-ClickHouse-Database") or ""
    query_id = fields.pop("query_id", "")
    session = fields.pop("session_id", "")
    for name in ("user", "password"):
        fields.pop(name, None)
    return Request(
        work=_work(statement, body, default_format),
        query_id=query_id,
        database=database,
        session=session,
        settings={k: v for k, v in fields.items() if k not in _TRANSPORT and not k.startswith("param_")},
        parameters={k.removeprefix("param_"): v for k, v in fields.items() if k.startswith("param_")},
    )


def presented_secret(headers: Headers) -> str:
    """The secret that a request shows, by ClickHouse's own header or by basic authentication; "" for none."""
    key = headers.get("X-ClickHouse-Key")
    if key:
        return key
    scheme, _, credentials = (headers.get("Authorization") or "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def decompressed(body: bytes, encoding: str) -> bytes:
    """Undo a Content-Encoding; never makes more than `MAX_BODY_BYTES` out of it. Raises `BadRequest`."""
    if encoding in ("", "identity"):
        return body
    try:
        data = _decompress(body, encoding)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError) as error:
        raise BadRequest(f"the body is no {encoding}: {error}") from error
    if len(data) > MAX_BODY_BYTES:
        raise BadRequest("the body is too large", 413)
    return data


def _decompress(body: bytes, encoding: str) -> bytes:
    most = MAX_BODY_BYTES + 1
    match encoding:
        case "gzip" | "deflate":
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(body, most)
        case "zstd":
            with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as reader:
                return bytes(reader.read(most))
        case "lz4":
            return bytes(lz4.frame.LZ4FrameDecompressor().decompress(body, max_length=most))
    raise BadRequest(f"Content-Encoding {encoding} is not served", 415)


def _work(statement: str, body: bytes, default_format: str) -> Insert | Query:
    if statement:
        insert = _INSERT.match(statement)
        if insert and insert.end() == len(statement):
            return Insert(insert["statement"], insert["format"], body)
        text = f"{statement}\n{_text(body)}" if body else statement
    else:
        # Latin-1 keeps positions: a statement is cut off from the bytes behind it.
        head = body[:_STATEMENT_LIMIT].decode("latin-1")
        insert = _INSERT.match(head)
        if insert:
            start, end = insert.span("statement")
            return Insert(_text(body[start:end]), insert["format"], body[insert.end() :])
        text = _text(body)
    if not text.strip():
        raise BadRequest("there is no statement")
    told = _TRAILING_FORMAT.search(text)
    return Query(text, told[1] if told else default_format)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadRequest(f"the statement is no UTF-8: {error}") from error


def _form_fields(content_type: str, body: bytes) -> dict[str, str]:
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + body)
    fields: dict[str, str] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        payload = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(payload, bytes):
            fields[name] = _text(payload)
    return fields
