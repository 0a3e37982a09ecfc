"""Who may do what: tokens, and sessions of the login page.

Without tokens everybody on this machine is an operator, and the service listens on the loopback
address only. There are two of the environment, and those of users, which are in the database. What
is asked of each request stands in :mod:`api.http.guard`.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from starlette.requests import HTTPConnection

from api.http.issued_tokens import IssuedTokens, LoginRecords
from api.http.limiter import LoginLimiter
from kdnas.db.records import TokenRecord
from kdnas.db.repository.tokens import id_in
from kdnas.errors import RequestError, WorkError
from kdnas.records import Role
from kdnas.settings import Settings

SHORTEST_TOKEN = 16
SESSION_COOKIE = "kdnas_session"
SESSION_SECONDS = 12 * 3600
KEY_FILE: Final = "session.key"
"""In the home: what sessions are signed with, so that neither a guessed token nor what is in the
database makes one."""


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


def check_address(host: str, settings: Settings, issued: Collection[TokenRecord] = ()) -> None:
    """Refuse to listen where others can come in, unless they are asked for a token.

    Args:
        host: to listen on.
        settings: of the environment.
        issued: tokens of the database that were not revoked.

    Raises:
        RequestError: names the address, the setting and the command.
    """
    operators = settings.operator_token is not None or any(t.role == "operator" for t in issued)
    if not operators and lets_others_in(host, settings):
        what, instead = (
            ("KDNAS_TRUSTED_PROXIES lets", "leave it unset")
            if is_loopback(host)
            else (f"--host {host} lets", "listen on 127.0.0.1")
        )
        raise RequestError(
            f"{what} other machines in, and no token is asked for; set "
            "KDNAS_OPERATOR_TOKEN (`openssl rand -hex 24` prints one), make a token with `kdnas "
            f"tokens create NAME --role operator`, or {instead}"
        )


def lets_others_in(host: str, settings: Settings) -> bool:
    """Whether requests of other machines are meant to come, by the address or through a proxy."""
    return not is_loopback(host) or bool(settings.trusted_proxies)


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached under a host name or address."""
    name = host.strip("[]").rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class User:
    """Who asks.

    Attributes:
        role: what he may do.
        name: of the user; ``operator`` or ``viewer`` with the tokens of the environment, and None
            where nobody is asked for one.
        token: which token let him in: its id, or the role of one of the environment.
    """

    role: Role
    name: str | None = None
    token: str | None = None


ANYBODY: Final = User("operator")
"""Who asks where no log-in is required."""


class Access:
    """Knows the tokens and the sessions.

    A session is a signed cookie: its token, expiry, a number, and a signature under a key made of
    that token and of the key in the home. So it outlasts a restart, and ends when the token is
    changed, revoked or over. Logging out ends it in this process.

    Args:
        settings: of the environment.
        issued: the tokens of users.
        always: whether a log-in is required although there is no token, since others can come in.
        now: seconds since 1970.
    """

    def __init__(
        self,
        settings: Settings,
        issued: IssuedTokens,
        *,
        always: bool = False,
        now: Callable[[], float] = time.time,
    ) -> None:
        tokens: dict[Role, str | None] = {
            "operator": settings.operator_token,
            "viewer": settings.viewer_token,
        }
        self._digests = {role: _digest(token) for role, token in tokens.items() if token}
        self._home = settings.home
        self.issued = issued
        self._always = always
        self._ended: dict[str, int] = {}
        self._now = now
        self._lock = threading.Lock()

    @property
    def login_required(self) -> bool:
        """Whether a request needs a token at all."""
        return self._always or bool(self._digests) or len(self.issued) > 0

    def user_of_request(self, request: HTTPConnection) -> User | None:
        """Who asks, by a token in the header or by a session, as far as that is known here.

        It is for one who was let in: tokens may be guessed by it. See :class:`Entrance`.
        """
        if not self.login_required:
            return ANYBODY
        token = bearer_of(request)
        if token is not None:
            return self.user_of_issued(token) or self.user_of_chosen(token)
        return self.user_of_session(request.cookies.get(SESSION_COOKIE, ""))

    def user_of_issued(self, token: str) -> User | None:
        """Whose token of the database this is."""
        record = self.issued.matching(token)
        return None if record is None else User(record.role, record.name, record.id)

    def user_of_chosen(self, token: str) -> User | None:
        """Which token of the environment this is; takes the same time for every wrong one."""
        given, digests = _digest(token), self._digests.items()
        fitting = [role for role, digest in digests if hmac.compare_digest(given, digest)]
        return User(fitting[0], fitting[0], fitting[0]) if fitting else None

    def begin_session(self, user: User) -> str:
        """Make the value of a cookie for one whose token is valid."""
        found = self._digest_and_user(user.token or "")
        assert found is not None, "a session belongs to a token"
        content = f"{user.token}.{int(self._now()) + SESSION_SECONDS}.{secrets.token_hex(8)}"
        return f"{content}.{self._signature(found[0], content)}"

    def user_of_session(self, cookie: str) -> User | None:
        """Whose session this is; None if it is forged, over, or ended."""
        parts = cookie.split(".")
        found = self._digest_and_user(parts[0]) if len(parts) == 4 else None
        if found is None or not (parts[1].isascii() and parts[1].isdecimal()):
            return None
        digest, user = found
        content, signature = cookie.rsplit(".", 1)
        if not hmac.compare_digest(
            self._signature(digest, content).encode(), signature.encode("utf-8", "replace")
        ):
            return None
        return None if int(parts[1]) <= self._now() or parts[2] in self._ended else user

    def end_session(self, cookie: str) -> None:
        """Accept a cookie no longer."""
        if self.user_of_session(cookie) is None:
            return
        _, expires, number, _ = cookie.split(".")
        with self._lock:
            self._ended = {n: e for n, e in self._ended.items() if e > self._now()}
            self._ended[number] = int(expires)

    def _digest_and_user(self, token: str) -> tuple[bytes, User] | None:
        """What is known of a token by its id, or by its role if it is of the environment."""
        for role, digest in self._digests.items():
            if role == token:
                return digest, User(role, role, role)
        record = self.issued.get(token)
        if record is None:
            return None
        return record.digest, User(record.role, record.name, record.id)

    def _signature(self, digest: bytes, content: str) -> str:
        key = hashlib.sha256(b"kdnas session " + self._key + digest).digest()
        return hmac.new(key, content.encode("utf-8", "replace"), hashlib.sha256).hexdigest()

    @cached_property
    def _key(self) -> bytes:
        return _session_key(self._home)


