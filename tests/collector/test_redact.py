"""No secret of a known shape gets through, wherever it sits; what identifies a call does."""

from __future__ import annotations

import base64
import json
import re
import string

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from otlp_requests import NOW_NS, Loose, logs, spans_of, traces

from collector.batch import Signal
from collector.decode import decode
from collector.redact import RedactionSettings, Redactor
from collector.redact_patterns import SHAPES, candidates, is_secret_name

REDACTOR = Redactor(RedactionSettings())
HASHES = Redactor(RedactionSettings(hash_only=True))

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
GITHUB = "ghp_" + LETTERS[:36]


def text(alphabet: str, size: int, longest: int | None = None) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=size, max_size=longest or size)


def shaped(prefix: str, alphabet: str, size: int) -> st.SearchStrategy[str]:
    return text(alphabet, size, size + 20).map(lambda tail: prefix + tail)


# Secrets that say what they are wherever they stand.
SHAPED = st.one_of(
    shaped("sk-ant-api03-", LETTERS + "_-", 80),
    shaped("sk-proj-", LETTERS, 40),
    shaped("sk-or-v1-", HEX, 64),
    shaped("sk-", LETTERS, 48),
    shaped("pk-lf-", HEX, 32),
    shaped("sk_live_", LETTERS, 24),
    shaped("whsec_", LETTERS, 24),
    shaped("AIza", LETTERS + "_-", 35),
    shaped("ya29.", LETTERS, 60),
    text(string.ascii_uppercase + string.digits, 16).map(lambda tail: "AKIA" + tail),
    shaped("ghp_", LETTERS, 36),
    shaped("github_pat_", LETTERS + "_", 60),
    shaped("glpat-", LETTERS, 20),
    shaped("xoxb-", string.digits, 20),
    shaped("hf_", LETTERS, 34),
    shaped("npm_", LETTERS, 36),
    shaped("pypi-", LETTERS, 60),
    shaped("lsv2_pt_", HEX, 32),
    shaped("gsk_", LETTERS, 48),
    shaped("xai-", LETTERS, 60),
    shaped("pplx-", LETTERS, 40),
    shaped("r8_", LETTERS, 37),
    shaped("nvapi-", LETTERS, 60),
    shaped("tvly-", LETTERS, 30),
    text(HEX, 32).map(lambda tail: "SK" + tail),
    text(HEX, 32).map(lambda tail: "key-" + tail),
    shaped("hvs.", LETTERS, 30),
    text(HEX, 32).map(lambda tail: "dapi" + tail),
    text(LETTERS, 20).map(lambda tail: f"eyJhbGciOiJIUzI1NiJ9.eyJ{tail}.{tail}"),
    text(LETTERS + "+/", 60).map(
        lambda tail: f"-----BEGIN RSA PRIVATE KEY-----\n{tail}\n-----END RSA PRIVATE KEY-----"
    ),
)
PASSWORD = text(LETTERS + "!*_~", 9, 17).map(lambda word: "Zq9" + word)

# Secrets that only their place tells; `{}` is where one goes.
PLACES = (
    "password={}",
    "PGPASSWORD={} psql",
    "--api-key={} --verbose",
    '{{"password": "{}"}}',
    '{{"user": "u", "apiKey":"{}", "page": 3}}',
    "{{'client_secret': '{}', 'page': 3}}",
    "Authorization: Bearer {}123",
    "authorization: Basic {}",
    "curl -H 'X-Api-Key: {}' https://example.invalid",
    "postgres://user:{}@db:5432/app",
    "amqp://:{}@queue",
    "https://example.invalid/?access_token={}&page=2",
    "AWS_SECRET_ACCESS_KEY={}",
    'api_key = "{}"',
    "passwd: {}",
    "db.password => '{}'",
    "deploy --password {} --verbose",
    "deploy --db-password '{}'",
    'gh auth --token "{}"; true',
    '["login", "--api-key", "{}"]',
    "curl -s -u admin:{} https://example.invalid",
    "curl https://example.invalid --user 'admin:{}'",
    "mysql -uroot -p{} shop",
    "mysqldump -h db -p'{}' shop",
)
LEFT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\"'\\"), max_size=10)


@st.composite
def leaking_texts(draw: st.DrawFn) -> tuple[str, str]:
    """Return a secret and a text that holds it, plain, in JSON, or in JSON inside JSON."""
    if draw(st.booleans()):
        secret = draw(SHAPED)
        whole = (
            draw(LEFT) + draw(st.sampled_from([" ", "\n", '"', "=", "(", "%20"])) + secret + " " + draw(LEFT)
        )
    else:
        secret = draw(PASSWORD)
        whole = draw(LEFT) + " " + draw(st.sampled_from(PLACES)).format(secret) + " " + draw(LEFT)
    for _ in range(draw(st.integers(0, 3))):
        whole = json.dumps({"note": whole, "n": [1, {"k": whole}]}, ensure_ascii=draw(st.booleans()))
    return secret, whole


