"""Which addresses a webhook may go to: those that the whole Internet reaches.

Who sets a webhook's URL is not always who runs the machine, and a service that posts to whatever a
name leads to can be made to talk to what trusts its network: metadata of a cloud at a link-local
address, a database on the loopback one.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Resolve = Callable[[str, int], Sequence[str]]
"""Host name and port → its addresses in the order in which to try them, as text.

Raises:
    OSError: there are none.
"""

_WITHIN_IPV6: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # translated
    (IPv6Network("::/96"), 0),  # compatible; also :: and ::1
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)
"""Networks whose addresses stand for one of IPv4, and behind how many bits that is."""

_UNICAST: Final = IPv6Network("2000::/3")
"""All that has been given out as global unicast; what lies outside is something else."""

_SPECIAL: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_DOCUMENTATION: Final = IPv6Network("3fff::/20")
"""What not every version of :mod:`ipaddress` knows to be special."""


def resolve(host: str, port: int) -> list[str]:
    """Ask the system for the addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


def literal_address(host: str) -> str | None:
    """Return the address that a host already is, however it is written; None of a name.

    ``2130706433`` and ``0x7f.1`` are addresses to the system, and ``localhost`` is by definition
    one of this machine.
    """
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        return None
    return str(found[0][4][0])


def refusal(address: str) -> str | None:
    """Say what an address is that a webhook may not go to; None of one that it may.

    An address of IPv6 that stands for one of IPv4 counts as that.
    """
    found = _meant(ip_address(address))
    words = (
        (found.is_unspecified, "the unspecified address"),
        (found.is_loopback, "a loopback address"),
        (found.is_link_local, "a link-local address"),
        (found.is_multicast, "a multicast address"),
        (_is_private(found), "a private address"),
        (not _is_global(found), "not a globally reachable address"),
    )
    return next((word for holds, word in words if holds), None)


def _meant(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    if isinstance(address, IPv4Address) or address in (IPv6Address("::"), IPv6Address("::1")):
        return address
    for network, shift in _WITHIN_IPV6:
        if address in network:
            return IPv4Address(int(address) >> shift & 0xFFFFFFFF)
    return address


def _is_private(address: IPv4Address | IPv6Address) -> bool:
    """Whether it is of the networks that people call private, and not merely special."""
    if isinstance(address, IPv6Address):
        return address in IPv6Network("fc00::/7") or address.is_site_local
    private = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
    return any(address in IPv4Network(network) for network in private)


def _is_global(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address in _UNICAST and address not in _DOCUMENTATION and address.is_global
    return address.is_global and not any(address in network for network in _SPECIAL)
