"""Who may do what: tokens, sessions of the login page, and how often a log-in may fail.

Without tokens everybody on this machine is an operator, and the service listens on the loopback
address only. What is asked of each request stands in :mod:`api.http.guard`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from kdnas.errors import RequestError
from kdnas.settings import Settings

Role = Literal["operator", "viewer"]

SHORTEST_TOKEN = 16
SESSION_COOKIE = "kdnas_session"
SESSION_SECONDS = 12 * 3600
FAILURES_OF_A_CLIENT, FAILURES_OF_ALL, FAILURE_SECONDS = 5, 50, 60.0


def check_tokens(settings: Settings) -> None:
    """Refuse tokens that protect nothing.

    Raises:
        RequestError: too short, the same twice, or a viewer's without an operator's.
    """
    operator, viewer = settings.operator_token, settings.viewer_token
    for name, token in (("KDNAS_OPERATOR_TOKEN", operator), ("KDNAS_VIEWER_TOKEN", viewer)):
        if token is not None and len(token) < SHORTEST_TOKEN:
            raise RequestError(
                f"{name} has {len(token)} characters, which can be guessed; take at least "
                f"{SHORTEST_TOKEN}, such as `openssl rand -hex 24` prints"
            )
        if token is not None and not (token.isascii() and token.isprintable() and " " not in token):
            raise RequestError(
                f"{name} has characters that no header can carry; take visible ASCII characters, "
                "such as `openssl rand -hex 24` prints"
            )
    if viewer is not None and operator is None:
        raise RequestError(
            "KDNAS_VIEWER_TOKEN is set without KDNAS_OPERATOR_TOKEN, so that everybody could do "
            "everything; set both"
        )
    if viewer is not None and viewer == operator:
        raise RequestError(
            "KDNAS_VIEWER_TOKEN is the same as KDNAS_OPERATOR_TOKEN; take another for viewers"
        )


def check_address(host: str, settings: Settings) -> None:
    """Refuse to listen where others can come in, unless they are asked for a token.

    Raises:
        RequestError: names the address and the setting.
    """
    if settings.operator_token is None and not is_loopback(host):
        raise RequestError(
            f"--host {host} lets other machines in, and no token is asked for; set "
            "KDNAS_OPERATOR_TOKEN (`openssl rand -hex 24` prints one), or listen on 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached under a host name or address."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Access:
    """Knows the tokens and the sessions.

    A session is a signed cookie: role, expiry, a number, and a signature under a key made of the
    token of that role. So it outlasts a restart, and ends when the token is changed. Logging out
    ends it in this process.
    """

    def __init__(self, settings: Settings, now: Callable[[], float] = time.time) -> None:
        tokens: dict[Role, str | None] = {
            "operator": settings.operator_token,
            "viewer": settings.viewer_token,
        }
        self._digests = {role: _digest(token) for role, token in tokens.items() if token}
        self._ended: dict[str, int] = {}
        self._now = now
        self._lock = threading.Lock()

    @property
    def login_required(self) -> bool:
        """Whether a request needs a token at all."""
        return bool(self._digests)

    def role_of_token(self, token: str) -> Role | None:
        """Whose token this is; takes the same time for every wrong one."""
        given, digests = _digest(token), self._digests.items()
        fitting = [role for role, digest in digests if hmac.compare_digest(given, digest)]
        return fitting[0] if fitting else None

    def begin_session(self, role: Role) -> str:
        """Make the value of a cookie."""
        content = f"{role}.{int(self._now()) + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{content}.{self._signature(role, content)}"

    def role_of_session(self, cookie: str) -> Role | None:
        """Whose session this is; None if it is forged, over, or ended."""
        parts = cookie.split(".")
        role = next((role for role in self._digests if role == parts[0]), None)
        if role is None or len(parts) != 4 or not parts[1].isdecimal():
            return None
        content, signature = cookie.rsplit(".", 1)
        if not hmac.compare_digest(
            self._signature(role, content).encode(), signature.encode("utf-8", "replace")
        ):
            return None
        return None if int(parts[1]) <= self._now() or parts[2] in self._ended else role

    def end_session(self, cookie: str) -> None:
        """Accept a cookie no longer."""
        if self.role_of_session(cookie) is None:
            return
        _, expires, number, _ = cookie.split(".")
        with self._lock:
            self._ended = {n: e for n, e in self._ended.items() if e > self._now()}
            self._ended[number] = int(expires)

    def _signature(self, role: Role, content: str) -> str:
        key = hashlib.sha256(b"kdnas session " + self._digests[role]).digest()
        return hmac.new(key, content.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


class LoginLimiter:
    """Counts log-ins that failed: of one client, and of all together."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._failures: deque[tuple[float, str]] = deque()
        self._now = now
        self._lock = threading.Lock()

    def seconds_to_wait(self, client: str) -> int:
        """How long this client has to wait before it may try, 0 if it may now."""
        with self._lock:
            self._forget()
            failures = list(self._failures)
        of_client = [moment for moment, who in failures if who == client]
        of_all = [moment for moment, _ in failures]
        return max(self._wait(of_client, FAILURES_OF_A_CLIENT), self._wait(of_all, FAILURES_OF_ALL))

    def failed(self, client: str) -> None:
        """Note a log-in with a wrong token."""
        with self._lock:
            self._forget()
            self._failures.append((self._now(), client))

    def _wait(self, moments: list[float], allowed: int) -> int:
        if len(moments) < allowed:
            return 0
        return max(1, round(moments[-allowed] + FAILURE_SECONDS - self._now()))

    def _forget(self) -> None:
        while self._failures and self._failures[0][0] <= self._now() - FAILURE_SECONDS:
            self._failures.popleft()
