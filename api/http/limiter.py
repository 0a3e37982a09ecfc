"""How often a wrong token may be sent.

One who guesses is stopped by his own address: after :data:`FAILURES_OF_A_CLIENT` in a minute he has
to wait. Where so many guess that :data:`FAILURES_OF_ALL` is reached, each address has one try only;
those that have not guessed wrong are let in still, or anybody could lock all out.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from api.http.forwarded import address_in

FAILURES_OF_A_CLIENT, FAILURES_OF_ALL, FAILURE_SECONDS = 5, 50, 60.0
_PREFIX_OF_A_CLIENT: Final = 64
"""Bits of an IPv6 address that a provider gives to one customer, who chooses the rest."""


def place_of(client: str) -> str:
    """What counts as one client: an address, of IPv6 the network of one customer."""
    address = address_in(client)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address), _PREFIX_OF_A_CLIENT), strict=False))
    return client if address is None else str(address)


class LoginLimiter:
    """Counts wrong tokens: of one client, and of all together."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._failures: deque[tuple[float, str]] = deque()
        self._of_client: dict[str, deque[float]] = {}
        self._of_all: deque[float] = deque(maxlen=FAILURES_OF_ALL)
        self._now = now
        self._lock = threading.Lock()

    def seconds_to_wait(self, client: str) -> int:
        """How long this client has to wait before it may try, 0 if it may now."""
        with self._lock:
            self._forget()
            own = self._of_client.get(place_of(client))
            if own is None:
                return 0
            return max(
                self._wait(own, FAILURES_OF_A_CLIENT), self._wait(self._of_all, FAILURES_OF_ALL)
            )

    def failed(self, client: str) -> None:
        """Note a wrong token."""
        place = place_of(client)
        with self._lock:
            self._forget()
            now = self._now()
            own = self._of_client.setdefault(place, deque(maxlen=FAILURES_OF_A_CLIENT))
            own.append(now)
            self._of_all.append(now)
            self._failures.append((now, place))

    def _wait(self, moments: deque[float], allowed: int) -> int:
        """Until the oldest of the newest so many is forgotten."""
        if len(moments) < allowed:
            return 0
        left = moments[0] + FAILURE_SECONDS - self._now()
        return max(1, round(left)) if left > 0 else 0

    def _forget(self) -> None:
        since = self._now() - FAILURE_SECONDS
        while self._failures and self._failures[0][0] <= since:
            _, place = self._failures.popleft()
            own = self._of_client.get(place)
            if own is not None and own[-1] <= since:
                del self._of_client[place]
