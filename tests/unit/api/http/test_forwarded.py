"""Who a request comes from: no client chooses its own address."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st

from api.http.app import create_app
from api.http.forwarded import address_in, client_of, is_trusted
from kdnas.db.engine import Database
from kdnas.settings import Network, Settings

TRUSTED: tuple[Network, ...] = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
TOKEN = "operator-token-0123456789"

proxies = st.ip_addresses(network="10.0.0.0/8") | st.ip_addresses(network="fd00::/8")
clients = st.ip_addresses().filter(lambda a: address_in(str(a)) == a and not _trusted(str(a)))
made_up = st.text(st.characters(codec="latin-1", exclude_characters=","), max_size=30)


def _trusted(host: str) -> bool:
    return is_trusted(host, TRUSTED)


@st.composite
def in_headers(draw: st.DrawFn, items: list[str]) -> list[str]:
    """Values of headers that together hold these items, parted anywhere, with blanks."""
    lines: list[list[str]] = [[]]
    for item in items:
        if draw(st.booleans()):
            lines.append([])
        lines[-1].append(draw(st.sampled_from(["", " "])) + item)
    return [",".join(line) for line in lines]


@given(st.data(), clients, st.lists(proxies, min_size=1, max_size=4), st.lists(made_up, max_size=4))
def test_proxies_name_the_client_whatever_it_says_itself(
    data: st.DataObject, client: object, chain: list[object], said: list[str]
) -> None:
    """Each proxy adds the address that it was asked by; the last one asks the service."""
    *before, peer = map(str, chain)
    sent = data.draw(in_headers([*said, str(client), *before]))
    assert client_of(peer, sent, TRUSTED) == str(client)


@given(clients, st.lists(made_up | proxies.map(str) | clients.map(str), max_size=5))
def test_who_is_no_proxy_is_not_believed(client: object, said: list[str]) -> None:
    assert client_of(str(client), said, TRUSTED) == str(client)
    assert client_of(str(client), said, ()) == str(client)


@given(proxies, st.lists(st.text(max_size=30), max_size=5))
@example(ip_address("10.0.0.1"), ["::ffff:10.0.0.2", "[", "]:80", "1.2.3.4:", "%"])
def test_what_comes_out_is_an_address(peer: object, said: list[str]) -> None:
    assert address_in(client_of(str(peer), said, TRUSTED)) is not None


@pytest.mark.parametrize(
    ("said", "client"),
    [
        ([], "10.0.0.1"),
        (["203.0.113.9"], "203.0.113.9"),
        (["198.51.100.7, 203.0.113.9, 10.1.1.1"], "203.0.113.9"),
        (["198.51.100.7", "203.0.113.9", "10.1.1.1"], "203.0.113.9"),
        (["203.0.113.9:4711"], "203.0.113.9"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["2001:DB8:0::7"], "2001:db8::7"),
        (["::ffff:203.0.113.9"], "203.0.113.9"),
        (["10.7.7.7, ::ffff:10.1.1.1"], "10.7.7.7"),  # all are proxies
        (["203.0.113.9, unknown, 10.1.1.1"], "10.1.1.1"),  # who has passed on nonsense
        (["unknown"], "10.0.0.1"),
        ([" , ,"], "10.0.0.1"),
    ],
)
def test_how_it_is_written(said: list[str], client: str) -> None:
    assert client_of("10.0.0.1", said, TRUSTED) == client


def test_a_proxy_that_comes_by_ipv4_over_ipv6() -> None:
    assert client_of("::ffff:10.0.0.1", ["203.0.113.9"], TRUSTED) == "203.0.113.9"


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("peer", "secure", "locked"), [("10.0.0.1", True, False), ("203.0.113.1", False, True)]
)
def test_the_service_goes_by_it(
    settings: Settings, database: Database, peer: str, secure: bool, locked: bool
) -> None:
    """Whoever is not behind a trusted proxy is one client, whatever addresses he makes up."""
    guarded = replace(settings, operator_token=TOKEN, trusted_proxies=TRUSTED)
    app = create_app(guarded, database, coordinator=False)
    with TestClient(app, base_url="http://kdnas.example", client=(peer, 4711)) as client:
        for number in range(6):
            client.get(
                "/api/v1/session",
                headers={
                    "Authorization": f"Bearer wrong-{number}",
                    "X-Forwarded-For": f"198.51.100.{number}",
                },
            )
        headers = {"X-Forwarded-For": "198.51.100.99", "X-Forwarded-Proto": "https"}
        form = {"token": TOKEN}
        answer = client.post("/login", data=form, headers=headers, follow_redirects=False)
        assert answer.status_code == (429 if locked else 303)
        assert ("Secure" in answer.headers.get("set-cookie", "")) is secure