def pieces(secret: str) -> list[str]:
    """Return what of a secret must not be seen: of a private key each line."""
    return [line for line in secret.split("\n") if "KEY-----" not in line] or [secret]


@settings(max_examples=400, deadline=None)
@given(leaking_texts())
def test_no_secret_survives_in_a_text(leak: tuple[str, str]) -> None:
    secret, whole = leak
    redacted = REDACTOR.text(whole)
    assert not any(piece in redacted for piece in pieces(secret))
    assert "[REDACTED:" in redacted
    assert REDACTOR.text(redacted) == redacted
    hashed = HASHES.value("gen_ai.tool.call.result", whole)
    assert not any(piece in hashed for piece in pieces(secret))
    assert HASHES.value("gen_ai.tool.call.result", hashed) == hashed


@settings(max_examples=200, deadline=None)
@given(leaking_texts())
def test_the_search_over_columns_misses_nothing(leak: tuple[str, str]) -> None:
    found = pc.match_substring_regex(pa.array([leak[1]]), candidates((), ()))
    assert found.to_pylist() == [True]


@settings(max_examples=40, deadline=None)
@given(leaking_texts(), st.sampled_from([REDACTOR, HASHES]))
def test_no_secret_survives_in_any_column(leak: tuple[str, str], redactor: Redactor) -> None:
    secret, whole = leak
    request = traces()
    resource = request.resource_spans[0]
    span = spans_of(request)[0]
    span.name = span.trace_state = span.status.message = whole
    resource.schema_url = resource.scope_spans[0].schema_url = whole
    resource.scope_spans[0].scope.name = resource.scope_spans[0].scope.version = whole
    event, link = span.events.add(name=whole), span.links.add(trace_state=whole)
    for holder in (span, event, link, resource.resource, resource.scope_spans[0].scope):
        fill(holder.attributes, whole)
    batch = decode(
        Signal.TRACES, "protobuf", request.SerializeToString(), redactor=redactor, now_ns=NOW_NS
    ).batch
    assert batch is not None
    clean(batch.columns, secret)
    assert REDACTOR.columns(batch.columns) == batch.columns

    log_request = logs()
    record = log_request.resource_logs[0].scope_logs[0].log_records[0]
    record.severity_text = record.event_name = record.body.string_value = whole
    fill(record.attributes, whole)
    batch = decode(
        Signal.LOGS, "protobuf", log_request.SerializeToString(), redactor=redactor, now_ns=NOW_NS
    ).batch
    assert batch is not None
    clean(batch.columns, secret)
    assert redactor.columns(batch.columns) == batch.columns


def fill(attributes: Loose, whole: str) -> None:
    attributes.add(key="plain").value.string_value = whole
    attributes.add(key=whole).value.int_value = 1
    attributes.add(key="array").value.array_value.values.add(string_value=whole)
    nested = attributes.add(key="kvlist").value.kvlist_value.values.add(key="k").value
    nested.kvlist_value.values.add(key=whole).value.string_value = whole


def clean(columns: pa.RecordBatch, secret: str) -> None:
    everything = str(columns.to_pylist())
    shown = [repr(piece)[1:-1] for piece in pieces(secret)]
    assert not any(piece in everything for piece in shown)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(PLACES), PASSWORD, PASSWORD)
def test_equal_secrets_stay_equal_and_different_ones_different(place: str, one: str, other: str) -> None:
    assert REDACTOR.text(place.format(one)) == REDACTOR.text(place.format(one))
    assert (REDACTOR.text(place.format(one)) == REDACTOR.text(place.format(other))) is (one == other)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-99, 99), text(LETTERS + " ", 0, 8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(text(string.ascii_lowercase, 1, 5), inner)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(JSON, JSON)
def test_hashed_arguments_compare_as_the_arguments_do(one: Loose, other: Loose) -> None:
    def hashed(arguments: Loose) -> str:
        return HASHES.value("gen_ai.tool.call.arguments", json.dumps(arguments))

    assert hashed(one) == hashed(one)
    if json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True):
        assert hashed(one) != hashed(other)


@settings(max_examples=100, deadline=None)
@given(JSON)
def test_json_stays_json(value: Loose) -> None:
    whole = json.dumps({"password": "hunter2hunter2", "rest": value, "token": "abcdefgh12345678"})
    redacted = json.loads(REDACTOR.text(whole))
    assert redacted["rest"] == value
    assert redacted["password"].startswith("[REDACTED:password:")


