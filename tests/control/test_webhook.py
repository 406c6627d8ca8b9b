from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from control.alerts.record import Alert
from control.alerts.states import AlertState
from control.notices import notice
from control.notifiers.http import parse_retry_after
from control.notifiers.protocol import Notice
from control.notifiers.webhook import (
    MAX_BODY_BYTES,
    Webhook,
    WebhookConfig,
    secret_key,
    signature,
)
from tests.control.support import SECRET, START_NS, STUCK

HOOK = Webhook(WebhookConfig(name="hook", url="http://127.0.0.1:1/", secrets=(SECRET,)))
ALERT = Alert(
    id="al_1",
    state=AlertState.FIRING,
    episode=1,
    finding=STUCK,
    fired_at=START_NS,
    updated_at=START_NS,
    key="key",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=800),
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(st.text(max_size=300), inner, max_size=30),
    max_leaves=60,
)


def test_the_signature_of_the_published_example() -> None:
    signed = signature(
        secret_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("size", [24, 32, 64])
def test_a_secret_of_legal_size_is_taken(size: int) -> None:
    assert len(secret_key("whsec_" + base64.b64encode(bytes(size)).decode())) == size


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with whsec_"),
        ("whsec_???", "must be base64"),
        ("whsec_" + base64.b64encode(bytes(23)).decode(), "this one has 23"),
        ("whsec_" + base64.b64encode(bytes(65)).decode(), "this one has 65"),
        ("whsec_", "this one has 0"),
    ],
)
def test_any_other_secret_is_refused_without_showing_it(secret: str, message: str) -> None:
    with pytest.raises(ValueError, match=r"webhooks\.pager\.secrets\[1\]") as caught:
        WebhookConfig(name="pager", url="https://example.test/", secrets=(SECRET, secret))
    assert message in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(secret) < 7 or secret not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"url": "ftp://example.test/"}, "url"),
        ({"url": "example.test"}, "url"),
        ({"secrets": ()}, "secrets"),
        ({"timeout_s": 0.0}, "timeout_s"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused_by_its_key(
    change: dict[str, object], key: str
) -> None:
    fields: dict[str, object] = {"name": "pager", "url": "https://example.test/", "secrets": (SECRET,)}
    with pytest.raises(ValueError, match=rf"webhooks\.pager\.{key}"):
        WebhookConfig(**(fields | change))  # type: ignore[arg-type]  # wrong on purpose


def test_the_body_says_what_happened_when_and_to_whom() -> None:
    body = orjson.loads(HOOK.render(notice(ALERT, [])))
    assert list(body) == ["type", "timestamp", "data"]
    assert (body["type"], body["timestamp"]) == ("alert.firing", "2023-11-14T22:13:20.000Z")
    told = body["data"]
    assert (told["alert_id"], told["session_id"], told["tool"], told["occurrences"]) == (
        "al_1",
        "session-1",
        "fetch_page",
        6,
    )
    assert (told["evidence"], told["summary"]) == (STUCK.evidence, STUCK.summary)
    assert "truncated" not in told


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(evidence=st.dictionaries(st.text(max_size=50), JSON, max_size=30), summary=st.text(max_size=50_000))
def test_a_body_is_never_too_large_and_always_names_the_alert(
    evidence: dict[str, object], summary: str
) -> None:
    data = dict(notice(ALERT, []).data) | {"evidence": evidence, "summary": summary}
    body = HOOK.render(Notice(type="alert.firing", at_ns=START_NS, data=data))  # type: ignore[arg-type]  # JSON by construction
    assert len(body) <= MAX_BODY_BYTES
    assert orjson.loads(body)["data"]["alert_id"] == "al_1"


def test_the_documented_way_to_verify_accepts_what_is_sent_and_nothing_else() -> None:
    page = (Path(__file__).parents[2] / "docs/webhooks.md").read_text(encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], scope)
    body = HOOK.render(notice(ALERT, []))
    headers = {"webhook-id": "msg_1", "webhook-timestamp": "1700000000"}
    headers["webhook-signature"] = f"v1,AAAA {signature(secret_key(SECRET), 'msg_1', 1700000000, body)}"
    assert scope["verified"](SECRET, headers, body)
    assert not scope["verified"](SECRET, headers, body + b" ")
    assert not scope["verified"](SECRET, headers | {"webhook-id": "msg_2"}, body)


def test_even_the_worst_texts_fit() -> None:
    data = {
        key: "\x01" * 50_000 if isinstance(value, str) else value
        for key, value in notice(ALERT, []).data.items()
    }
    assert len(HOOK.render(Notice(type="alert.firing", at_ns=START_NS, data=data))) <= MAX_BODY_BYTES


@pytest.mark.parametrize(
    "text",
    ["9" * 5000, "Mon, 01 Jan 99999999999999999999 00:00:00 GMT", "\x00", ",,,", "Thu, 01", "-5", "1e5", ""],
)
def test_no_retry_after_of_a_receiver_is_too_odd(text: str) -> None:
    asked = parse_retry_after(text, 0.0)
    assert asked is None or 0 <= asked < float("inf")
