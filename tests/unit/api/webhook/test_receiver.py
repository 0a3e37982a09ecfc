"""Posting to real servers: only to addresses that were looked at, and never anywhere else."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.webhook import receiver as module
from api.webhook.receiver import Receiver
from kdnas.errors import SpecError
from kdnas.testing.hook_server import HookServer, hook_server

HEADERS = {"webhook-id": "msg1"}


@pytest.fixture
def server() -> Iterator[HookServer]:
    with hook_server() as running:
        yield running


def answering(*answers: Sequence[str]) -> tuple[Callable[[str, int], Sequence[str]], list[str]]:
    """A resolver that gives one answer after the other, and the names it was asked for."""
    left, asked = list(answers), list[str]()

    def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return left.pop(0)

    return resolve, asked


def test_a_message_is_posted_as_it_is(server: HookServer) -> None:
    receiver = Receiver(f"{server.url}/hook%20it?key=a%26b", allow_private=True)
    answer = receiver.post('{"name": "größer"}', HEADERS)
    assert (answer.status, answer.detail) == (204, "the receiver answered 204")
    assert answer.is_taken
    (heard,) = server.heard
    assert heard.path == "/hook%20it?key=a%26b"
    assert json.loads(heard.body) == {"name": "größer"}
    assert heard.headers["webhook-id"] == "msg1"
    assert heard.headers["Host"] == f"127.0.0.1:{server.port}"
    assert heard.headers["Content-Type"] == "application/json"


def test_credentials_are_sent_and_never_shown(server: HookServer) -> None:
    url = f"http://someone:p%40ss@127.0.0.1:{server.port}/hook?token=secret#part"
    receiver = Receiver(url, allow_private=True)
    assert receiver.shown == f"http://127.0.0.1:{server.port}/hook"
    receiver.post("{}", HEADERS)
    (heard,) = server.heard
    assert heard.headers["Authorization"] == "Basic c29tZW9uZTpwQHNz"  # someone:p@ss


@pytest.mark.parametrize(
    ("status", "taken", "again"),
    [
        (200, True, False),
        (299, True, False),
        (301, False, False),
        (307, False, False),
        (400, False, False),
        (408, False, True),
        (410, False, False),
        (425, False, True),
        (429, False, True),
        (500, False, True),
        (503, False, True),
    ],
)
def test_what_an_answer_means(server: HookServer, status: int, taken: bool, again: bool) -> None:
    server.answers = [status]
    answer = Receiver(server.url, allow_private=True).post("{}", HEADERS)
    assert (answer.status, answer.is_taken, answer.wants_again) == (status, taken, again)
    assert len(server.heard) == 1  # also of a redirect, which names a place on the same server


@pytest.mark.parametrize(
    ("host", "word"),
    [
        ("127.0.0.1", "a loopback address"),
        ("localhost", "a loopback address"),
        ("2130706433", "a loopback address"),
        ("[::1]", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("[fe80::1]", "a link-local address"),
        ("10.0.0.1", "a private address"),
        ("[fd00::1]", "a private address"),
        ("[::ffff:192.168.0.1]", "a private address"),
        ("[2002:a00:1::]", "a private address"),
        ("[64:ff9b::7f00:1]", "a loopback address"),
        ("224.0.0.1", "a multicast address"),
        ("0.0.0.0", "the unspecified address"),
        ("192.0.2.1", "not a globally reachable address"),
    ],
)
def test_an_address_that_is_refused_is_told_at_the_start(host: str, word: str) -> None:
    with pytest.raises(SpecError) as caught:
        Receiver(f"http://{host}:8080/hook")
    name = host.strip("[]")
    assert str(caught.value) == (
        f"KDNAS_WEBHOOK_URL names {name}, {word}, which is refused; set "
        "KDNAS_WEBHOOK_ALLOW_PRIVATE=1 if that is meant, or name another"
    )
    Receiver(f"http://{host}:8080/hook", allow_private=True)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.org",
        "https://",
        "https:///hook",
        "http://[::1",
        "http://example.org:99999/",
        "http://example.org/a b",
        "http://example.org/\x7f",
        "http://exämple.org/",
        "http://a..b/",
        "hook",
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(SpecError, match="is no http:// or https:// URL"):
        Receiver(url)


def test_the_refusal_of_a_url_shows_no_credentials() -> None:
    with pytest.raises(SpecError) as caught:
        Receiver("ftp://someone:password@example.org/?token=secret")
    assert "example.org" in str(caught.value)
    assert "password" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("127.0.0.1", "a loopback address"),
        ("169.254.169.254", "a link-local address"),
        ("fe80::1", "a link-local address"),
        ("10.0.0.1", "a private address"),
        ("fd00::1", "a private address"),
        ("::ffff:10.0.0.1", "a private address"),
        ("2002:7f00:1::", "a loopback address"),
        ("64:ff9b::a9fe:a9fe", "a link-local address"),
        ("224.0.0.1", "a multicast address"),
        ("0.0.0.0", "the unspecified address"),
        ("198.18.0.1", "not a globally reachable address"),
    ],
)
def test_a_name_that_leads_to_a_refused_address_is_a_failed_attempt(
    address: str, word: str
) -> None:
    dialled: list[object] = []

    def dial(place: tuple[str, int], seconds: float) -> socket.socket:
        dialled.append(place)
        raise ConnectionRefusedError

    resolve, _ = answering([address])
    answer = Receiver("https://hook.example.org/", resolve=resolve, dial=dial).post("{}", HEADERS)
    assert answer.status is None
    assert answer.wants_again  # its entry may be corrected
    assert answer.detail == (
        f"hook.example.org is {address}, {word}, which is refused unless "
        "KDNAS_WEBHOOK_ALLOW_PRIVATE is 1"
    )
    assert dialled == []


def test_the_address_that_was_looked_at_is_dialled_whatever_the_name_says_next(
    server: HookServer,
) -> None:
    """A name that is rebound between look and dial leads nowhere else: it is asked once."""
    resolve, asked = answering(["1.1.1.1"], ["127.0.0.1"], ["127.0.0.1"])
    dialled: list[tuple[str, int]] = []

    def dial(place: tuple[str, int], seconds: float) -> socket.socket:
        dialled.append(place)
        return socket.create_connection(("127.0.0.1", server.port), seconds)

    receiver = Receiver(f"http://hook.example.org:{server.port}/", resolve=resolve, dial=dial)
    assert receiver.post("{}", HEADERS).is_taken
    assert dialled == [("1.1.1.1", server.port)]
    assert asked == ["hook.example.org"]
    assert server.heard[0].headers["Host"] == f"hook.example.org:{server.port}"
    assert "is 127.0.0.1, a loopback address" in receiver.post("{}", HEADERS).detail  # rebound
    assert len(dialled) == len(server.heard) == 1


def test_a_real_dial_goes_to_the_address_given(server: HookServer) -> None:
    """Without a dial of the test's own: two servers on one port, told apart by the address."""
    resolve, _ = answering(["127.0.0.1"], ["127.0.0.2"])
    with hook_server("127.0.0.2", server.port) as other:
        receiver = Receiver(f"http://name.test:{server.port}", allow_private=True, resolve=resolve)
        assert receiver.post("{}", HEADERS).is_taken
        assert (len(server.heard), len(other.heard)) == (1, 0)
        assert receiver.post("{}", HEADERS).is_taken
        assert (len(server.heard), len(other.heard)) == (1, 1)


