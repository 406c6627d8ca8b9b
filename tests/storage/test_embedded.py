"""What only the store process of our own does: its protocol, its secret, its life and its death."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clickhouse_connect
import lz4.frame
import pytest
import urllib3
import zstandard

from collector.consumer import Unavailable
from storage.client import StoreTarget, connect
from storage.embedded import EmbeddedOptions, engine_config
from storage.migrate import migrate
from storage.writer import Writer
from tests.storage.rows_for_tests import span_batch, trace_id
from tests.storage.store_process import SECRET, StoreProcess

pytestmark = pytest.mark.store

HTTP = urllib3.PoolManager(retries=False)
KEY = {"X-ClickHouse-Key": SECRET}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreProcess]:
    running = StoreProcess(tmp_path_factory.mktemp("embedded"))
    running.start()
    yield running
    running.stop()


def post(target: StoreTarget, path: str, body: bytes, **headers: str) -> urllib3.BaseHTTPResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.request("POST", f"{target.url}{path}", body=body, headers=KEY | named)


def spans_of(target: StoreTarget, name: str) -> tuple[int, int]:
    client = connect(target)
    parameters = {"trace": trace_id(name)}
    [(base,)] = client.rows("SELECT count() FROM otel_traces WHERE TraceId = {trace:String}", parameters)
    [(view,)] = client.rows(
        "SELECT sum(Spans) FROM otel_traces_trace_id_ts WHERE TraceId = {trace:String}", parameters
    )
    client.close()
    return base, view


def test_ping_needs_no_secret(process: StoreProcess) -> None:
    answer = HTTP.request("GET", f"{process.target.url}/ping")
    assert (answer.status, answer.data) == (200, b"Ok.\n")


@pytest.mark.parametrize("path", ["/play", "/dashboard", "/metrics", "/replicas_status", "/ping/x"])
def test_nothing_else_is_served(process: StoreProcess, path: str) -> None:
    assert HTTP.request("GET", f"{process.target.url}{path}", headers=KEY).status == 404
    assert post(process.target, path, b"SELECT 1").status == 404


@pytest.mark.parametrize("headers", [{}, {"X-ClickHouse-Key": "wrong"}, {"Authorization": "Basic !"}])
def test_no_statement_without_the_secret(process: StoreProcess, headers: dict[str, str]) -> None:
    answer = HTTP.request("POST", f"{process.target.url}/", body=b"SELECT 1", headers=headers)
    assert (answer.status, answer.headers["X-ClickHouse-Exception-Code"]) == (403, "516")


@pytest.mark.parametrize("length", ["many", "-1", "1_0", "²", ""])
def test_a_refusal_is_said_whatever_the_length_of_the_body_is_told_to_be(
    process: StoreProcess, length: str
) -> None:
    with socket.create_connection(("127.0.0.1", int(process.target.url.rpartition(":")[2])), 5) as sent:
        sent.sendall(f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
        assert sent.recv(4096).startswith(b"HTTP/1.1 403 ")


def test_an_answer_carries_clickhouses_headers(process: StoreProcess) -> None:
    answer = post(process.target, "/?query_id=mine", b"SELECT 1 AS x FORMAT JSONEachRow")
    assert answer.data == b'{"x":1}\n'
    assert answer.headers["X-ClickHouse-Query-Id"] == "mine"
    assert answer.headers["X-ClickHouse-Format"] == "JSONEachRow"
    assert answer.headers["X-ClickHouse-Timezone"] == "UTC"
    assert '"read_rows"' in answer.headers["X-ClickHouse-Summary"]


def test_an_error_carries_its_code(process: StoreProcess) -> None:
    answer = post(process.target, "/", b"SELECT nonsense FROM nowhere")
    assert answer.status == 404
    assert answer.headers["X-ClickHouse-Exception-Code"] == "60"
    assert answer.data.startswith(b"Code: 60. DB::Exception: ")


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("gzip", gzip.compress),
        ("deflate", zlib.compress),
        ("zstd", zstandard.ZstdCompressor().compress),
        ("lz4", lz4.frame.compress),
    ],
)
def test_bodies_may_be_compressed(process: StoreProcess, encoding: str, compress: type[bytes]) -> None:
    answer = post(process.target, "/", bytes(compress(b"SELECT 42")), Content_Encoding=encoding)
    assert answer.data == b"42\n"
    assert post(process.target, "/", b"SELECT 42", Content_Encoding=encoding).status == 400


def test_an_unknown_encoding_is_said_to_be_so(process: StoreProcess) -> None:
    assert post(process.target, "/", b"SELECT 42", Content_Encoding="snappy").status == 415


def test_a_body_too_large_is_refused_before_it_is_read(process: StoreProcess) -> None:
    answer = HTTP.request(
        "POST", f"{process.target.url}/", headers=KEY | {"Content-Length": str(10**12)}, timeout=5
    )
    assert answer.status == 413


def test_settings_do_not_leak_into_later_statements(process: StoreProcess) -> None:
    probe = b"SELECT getSetting('max_result_rows')"
    assert post(process.target, "/?max_result_rows=7", probe).data == b"7\n"
    assert post(process.target, "/", probe).data == b"0\n"


def test_the_client_works_as_it_comes(process: StoreProcess) -> None:
    """clickhouse-connect with its own defaults: sessions, compression, its Native inserts."""
    client = clickhouse_connect.get_client(dsn=process.target.url, username="default", password=SECRET)
    client.command("CREATE TEMPORARY TABLE t (n UInt64, s String, m Map(String, Array(Float64)))")
    rows = [[1, "ä", {"a": [1.5]}], [2**64 - 1, "", {}]]
    client.insert("t", rows, column_names=["n", "s", "m"])
    assert [list(row) for row in client.query("SELECT * FROM t ORDER BY n").result_rows] == rows
    assert client.query("SELECT * FROM t LIMIT 0").column_names == ("n", "s", "m")
    long = "x" * 100_000
    assert client.query("SELECT length({long:String})", parameters={"long": long}).first_row == (100_000,)
    client.close()


def test_statements_run_side_by_side(process: StoreProcess) -> None:
    """A statement that waits for another one would wait for ever here."""
    slow = threading.Thread(target=post, args=(process.target, "/", b"SELECT sleep(1)"), daemon=True)
    slow.start()
    assert post(process.target, "/", b"SELECT 1").data == b"1\n"
    assert slow.is_alive()
    slow.join()


def test_a_session_serves_one_statement_at_a_time(process: StoreProcess) -> None:
    with ThreadPoolExecutor(3) as pool:
        path = "/?session_id=shared"
        answers = list(pool.map(lambda _: post(process.target, path, b"SELECT sleep(0.5)"), range(3)))
    codes = [answer.headers.get("X-ClickHouse-Exception-Code") for answer in answers]
    assert sorted(codes, key=str) == ["373", "373", None]


def test_many_sessions_are_served_one_after_the_other(process: StoreProcess) -> None:
    for number in range(40):
        assert post(process.target, f"/?session_id={number}", b"SELECT 1").data == b"1\n"


def test_too_little_memory_means_later(process: StoreProcess) -> None:
    client = connect(process.target)
    with pytest.raises(Unavailable) as refused:
        client.rows(
            "SELECT groupArray(number) FROM numbers(10000000) SETTINGS max_memory_usage = 1000000",
            database="",
        )
    assert refused.value.retry_after > 1
    client.close()


def test_the_store_lives_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    running = StoreProcess(tmp_path / "store")
    running.start()
    answer = post(running.target, "/", b"SELECT timezone(), toDateTime(0)")
    assert running.stop() == 0
    assert answer.data == b"UTC\t1970-01-01 00:00:00\n"


def test_what_was_acknowledged_survives_kill_9(own: StoreProcess) -> None:
    client = connect(own.target)
    migrate(client)
    acknowledged: list[str] = []

    def load() -> None:
        try:
            for number in range(10_000):
                Writer(client).insert_spans(span_batch("killed", 50, number * 50), f"token {number}")
                acknowledged.append(f"token {number}")
        except Unavailable:
            return

    loading = threading.Thread(target=load)
    loading.start()
    while len(acknowledged) < 5:
        time.sleep(0.01)
    own.kill()
    loading.join()
    own.start()
    again = connect(own.target)
    base, _ = spans_of(own.target, "killed")
    assert base >= len(acknowledged) * 50
    for number in range(len(acknowledged) + 1):
        Writer(again).insert_spans(span_batch("killed", 50, number * 50), f"token {number}")
    expected = (len(acknowledged) + 1) * 50
    assert spans_of(own.target, "killed") == (expected, expected)
    again.close()


def test_tokens_are_remembered_over_a_restart(own: StoreProcess) -> None:
    client = connect(own.target)
    migrate(client)
    Writer(client).insert_spans(span_batch("restart", 10), "token")
    assert own.stop() == 0
    own.start()
    Writer(client).insert_spans(span_batch("restart", 10), "token")
    assert spans_of(own.target, "restart") == (10, 10)
    client.close()


def test_a_busy_data_folder_is_named(own: StoreProcess, tmp_path: Path) -> None:
    program = f"""
        from pathlib import Path
        from storage.embedded import EmbeddedOptions, serve_embedded
        serve_embedded(EmbeddedOptions(data_dir=Path({str(own.data_dir)!r}), secret="x"), print)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"recloser store: {own.data_dir} is in use by another process\n"
    assert tmp_path in own.data_dir.parents


def test_the_store_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    program = f"""
        import multiprocessing, time
        from pathlib import Path
        from tests.storage.store_process import StoreProcess

        if __name__ == "__main__":
            store = StoreProcess(Path({str(tmp_path / "store")!r}))
            store.start()
            print(store.process.pid, flush=True)
            time.sleep(60)
    """
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent(program))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        assert parent.stdout is not None
        store_pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 15
    while Path(f"/proc/{store_pid}/cmdline").exists() and time.monotonic() < deadline:
        if Path(f"/proc/{store_pid}/cmdline").read_bytes() == b"":
            break  # ended, and nobody has asked how
        time.sleep(0.02)
    else:
        assert time.monotonic() < deadline


def test_the_secret_is_in_no_repr_and_no_configuration() -> None:
    options = EmbeddedOptions(data_dir=Path("/tmp/x"), secret="hush")
    assert "hush" not in repr(options)
    assert "hush" not in engine_config(options)
    assert "hush" not in repr(StoreTarget(url="http://127.0.0.1", password="hush"))
