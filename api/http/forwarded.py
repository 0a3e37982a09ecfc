"""Who a request comes from, where proxies stand before the service.

A proxy says in ``X-Forwarded-For`` for whom it asks, and so can anybody else. So the header is read
only if the connection itself comes from a proxy that is trusted (``KDNAS_TRUSTED_PROXIES``), and
from its right end, where the nearest proxy has written: the first address from there that is not a
trusted proxy's is the client. What stands to the left of it the client may have made up.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kdnas.settings import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_WITH_PORT: Final = re.compile(r"\[(?P<v6>[^\]]*)\](?::\d+)?|(?P<v4>[\d.]+):\d+")
_SCHEMES: Final = ("http", "https")


class Forwarded:
    """Middleware that puts the client in the place of the trusted proxy that asks for it."""

    def __init__(self, app: ASGIApp, trusted: Sequence[Network]) -> None:
        self._app = app
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        client = scope.get("client")
        if scope["type"] == "http" and client and is_trusted(client[0], self._trusted):
            headers = Headers(scope=scope)
            host = client_of(client[0], headers.getlist("x-forwarded-for"), self._trusted)
            scope = {**scope, "client": (host, client[1] if host == client[0] else 0)}
            scheme = _items(headers.getlist("x-forwarded-proto"))[-1:]
            if scheme and scheme[0].lower() in _SCHEMES:
                scope["scheme"] = scheme[0].lower()
        await self._app(scope, receive, send)


def client_of(peer: str, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Return the address for which a request was made.

    Args:
        peer: at the other end of the connection.
        forwarded: values of ``X-Forwarded-For``, a header each, in their order.
        trusted: networks of proxies.

    Returns:
        From the right the first address that is not a trusted proxy's; the left-most if all are;
        and where a proxy has passed on what is no address, that of this proxy.
    """
    client = peer
    for text in reversed(_items(forwarded)):
        if not is_trusted(client, trusted):
            break
        address = address_in(text)
        if address is None:
            break
        client = str(address)
    return client


def is_trusted(host: str, trusted: Sequence[Network]) -> bool:
    """Whether a host is a proxy whose word counts."""
    address = address_in(host) if trusted else None
    return address is not None and any(address in network for network in trusted)


def address_in(text: str) -> Address | None:
    """Read an address, with or without a port; None if it is none.

    An IPv4 address that is written as one of IPv6 is the former, as which networks name it.
    """
    found = _WITH_PORT.fullmatch(text.strip())
    try:
        address = ipaddress.ip_address((found["v6"] or found["v4"]) if found else text.strip())
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _items(values: Sequence[str]) -> list[str]:
    return [item.strip() for value in values for item in value.split(",") if item.strip()]