def test_only_allowed_ones_of_several_addresses_are_dialled_one_after_the_other(
    server: HookServer,
) -> None:
    resolve, _ = answering(["10.0.0.1", "2606:4700::1", "127.0.0.1", "1.1.1.1"])
    dialled: list[str] = []

    def dial(place: tuple[str, int], seconds: float) -> socket.socket:
        dialled.append(place[0])
        if place[0] != "1.1.1.1":
            raise OSError(101, "Network is unreachable")
        return socket.create_connection(("127.0.0.1", server.port), seconds)

    receiver = Receiver("http://hook.example.org/", resolve=resolve, dial=dial)
    assert receiver.post("{}", HEADERS).is_taken
    assert dialled == ["2606:4700::1", "1.1.1.1"]


def test_a_proxy_of_the_environment_is_told_and_not_used(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        resolve, _ = answering(["127.0.0.1"])
        url = f"http://hook.example.org:{server.port}/"
        receiver = Receiver(url, allow_private=True, resolve=resolve)
        assert receiver.ignored_proxy == "http_proxy"
        assert receiver.post("{}", HEADERS).is_taken
        assert (len(server.heard), len(proxy.heard)) == (1, 0)
    monkeypatch.setenv("no_proxy", "example.org")
    assert receiver.ignored_proxy is None


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for hook.test, signed by itself, with its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=hook.test", "-addext", "subjectAltName=DNS:hook.test"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


@contextmanager
def tls_server(folder: Path) -> Iterator[HookServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    with hook_server(tls=context) as running:
        yield running


def at_home(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def test_tls_is_verified_for_the_name(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "certificate.pem"))
    with tls_server(certificate) as server:
        url = f"https://hook.test:{server.port}/"
        answer = Receiver(url, allow_private=True, resolve=at_home).post("{}", HEADERS)
        assert answer.is_taken, answer.detail
        assert server.heard[0].headers["Host"] == f"hook.test:{server.port}"
        url = f"https://other.test:{server.port}/"
        answer = Receiver(url, allow_private=True, resolve=at_home).post("{}", HEADERS)
        assert answer.status is None
        assert answer.detail.startswith("the certificate of other.test is refused: Hostname")
        assert len(server.heard) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    with tls_server(certificate) as server:
        url = f"https://hook.test:{server.port}/"
        answer = Receiver(url, allow_private=True, resolve=at_home).post("{}", HEADERS)
        assert answer.detail.startswith("the certificate of hook.test is refused: self")
        assert server.heard == []


@contextmanager
def raw_server(say: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that says something to one client, whatever it asks."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        client, _ = listener.accept()
        client.settimeout(20)
        with client:
            say(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    thread.join()
    listener.close()


def drip(client: socket.socket) -> None:
    """Never end, though something comes each moment."""
    while True:
        try:
            client.sendall(b"H")
        except OSError:
            return
        time.sleep(0.05)


def say_nothing(client: socket.socket) -> None:
    while client.recv(1024):
        pass


@pytest.mark.parametrize("say", [drip, say_nothing])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_receiver_that_takes_for_ever_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, say: Callable[[socket.socket], None], scheme: str
) -> None:
    at_once = scheme == "https" and say is drip  # what drips there is no TLS, which is seen
    monkeypatch.setattr(module, "TIMEOUT_SECONDS", 30 if at_once else 0.6)
    with raw_server(say) as port:
        answer = Receiver(f"{scheme}://127.0.0.1:{port}", allow_private=True).post("{}", HEADERS)
    if at_once:
        assert answer.detail.startswith("no TLS with 127.0.0.1: ")
    else:
        assert answer.detail == "no answer within 0.6 seconds"
    assert answer.wants_again


@pytest.mark.parametrize(
    ("said", "detail"),
    [
        (b"", "the receiver closed the connection without an answer"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "what the receiver answered is no HTTP"),
    ],
)
def test_what_is_no_http_is_said_to_be_none(said: bytes, detail: str) -> None:
    def say(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        client.recv(1)

    with raw_server(say) as port:
        answer = Receiver(f"http://127.0.0.1:{port}", allow_private=True).post("{}", HEADERS)
    assert (answer.status, answer.detail) == (None, detail)


def test_who_cannot_be_reached_is_said_to_be_out_of_reach() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    answer = Receiver(f"http://127.0.0.1:{port}", allow_private=True).post("{}", HEADERS)
    assert answer.detail == "127.0.0.1 cannot be reached: Connection refused"

    def unknown(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "Name or service not known")

    answer = Receiver("http://nowhere.test", resolve=unknown).post("{}", HEADERS)
    assert answer.detail == "nowhere.test cannot be resolved: Name or service not known"


def test_what_took_too_long_to_resolve_is_not_dialled(
    server: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESOLVE_SECONDS", 0.0)
    receiver = Receiver(server.url, allow_private=True)
    assert receiver.post("{}", HEADERS).detail == "127.0.0.1 took more than 0 s to resolve"
    assert server.heard == []