class TooManyGuessesError(RequestError):
    """A client has sent so many wrong tokens that no more is looked at for a while."""

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"too many wrong tokens came from this address; try again in {seconds} seconds"
        )
        self.seconds = seconds


class Entrance:
    """Lets in who has a valid token, and slows down who guesses one.

    A token that a user was given is random enough that nobody guesses it, so it is good whatever
    else comes from its address. Those of the environment somebody may have thought up: where an
    address has guessed too often, they are not looked at for a while, be they right.
    """

    def __init__(self, access: Access, limiter: LoginLimiter, records: LoginRecords) -> None:
        self._access = access
        self._limiter = limiter
        self.records = records

    async def admit(self, token: str, client: str) -> User | None:
        """Say whose token this is; None if it is wrong, which is counted and told.

        Args:
            token: as it was sent.
            client: address that it came from.

        Raises:
            TooManyGuessesError: this client has to wait.
            DatabaseError: whether it is one of a user cannot be asked.
        """
        await self._access.issued.refresh()
        user = self._access.user_of_issued(token)
        if user is None:
            if wait := self._limiter.seconds_to_wait(client):
                raise TooManyGuessesError(wait)
            user = self._access.user_of_chosen(token)
        if user is None and id_in(token) is not None:  # it may have been made just now
            await self._access.issued.refresh_now()
            if (lost := self._access.issued.lost) is not None:
                raise lost
            user = self._access.user_of_issued(token)
        if user is None:
            self._limiter.failed(client)
            self.records.failed(client)
        else:
            self.note_use(user)
        return user

    def note_use(self, user: User) -> None:
        """Have the last use of a user's token written down."""
        if user.token is not None and user.token != user.role:
            self.records.used(user.token)


def bearer_of(request: HTTPConnection) -> str | None:
    """The token of the header ``Authorization``: empty if that is of another kind, None without."""
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def client_of(request: HTTPConnection) -> str:
    """Return the address that a request came from."""
    return request.client.host if request.client else "unknown"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _session_key(home: Path) -> bytes:
    """Read what sessions are signed with; make it, if this is the first one in this home.

    Raises:
        WorkError: it can be neither read nor made.
    """
    path = home / KEY_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            made = home / f".{KEY_FILE}-{secrets.token_hex(8)}"
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(secrets.token_bytes(32))
            with suppress(FileExistsError):  # another process was quicker
                os.link(made, path)
            made.unlink()
        key = path.read_bytes()
    except OSError as error:
        raise WorkError(
            f"{path}, which sessions are signed with, cannot be read or made: {error.strerror}; "
            "check KDNAS_HOME and its permissions"
        ) from None
    if len(key) < 32:
        raise WorkError(f"{path} has {len(key)} bytes instead of 32; remove it, and log in again")
    return key
