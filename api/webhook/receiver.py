"""Where the messages of a webhook go, and posting one there.

A name is resolved once, and the very address that was looked at is dialled: were it resolved again,
another answer could lead elsewhere. TLS is verified for the name. Redirects are answers like any
other, and proxies of the environment are not used, since either would go round the look.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection, RemoteDisconnected
from typing import Final
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from api.webhook.addresses import Resolve, literal_address, refusal, resolve
from kdnas.errors import SpecError

TIMEOUT_SECONDS = 10.0
"""From the first packet to the status of the answer; also a receiver that sends it bit by bit."""

RESOLVE_SECONDS = 30.0
"""What took longer to resolve is not dialled any more; another may be about to send it."""

_AGAIN: Final = {408, 425, 429}
_SETTING: Final = "KDNAS_WEBHOOK_ALLOW_PRIVATE"


@dataclass(frozen=True, slots=True)
class Answer:
    """How an attempt ended: an HTTP status, None if there was no answer, and a sentence."""

    status: int | None
    detail: str

    @property
    def is_taken(self) -> bool:
        """Whether the receiver has the message."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def wants_again(self) -> bool:
        """Whether the same may go better later."""
        return self.status is None or self.status >= 500 or self.status in _AGAIN


class _RefusedError(Exception):
    """What a name leads to is not dialled."""


Dial = Callable[[tuple[str, int], float], socket.socket]
"""Address and port, and seconds it may take → a connection.

Raises:
    OSError: nobody answers.
"""


class Receiver:
    """A web server of the user's.

    Args:
        url: where to post; a user and a password in it are sent as ``Authorization: Basic``.
        allow_private: also to addresses that are not globally reachable.
        resolve: finds the addresses of a name.
        dial: connects to one of them.

    Raises:
        SpecError: it is no http URL, or is itself an address that is refused.
    """

    def __init__(
        self,
        url: str,
        allow_private: bool = False,
        resolve: Resolve = resolve,
        dial: Dial = socket.create_connection,
    ) -> None:
        self._allow_private, self._resolve, self._dial = allow_private, resolve, dial
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise _no_url(url) from None
        is_plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("http", "https") or not _is_host(host) or not is_plain:
            raise _no_url(url)
        assert host is not None
        self._is_tls = parts.scheme == "https"
        self._host, self._port = host, port or (443 if self._is_tls else 80)
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers: dict[str, str] = {}
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            token = base64.b64encode(pair.encode()).decode()
            self._headers = {"Authorization": f"Basic {token}"}
        self._tls = ssl.create_default_context() if self._is_tls else None
        self.shown = parts._replace(
            netloc=parts.netloc.rpartition("@")[2], query="", fragment=""
        ).geturl()
        """The URL without credentials and query."""
        address = literal_address(host)
        word = None if address is None or allow_private else refusal(address)
        if word is not None:
            raise SpecError(
                f"KDNAS_WEBHOOK_URL names {host}, {word}, which is refused; set {_SETTING}=1 if "
                "that is meant, or name another"
            )

    @property
    def ignored_proxy(self) -> str | None:
        """Variable of the environment that names a proxy for this URL; it is not used."""
        scheme = "https" if self._is_tls else "http"
        named = {name for name in (scheme, "all") if name in getproxies()}
        if not named or proxy_bypass(self._host):
            return None
        return f"{scheme if scheme in named else 'all'}_proxy"

    def post(self, body: str, headers: Mapping[str, str]) -> Answer:
        """Post JSON and wait for the status of the answer, not for its body."""
        try:
            addresses = self._looked_at()
            deadline = time.monotonic() + TIMEOUT_SECONDS
            try:
                status = self._status(body, {**self._headers, **headers}, addresses, deadline)
            except (OSError, HTTPException):
                if time.monotonic() >= deadline:  # it was cut off, whatever that looks like
                    return Answer(None, f"no answer within {TIMEOUT_SECONDS:g} seconds")
                raise
        except _RefusedError as error:
            return Answer(None, str(error))
        except (OSError, HTTPException) as error:
            return Answer(None, self._worded(error))
        return Answer(status, f"the receiver answered {status}")

    def _looked_at(self) -> list[str]:
        """Resolve the name, once, and keep the addresses that a webhook may go to."""
        began = time.monotonic()
        found = list(self._resolve(self._host, self._port))
        if time.monotonic() - began > RESOLVE_SECONDS:
            raise _RefusedError(f"{self._host} took more than {RESOLVE_SECONDS:g} s to resolve")
        words = [None if self._allow_private else refusal(address) for address in found]
        allowed = [a for a, word in zip(found, words, strict=True) if word is None]
        if found and not allowed:
            raise _RefusedError(
                f"{self._host} is {found[0]}, {words[0]}, which is refused unless {_SETTING} is 1"
            )
        return allowed

    def _status(
        self, body: str, headers: Mapping[str, str], addresses: list[str], deadline: float
    ) -> int:
        sock = self._connected(addresses, deadline)
        # Each read may take its time within the timeout of the socket, and so never end in all.
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _cut_off, [sock])
        cut.daemon = True
        cut.start()
        try:
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            connection = self._connection()
            connection.sock = sock  # so it dials nothing of its own accord
            sent = {
                "Content-Type": "application/json",
                "User-Agent": "kdnas",
                "Connection": "close",
                **headers,
            }
            connection.request("POST", self._target, body.encode(), sent)
            with connection.getresponse() as response:
                return response.status
        finally:
            cut.cancel()
            sock.close()

    def _connected(self, addresses: list[str], deadline: float) -> socket.socket:
        """Dial the first address that answers; each has its part of the time."""
        for num_tried, address in enumerate(addresses):
            left = max(0.01, deadline - time.monotonic())
            num_left = len(addresses) - num_tried
            try:
                sock = self._dial((address, self._port), left / num_left)
            except OSError:
                if num_left == 1:
                    raise
                continue
            sock.settimeout(left)
            if self._tls is None:
                return sock
            return self._tls.wrap_socket(
                sock, server_hostname=self._host, do_handshake_on_connect=False
            )
        raise OSError("it has no address")

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._host, self._port)
        return HTTPSConnection(self._host, self._port, context=self._tls)

    def _worded(self, error: OSError | HTTPException) -> str:
        if isinstance(error, socket.gaierror):
            return f"{self._host} cannot be resolved: {error.strerror}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"the certificate of {self._host} is refused: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"no TLS with {self._host}: {error.reason or error}"
        if isinstance(error, RemoteDisconnected):
            return "the receiver closed the connection without an answer"
        if isinstance(error, HTTPException):
            return "what the receiver answered is no HTTP"
        return f"{self._host} cannot be reached: {error.strerror or error}"


def _cut_off(sock: socket.socket) -> None:
    with suppress(OSError):  # it is closed by now
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # of TLS: without its own farewell


def _is_host(host: str | None) -> bool:
    try:
        return bool(host and host.encode("idna"))
    except UnicodeError:  # a part of the name is empty, or too long
        return False


def _no_url(url: str) -> SpecError:
    shown = url.partition("?")[0].rpartition("@")[2]  # without credentials and query
    return SpecError(
        f"KDNAS_WEBHOOK_URL {shown!r} is no http:// or https:// URL of visible ASCII characters; "
        "correct it"
    )
