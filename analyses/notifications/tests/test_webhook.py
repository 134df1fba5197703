"""Calling webhooks on real local servers, good and bad ones."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPResponse
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from analyses.notifications import webhook
from analyses.notifications.webhook import NotDelivered, call, signature

pytestmark = pytest.mark.database

CERTIFICATE = Path(__file__).with_name("hook.test.pem")
SECRET = "whsec_plJ3nmyCDGBKInavdOK15jsl"  # noqa: S105  # of the published example
BODY = b'{"event_type":"ping","data":{"success":true}}'
OK = b"HTTP/1.1 204 No Content\r\n\r\n"
LOCAL = {"127.0.0.1", "::1", "localhost", "hook.test", "other.test"}

Behaviour = Callable[[socket.socket], None]


class Server:
    """Accepts connections on its own port, records the requests, and responds as told."""

    def __init__(self, behave: Behaviour, host: str, tls: bool) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listening = socket.create_server((host, 0), family=family)
        self._behave, self._tls = behave, tls
        self.port: int = self._listening.getsockname()[1]
        self.requests: list[bytes] = []
        self.url = f"http{'s' * tls}://{f'[{host}]' if ':' in host else host}:{self.port}/hook"
        Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):  # the test is over, or the caller has disconnected
            while True:
                connection, _ = self._listening.accept()
                with suppress(OSError), connection:
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self._tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(CERTIFICATE)
            connection = context.wrap_socket(connection, server_side=True)
        self.requests.append(_request(connection))
        self._behave(connection)
        connection.close()

    def close(self) -> None:
        self._listening.close()


def _request(connection: socket.socket) -> bytes:
    """A whole request, or the first part of anything else, such as a TLS handshake."""
    received = connection.recv(65536)
    while received.startswith(b"POST ") and not received.endswith(BODY):
        received += connection.recv(65536)
    return received


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(behave: Behaviour | bytes, host: str = "127.0.0.1", tls: bool = False) -> Server:
        answer = behave if callable(behave) else lambda connection: connection.sendall(behave)
        try:
            servers.append(Server(answer, host, tls))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Resolves every name to 127.0.0.1 first and 127.0.0.9 later; records the names."""
    asked: list[str] = []

    def answer(host: str, port: int, **_kwargs: Any) -> list[Any]:
        asked.append(host)
        return [(None, None, 0, "", ("127.0.0.9" if len(asked) > 1 else "127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    return asked


def _call(url: str, allowed: set[str] = LOCAL) -> int:
    return call(url, SECRET, "msg_1", BODY, allowed)


def test_the_signature_follows_standard_webhooks() -> None:
    expected = "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="  # the specification's example
    assert signature(SECRET, "msg_loFOjxBNrRLzqYUf", 1731705121, BODY) == expected


def test_each_secret_is_new_and_can_sign() -> None:
    first, second = webhook.new_secret(), webhook.new_secret()
    assert first != second
    assert signature(first, "a", 1, BODY) != signature(second, "a", 1, BODY)


def test_one_signed_message_arrives(serve: Callable[..., Server]) -> None:
    server = serve(OK)
    assert _call(server.url + "?a=b") == 204

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /hook?a=b HTTP/1.1"
    assert headers["Host"] == f"127.0.0.1:{server.port}"
    assert headers["Content-Type"] == "application/json"
    assert body == BODY
    assert headers["webhook-signature"] == signature(
        SECRET, headers["webhook-id"], int(headers["webhook-timestamp"]), body
    )


def test_an_ipv6_address_works(serve: Callable[..., Server]) -> None:
    server = serve(OK, host="::1")
    assert _call(server.url) == 204
    assert f"Host: [::1]:{server.port}\r\n".encode() in server.requests[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_without_permission_nothing_on_this_machine_is_called(
    serve: Callable[..., Server], host: str
) -> None:
    server = serve(OK, host)
    with pytest.raises(NotDelivered, match="public internet"):
        _call(server.url, set())
    assert not server.requests


def test_a_name_that_resolves_to_this_machine_is_refused(
    serve: Callable[..., Server], names: list[str]
) -> None:
    server = serve(OK)
    with pytest.raises(NotDelivered, match=r"hook\.test has the address 127\.0\.0\.1"):
        _call(f"http://hook.test:{server.port}/", set())
    assert not server.requests


def test_a_redirect_is_not_followed(serve: Callable[..., Server]) -> None:
    secret_service = serve(OK)
    redirect = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {secret_service.url}\r\n\r\n"
    with pytest.raises(NotDelivered, match="HTTP 307 Temporary Redirect: redirects are not"):
        _call(serve(redirect.encode()).url)
    assert not secret_service.requests


def test_a_name_is_resolved_once(serve: Callable[..., Server], names: list[str]) -> None:
    server = serve(OK)
    assert _call(f"http://hook.test:{server.port}/") == 204
    assert names == ["hook.test"]


def test_the_connection_goes_to_the_address_that_was_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers, connected = ["8.8.8.8", "127.0.0.1"], []

    def rebinding(_host: str, port: int, **_kwargs: Any) -> list[Any]:
        return [(None, None, 0, "", (answers.pop(0), port))]

    def connect(_self: socket.socket, target: tuple[str, int]) -> None:
        connected.append(target)
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(NotDelivered, match=r"no connection to 8\.8\.8\.8, port 81: refused"):
        _call("http://hook.example:81/", set())
    assert connected == [("8.8.8.8", 81)]


def test_the_next_address_is_tried(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(OK)
    both = [(None, None, 0, "", (ip, server.port)) for ip in ("127.0.0.9", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: both)
    assert _call(f"http://hook.test:{server.port}/") == 204


def test_proxies_from_the_environment_are_not_used(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, proxy = serve(OK), serve(OK)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert _call(server.url) == 204
    assert not proxy.requests


def _silent(_connection: socket.socket) -> None:
    Event().wait(60)


def _dripping(connection: socket.socket, first: bytes = b"") -> None:
    connection.sendall(first)
    while True:
        connection.sendall(b"H")
        Event().wait(0.02)


@pytest.fixture
def _late_once_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still until there is a connection, with a tenth of a second left."""
    now, connect = [0.0], webhook._connect

    def connected(*args: Any) -> socket.socket:
        connection = connect(*args)
        now[0] = webhook.LIMIT_SECONDS - 0.1
        return connection

    monkeypatch.setattr(webhook, "monotonic", lambda: now[0])
    monkeypatch.setattr(webhook, "_connect", connected)


@pytest.fixture
def _each_look_takes_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves a second per reading, which is once per part of a response."""
    monkeypatch.setattr(webhook, "LIMIT_SECONDS", 60.0)
    monkeypatch.setattr(webhook, "monotonic", count().__next__)


@pytest.mark.usefixtures("_late_once_connected")
@pytest.mark.parametrize("scheme", ["http:", "https:"])
def test_a_silent_server_is_not_waited_for(serve: Callable[..., Server], scheme: str) -> None:
    with pytest.raises(NotDelivered, match=r"no complete response within 5 s"):
        _call(serve(_silent).url.replace("http:", scheme))


@pytest.mark.longer
@pytest.mark.usefixtures("_each_look_takes_a_second")
def test_a_slow_server_is_not_waited_for(serve: Callable[..., Server]) -> None:
    with pytest.raises(NotDelivered, match=r"no complete response within 60 s"):
        _call(serve(_dripping).url)


@pytest.mark.longer
@pytest.mark.usefixtures("_each_look_takes_a_second")
def test_an_endless_body_is_still_a_response(serve: Callable[..., Server]) -> None:
    assert _call(serve(lambda it: _dripping(it, b"HTTP/1.1 200 OK\r\n\r\n")).url) == 200
    with pytest.raises(NotDelivered, match=r"HTTP 500 Oh no: H+$"):
        _call(serve(lambda it: _dripping(it, b"HTTP/1.1 500 Oh no\r\n\r\n")).url)


def test_a_large_response_is_cut_off(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    read = HTTPResponse.read1

    def counted(answer: HTTPResponse, most: int) -> bytes:
        part = read(answer, most)
        taken.append(len(part))
        return part

    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        while True:
            connection.sendall(b"x" * 65536)

    monkeypatch.setattr(HTTPResponse, "read1", counted)
    with pytest.raises(NotDelivered, match=r"HTTP 400 Bad Request: x{200}$"):
        _call(serve(flood).url)
    assert sum(taken) == webhook.MAX_BYTES


@pytest.mark.parametrize("header", [b"x: " + b"y" * 65536, b"x: y\r\n"])
def test_an_endless_header_is_refused(serve: Callable[..., Server], header: bytes) -> None:
    def flood(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(header)

    with pytest.raises(NotDelivered, match="its response is not HTTP"):
        _call(serve(flood).url)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "^HTTP 404 Not Found$"),
        (b"HTTP/1.1 500\r\n\r\nno \x00 memory\r\n", "^HTTP 500: no memory$"),
        (
            b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwrong\r\n0\r\n\r\n",
            "^HTTP 400 Bad: wrong$",
        ),
        (b"HTTP/1.1 400 Bad\r\nContent-Length: 99\r\n\r\nwrong", "^HTTP 400 Bad: wrong$"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "^its response is not HTTP"),
        (b"", "^its response is not HTTP"),
    ],
)
def test_any_other_response_is_reported(
    serve: Callable[..., Server], answer: bytes, why: str
) -> None:
    with pytest.raises(NotDelivered, match=why):
        _call(serve(answer).url)


def test_a_refused_connection_is_reported() -> None:
    with socket.socket() as held:  # no one listens on it, and no one else can
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        with pytest.raises(NotDelivered, match=f"no connection to 127.0.0.1, port {port}"):
            _call(f"http://127.0.0.1:{port}/")


def test_tls_certificates_are_checked_against_the_name(
    serve: Callable[..., Server], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(OK, tls=True)
    url = f"https://hook.test:{server.port}/"
    with pytest.raises(NotDelivered, match="certificate is not valid: self-signed"):
        _call(url)
    names.clear()
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    assert _call(url) == 204
    names.clear()
    with pytest.raises(NotDelivered, match=r"not valid for 'other\.test'"):
        _call(url.replace("hook.test", "other.test"))


def test_a_server_without_tls_is_reported(serve: Callable[..., Server]) -> None:
    with pytest.raises(NotDelivered, match="the TLS handshake failed"):
        _call(serve(b"what?\r\n").url.replace("http:", "https:"))