# --- single cases


@pytest.mark.parametrize(
    "harmless",
    [
        "max_tokens: 4096",
        '{"usage": {"token": 5, "total_tokens": 17, "input_tokens": 3}}',
        "next_page_token=abc123def456",
        '{"nextPageToken": "abc123def456"}',
        "Unexpected token: foo in JSON at position 4",
        "Bearer authentication required",
        "Basic understanding of the task-management-system-for-everyone",
        'api_key = os.environ["API_KEY"]',
        'password = "${DB_PASSWORD}"'.replace('"', ""),
        "https://example.invalid:8080/path?x=1",
        "mailto:user@example.invalid",
        "the secret of success: patience",
        '{"secret_name": "db", "token_type": "bearer", "is_secret": true, "password": null}',
        "sk-learn, task-force, risk-assessment",
        "time_to_first_token: 0.25",
        '{"token": true, "cookie": false}',
        "docker run --name mysql -p 8080:80 -p3306:3306 mysql",
        "docker run -u 1000:1000 curlimages/curl",
        "curl https://example.invalid | docker run -u 1000:1000 -i image",
        "curl --user-agent=Mozilla:5 -X PUT https://example.invalid:80/",
        "mysql --port 3306 && mkdir -parents a; ssh -p 8080 host",
        "ssh -pvalue host",
        "The --token option is needed; --password is not. Use --token to log in.",
        "deploy --password $PASSWORD --token ${TOKEN} --password-file secret.txt --token -v",
        "train --max-tokens 4096 --tokenizer fast123456",
        "deploy --token",
    ],
)
def test_what_is_no_secret_stays(harmless: str) -> None:
    assert REDACTOR.text(harmless) == harmless


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("db.password", True),
        ("X-Api-Key", True),
        ("http.request.header.authorization", True),
        ("accessToken", True),
        ("aws_secret_access_key", True),
        ("set-cookie", True),
        ("session_token", True),
        ("connectionString", True),
        ("gen_ai.usage.input_tokens", False),
        ("max_tokens", False),
        ("gen_ai.token.type", False),
        ("llm.token_count.prompt", False),
        ("next_page_token", False),
        ("session.id", False),
        ("tool.key", False),
        ("keyboard", False),
        ("monkey", False),
        ("primary_key", False),
    ],
)
def test_names_of_secrets(name: str, *, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_the_whole_value_of_a_secret_attribute_goes() -> None:
    assert REDACTOR.value("db.password", "a b c").startswith("[REDACTED:password:")
    assert REDACTOR.value("db.password", "") == ""
    assert REDACTOR.value("token", "512") == "512"


def test_a_private_key_that_was_cut_is_gone_to_its_end() -> None:
    cut = "key: -----BEGIN PRIVATE KEY-----\nMIIEvQ\nIBADAN"
    assert REDACTOR.text(cut).startswith("key: [REDACTED:private_key:")
    assert "MIIE" not in REDACTOR.text(cut)


def test_a_text_that_was_cut_inside_a_secret() -> None:
    assert REDACTOR.text('{"a": 1, "password": "hunter2hun').startswith(
        '{"a": 1, "password": "[REDACTED:password:'
    )


@pytest.mark.parametrize("credentials", [GITHUB, f"{GITHUB}:x-oauth-basic", f"x:{GITHUB}"])
def test_a_token_as_the_user_of_an_address_is_replaced_once(credentials: str) -> None:
    once = REDACTOR.text(f"git clone https://{credentials}@example.com/x.git")
    assert GITHUB not in once
    assert "[REDACTED:github:" in once
    assert "[REDACTED:[" not in once
    assert REDACTOR.text(once) == once


def test_extra_keys_and_patterns() -> None:
    redactor = Redactor(RedactionSettings(extra_keys=("ssn", "Badge"), extra_patterns=(r"EMP-\d{6}",)))
    assert redactor.value("user.ssn", "123").startswith("[REDACTED:ssn:")
    assert "123456" not in redactor.text("badge EMP-123456")
    assert "abc" not in redactor.text('{"badge": "abc"}')
    assert "EMP" not in redactor.columns(one_text("EMP-123456")).to_pylist()[0]["SpanName"]


def one_text(name: str) -> pa.RecordBatch:
    request = traces()
    spans_of(request)[0].name = name
    batch = decode(
        Signal.TRACES, "protobuf", request.SerializeToString(), redactor=REDACTOR, now_ns=NOW_NS
    ).batch
    assert batch is not None
    return batch.columns


@pytest.mark.parametrize("pattern", ["(", "(?<=a)b", r"(a)\1"])
def test_a_pattern_that_one_of_the_engines_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="redaction pattern"):
        Redactor(RedactionSettings(extra_patterns=(pattern,)))


