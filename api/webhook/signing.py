"""Proving to a receiver who is calling: Standard Webhooks, and the header of before.

The scheme signs ``ID.SECONDS.BODY`` by HMAC-SHA256, so that neither another body nor an old
message passes; https://www.standardwebhooks.com has it, and libraries that check it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from typing import Final

from standardwebhooks.webhooks import Webhook as StandardWebhook

from kdnas.errors import SpecError

PREFIX: Final = "whsec_"
LEAST_BYTES, MOST_BYTES = 24, 64
ADVICE: Final = (
    "set one with at least 24 random bytes, such as `echo whsec_$(openssl rand -base64 24)` prints"
)


class Signer:
    """Signs messages.

    Args:
        secret: ``whsec_`` and 24 to 64 bytes in base 64; or plain text of at least 24 bytes, which
            are the key then.

    Raises:
        SpecError: there is none, it is too short, or it is no base 64; never shows it.
    """

    def __init__(self, secret: str | None) -> None:
        if not secret:
            raise SpecError(
                "KDNAS_WEBHOOK_URL is set and KDNAS_WEBHOOK_SECRET is not, so that a receiver "
                f"could not tell who is calling; {ADVICE}"
            )
        self.is_plain = not secret.startswith(PREFIX)
        key = secret.encode() if self.is_plain else _decoded(secret.removeprefix(PREFIX))
        if len(key) < LEAST_BYTES:
            raise SpecError(
                f"KDNAS_WEBHOOK_SECRET has {len(key)} bytes, which can be guessed; {ADVICE}"
            )
        if len(key) > MOST_BYTES and not self.is_plain:
            raise SpecError(
                f"KDNAS_WEBHOOK_SECRET has {len(key)} bytes and may have {MOST_BYTES}; {ADVICE}"
            )
        self._standard = StandardWebhook(key)
        self._old_key = secret.encode()

    def headers(self, message_id: str, body: str, moment: datetime | None = None) -> dict[str, str]:
        """Return the headers that sign a message, sent at a moment, or now.

        Args:
            message_id: the same whenever the message is sent again.
            body: exactly as it is posted.
            moment: aware.
        """
        now = moment or datetime.now(UTC)
        seconds = str(int(now.timestamp()))
        return {
            "webhook-id": message_id,
            "webhook-timestamp": seconds,
            "webhook-signature": self._standard.sign(message_id, now.astimezone(UTC), body),
            "Kdnas-Signature": f"t={seconds},v1={old_signature(self._old_key, seconds, body)}",
        }


def old_signature(key: bytes, seconds: str, body: str) -> str:
    """HMAC-SHA256 of ``seconds.body`` in hexadecimal, as receivers of before check it."""
    return hmac.new(key, f"{seconds}.{body}".encode(), hashlib.sha256).hexdigest()


def _decoded(text: str) -> bytes:
    """Read base 64, with or without the padding at its end."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        raise SpecError(
            f"KDNAS_WEBHOOK_SECRET begins with {PREFIX} and is no base 64 behind it; {ADVICE}"
        ) from None
