from __future__ import annotations

import base64
import gzip
from urllib.parse import urlencode

import pytest

from storage import httprequest
from storage.httprequest import BadRequest, Insert, Query, decompressed, presented_secret, read_request


def work(body: bytes, **fields: str) -> Insert | Query:
    return read_request(urlencode(fields), {}, body).work


def test_an_insert_is_cut_where_its_data_begins() -> None:
    body = b"INSERT INTO otel_traces (`Events.Name`, `a\\`b`, c) FORMAT ArrowStream\n\xff\x00\n"
    statement = "INSERT INTO otel_traces (`Events.Name`, `a\\`b`, c)"
    assert work(body) == Insert(statement, "ArrowStream", b"\xff\x00\n")


def test_a_statement_in_the_url_leaves_the_body_to_the_data() -> None:
    assert work(b"\xff", query="INSERT INTO t FORMAT Native") == Insert("INSERT INTO t", "Native", b"\xff")


def test_an_insert_out_of_a_query_is_a_query() -> None:
    assert work(b"INSERT INTO t SELECT 1") == Query("INSERT INTO t SELECT 1", "TabSeparated")


def test_a_format_at_the_end_is_the_answers_format() -> None:
    assert work(b"SELECT 1\n FORMAT Native") == Query("SELECT 1\n FORMAT Native", "Native")
    assert work(b"SELECT 1", default_format="JSON") == Query("SELECT 1", "JSON")


def test_a_long_statement_is_read_in_no_time() -> None:
    names = ", ".join(f"`column{n}`" for n in range(2000))
    statement = f"INSERT INTO t ({names}) SELECT 1"
    assert work(statement.encode()) == Query(statement, "TabSeparated")


def test_what_speaks_to_http_is_no_setting() -> None:
    fields = {
        "database": "otel",
        "query_id": "q",
        "session_id": "s",
        "wait_end_of_query": "1",
        "max_threads": "1",
    }
    request = read_request(
        urlencode(fields | {"param_a": "x", "user": "u", "password": "p"}), {}, b"SELECT 1"
    )
    assert (request.database, request.query_id, request.session) == ("otel", "q", "s")
    assert request.settings == {"max_threads": "1"}
    assert request.parameters == {"a": "x"}


@pytest.mark.parametrize("body", [b"", b"  \n", b"SELECT '\xff'"])
def test_no_statement_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        work(body)


def test_a_bomb_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(httprequest, "MAX_BODY_BYTES", 1000)
    assert len(decompressed(gzip.compress(bytes(1000)), "gzip")) == 1000
    with pytest.raises(BadRequest) as refused:
        decompressed(gzip.compress(bytes(10_000_000)), "gzip")
    assert refused.value.status == 413


@pytest.mark.parametrize(
    ("headers", "secret"),
    [
        ({}, ""),
        ({"X-ClickHouse-Key": "a:b"}, "a:b"),
        ({"Authorization": f"Basic {base64.b64encode(b'user:a:b').decode()}"}, "a:b"),
        ({"Authorization": "Basic ~"}, ""),
        ({"Authorization": "Bearer a:b"}, ""),
    ],
)
def test_the_secret_comes_in_two_ways(headers: dict[str, str], secret: str) -> None:
    assert presented_secret(headers) == secret