def test_the_search_counts_nothing() -> None:
    """Counted classes are what RE2 cannot search for at the speed of reading."""
    assert re.findall(r"\]\{[0-9,]+\}", candidates((), ())) == []


def test_every_shape_has_its_hint_in_its_pattern() -> None:
    for shape in SHAPES:
        assert shape.hints, shape.kind


def test_basic_credentials_are_told_from_words() -> None:
    credentials = base64.b64encode(b"user:hunter2").decode()
    assert credentials not in REDACTOR.text(f"sent Basic {credentials} twice")
    assert REDACTOR.text("Basic knowledge of things") == "Basic knowledge of things"


@pytest.mark.parametrize(
    "piece",
    [
        "x",
        "-eyJ",
        "token: ",
        'password="',
        'password=\\"',
        "sk-",
        "-----BEGIN ",
        "http://a:",
        "a_",
        "\\",
        "secret_",
        "--token ",
        "--token '",
        '--token "\\',
        "curl -u ",
        "mysql -p",
        "curl -u a:b ",
    ],
)
def test_texts_made_to_be_slow_come_to_an_end(piece: str) -> None:
    text = piece * (128 * 1024 // len(piece))  # a search that starts anew at each piece would take minutes
    for whole in (text, f"token{text}", f"{text}://{text}"):
        assert REDACTOR.text(REDACTOR.text(whole)) == REDACTOR.text(whole)


# --- hash-only mode


def test_hashes_keep_what_was_done_and_hide_what_was_said() -> None:
    messages = json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "text", "content": "I will look it up"},
                    {
                        "type": "tool_call",
                        "id": "call_1",
                        "name": "search",
                        "arguments": {"name": "Ada", "page": 2},
                    },
                ],
                "finish_reason": "tool_calls",
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "call_1", "response": "12 hotels"}],
            },
        ]
    )
    hashed = json.loads(HASHES.value("gen_ai.output.messages", messages))
    call = hashed[0]["parts"][1]
    assert (call["type"], call["id"], call["name"], call["arguments"]["page"]) == (
        "tool_call",
        "call_1",
        "search",
        2,
    )
    assert call["arguments"]["name"].startswith("[HASH:")
    assert hashed[0]["parts"][0]["content"].startswith("[HASH:")
    assert hashed[0]["finish_reason"] == "tool_calls"
    assert hashed[1]["parts"][0]["id"] == "call_1"
    assert hashed[1]["parts"][0]["response"].startswith("[HASH:")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gen_ai.tool.name", "search"),
        ("gen_ai.tool.call.id", "call_1"),
        ("gen_ai.request.model", "gpt-5"),
        ("gen_ai.usage.input_tokens", "17"),
        ("session.id", "s-1"),
        ("openinference.span.kind", "TOOL"),
        ("success", "false"),
        ("error.type", "TimeoutError"),
        ("anything.else", "17"),
        ("anything.else", "true"),
    ],
)
def test_structure_stays_in_hash_only_mode(key: str, value: str) -> None:
    assert HASHES.value(key, value) == value


@pytest.mark.parametrize(
    "key",
    [
        "gen_ai.input.messages",
        "input.value",
        "output.value",
        "prompt",
        "tool_input",
        "arguments",
        "output",
        "anything",
    ],
)
def test_content_goes_in_hash_only_mode(key: str) -> None:
    assert HASHES.value(key, "my name is Ada").startswith("[HASH:")


@pytest.mark.parametrize(
    ("result", "start"),
    [
        ("Error: no such city as Atlantis", "Error: [HASH:"),
        ("Process exited with code 1\nOutput: secret plans", "Process exited with code 1: [HASH:"),
        ("fetch failed: HTTP 503 from intranet", "HTTP 503: [HASH:"),
        ("FileNotFoundError: /home/ada/plans", "FileNotFoundError: [HASH:"),
    ],
)
def test_how_a_call_ended_stays_in_hash_only_mode(result: str, start: str) -> None:
    hashed = HASHES.value("gen_ai.tool.call.result", result)
    assert hashed.startswith(start)
    assert len(hashed) == len(start) + 17


def test_status_messages_and_bodies_are_hashed() -> None:
    request = traces()
    spans_of(request)[0].status.message = "could not reach Ada"
    batch = decode(
        Signal.TRACES, "protobuf", request.SerializeToString(), redactor=HASHES, now_ns=NOW_NS
    ).batch
    assert batch is not None
    assert batch.columns.to_pylist()[0]["StatusMessage"].startswith("[HASH:")
