"""Which addresses a webhook may go to, however they are written."""

from __future__ import annotations

import pytest

from api.webhook.addresses import literal_address, refusal, resolve

REFUSED = {
    "0.0.0.0": "the unspecified address",
    "::": "the unspecified address",
    "127.0.0.1": "a loopback address",
    "127.8.9.10": "a loopback address",
    "::1": "a loopback address",
    "169.254.169.254": "a link-local address",
    "fe80::1": "a link-local address",
    "fe80::1%2": "a link-local address",
    "10.1.2.3": "a private address",
    "172.16.0.1": "a private address",
    "172.31.255.255": "a private address",
    "192.168.1.1": "a private address",
    "100.64.0.1": "a private address",  # behind a provider's translation
    "fd12:3456::1": "a private address",
    "fec0::1": "a private address",
    "224.0.0.1": "a multicast address",
    "239.255.255.250": "a multicast address",
    "ff02::1": "a multicast address",
    "ff0e::1": "a multicast address",
    "255.255.255.255": "not a globally reachable address",
    "240.0.0.1": "not a globally reachable address",
    "0.1.2.3": "not a globally reachable address",
    "192.0.0.170": "not a globally reachable address",
    "192.0.2.1": "not a globally reachable address",
    "192.88.99.1": "not a globally reachable address",
    "198.18.0.1": "not a globally reachable address",
    "203.0.113.5": "not a globally reachable address",
    "100::1": "not a globally reachable address",
    "2001:db8::1": "not a globally reachable address",
    "2001::1": "not a globally reachable address",  # Teredo
    "3fff::1": "not a globally reachable address",
    "5f00::1": "not a globally reachable address",
    "64:ff9b:1::808:808": "not a globally reachable address",  # NAT64 of a network's own
    "::ffff:127.0.0.1": "a loopback address",
    "::ffff:169.254.169.254": "a link-local address",
    "::ffff:0:10.0.0.1": "a private address",
    "::10.0.0.1": "a private address",
    "64:ff9b::a9fe:a9fe": "a link-local address",
    "64:ff9b::7f00:1": "a loopback address",
    "2002:7f00:1::": "a loopback address",
    "2002:a00:1::1": "a private address",
    "2002:e000:1::": "a multicast address",
    "2002::": "the unspecified address",
}

ALLOWED = [
    "1.1.1.1",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "223.255.255.254",
    "2606:4700:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
]


@pytest.mark.parametrize(("address", "word"), REFUSED.items())
def test_what_not_everybody_reaches_is_refused(address: str, word: str) -> None:
    assert refusal(address) == word


@pytest.mark.parametrize("address", ALLOWED)
def test_what_the_whole_internet_reaches_is_not(address: str) -> None:
    assert refusal(address) is None


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("fe80::1", "fe80::1"),
        ("::ffff:7f00:1", "::ffff:127.0.0.1"),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST.", "127.0.0.1"),
        ("hook.localhost", "127.0.0.1"),
        ("example.org", None),
        ("10.0.0.1.example.org", None),
    ],
)
def test_an_address_is_known_however_it_is_written(host: str, address: str | None) -> None:
    assert literal_address(host) == address


def test_the_system_resolves_a_name_to_each_address_once() -> None:
    found = resolve("localhost", 80)
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found)) > 0
