"""Secrets that are refused, and signatures that the library of the scheme verifies."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from api.webhook.signing import Signer, old_signature
from kdnas.errors import SpecError

KEY = bytes(range(24))
SECRET = f"whsec_{base64.b64encode(KEY).decode()}"
BODY = '{"event": 7, "name": "größer"}'


@given(st.binary(min_size=24, max_size=64), st.text(max_size=200))
def test_the_library_verifies_what_is_signed(key: bytes, body: str) -> None:
    secret = f"whsec_{base64.b64encode(key).decode()}"
    for written in (secret, secret.rstrip("=")):
        headers = Signer(written).headers("msg1", body)
        Webhook(secret).verify(body.encode(), headers, json_parse=False)


def test_another_body_id_or_key_is_not_verified() -> None:
    headers = Signer(SECRET).headers("msg1", BODY)
    assert Webhook(SECRET).verify(BODY.encode(), headers)["event"] == 7
    other = f"whsec_{base64.b64encode(KEY[::-1]).decode()}"
    for secret, body, message_id in (
        (SECRET, BODY + " ", "msg1"),
        (SECRET, BODY, "msg2"),
        (other, BODY, "msg1"),
    ):
        with pytest.raises(WebhookVerificationError, match="No matching signature"):
            Webhook(secret).verify(body.encode(), {**headers, "webhook-id": message_id})


def test_an_old_message_is_not_verified() -> None:
    headers = Signer(SECRET).headers("msg1", BODY, datetime.now(UTC) - timedelta(minutes=6))
    with pytest.raises(WebhookVerificationError, match="too old"):
        Webhook(SECRET).verify(BODY.encode(), headers)


def test_plain_text_is_the_key_itself() -> None:
    plain = "a secret of the user's, long enough"
    signer = Signer(plain)
    assert signer.is_plain
    assert not Signer(SECRET).is_plain
    Webhook(plain.encode()).verify(BODY.encode(), signer.headers("msg1", BODY))


@pytest.mark.parametrize("secret", [SECRET, "a secret of the user's, long enough"])
def test_the_header_of_before_is_signed_with_the_text_of_the_secret(secret: str) -> None:
    moment = datetime(2026, 3, 2, tzinfo=UTC)
    headers = Signer(secret).headers("msg1", BODY, moment)
    seconds = str(int(moment.timestamp()))
    expected = old_signature(secret.encode(), seconds, BODY)
    assert headers["Kdnas-Signature"] == f"t={seconds},v1={expected}"
    assert headers["webhook-timestamp"] == seconds


def test_the_signature_of_before_is_hmac_sha256_of_time_and_body() -> None:
    # printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key
    assert old_signature(b"key", "1700000000", '{"a":1}') == (
        "a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03"
    )


@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (None, "KDNAS_WEBHOOK_SECRET is not"),
        ("", "KDNAS_WEBHOOK_SECRET is not"),
        ("short", "has 5 bytes, which can be guessed"),
        ("whsec_" + base64.b64encode(KEY[:23]).decode(), "has 23 bytes, which can be guessed"),
        ("whsec_", "has 0 bytes"),
        ("whsec_" + base64.b64encode(bytes(65)).decode(), "has 65 bytes and may have 64"),
        ("whsec_not base 64, but long enough for that", "is no base 64"),
        ("whsec_" + base64.urlsafe_b64encode(b"\xff" * 24).decode(), "is no base 64"),
        (SECRET + "\n", "is no base 64"),
        ("whsec_ä" + "A" * 40, "is no base 64"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused_with_the_command(
    secret: str | None, reason: str
) -> None:
    with pytest.raises(SpecError) as caught:
        Signer(secret)
    assert reason in str(caught.value)
    assert "`echo whsec_$(openssl rand -base64 24)` prints" in str(caught.value)
    assert not secret or secret == "whsec_" or secret not in str(caught.value)
