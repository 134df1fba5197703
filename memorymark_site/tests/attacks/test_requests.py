"""Requests no browser sends: smuggled, oversized, slow, or meant for another program."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from time import sleep

import pytest

from memorymark_site.tests.attacks.serving import LARGE, NAME, NAME_FIELD, Site

pytestmark = pytest.mark.database

HEAD = f"Host: {NAME}\r\nConnection: close\r\n".encode()
CSRF = "c" * 32
WITH_CSRF = (
    f"Cookie: csrftoken={CSRF}\r\nReferer: https://{NAME}/\r\nX-Forwarded-Proto: https\r\n"
).encode()
"""As one has who has opened the sign-in page: only then is a body looked at."""

HELD_SECONDS = 120.0
"""For which the attackers go on, and a visitor of a site that is held would wait."""

SMUGGLED = b"0\r\n\r\nGET /members/ HTTP/1.1\r\nHost: lab.example\r\n\r\n"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        (b"Content-Length: +5\r\n", 400),
        (b"Transfer-Encoding: xchunked\r\n", 501),
        (b"Host: evil.example\r\n", 400),
    ],
)
def test_a_second_request_smuggled_in_the_first(site: Site, headers: bytes, status: int) -> None:
    answer = site.raw(b"POST /accounts/login/ HTTP/1.1\r\n" + HEAD + headers + b"\r\n" + SMUGGLED)
    assert answer.status == status
    assert "HTTP/1.1" not in answer.body  # nothing was treated as a second request


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\n" + HEAD, 414),
        (b"GET / HTTP/1.1\r\n" + HEAD + b"X-Long: " + b"a" * 9000 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + HEAD + b"X-Many: a\r\n" * 200, 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 GET\r\n", 400),
    ],
    ids=["line", "field", "fields", "TLS on a plain port"],
)
def test_a_header_that_is_too_large_or_malformed(
    site: Site, request_bytes: bytes, status: int
) -> None:
    answer = site.raw(request_bytes + b"\r\n")
    assert answer.status == status
    assert "Traceback" not in answer.body
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert int(answer.headers["Content-Length"]) == len(answer.body)


@pytest.mark.slow
def test_threads_held_by_partial_requests_and_slow_bodies(site: Site) -> None:
    """Slowloris, with more connections than the site has threads."""
    pause = 0.3
    bits = round(HELD_SECONDS / pause)
    half = (b"GET / HTTP/1.1\r\nHost: lab", *[b"."] * bits)
    drops = (
        b"POST /accounts/login/ HTTP/1.1\r\n" + HEAD + WITH_CSRF,
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 500\r\n\r\n",
        *[b"a"] * bits,
    )
    with ThreadPoolExecutor(24) as attackers:
        held = [attackers.submit(site.raw, *half, pause=pause) for _ in range(12)]
        held += [attackers.submit(site.raw, *drops, pause=pause) for _ in range(12)]
        visitor = site.raw(b"GET /live HTTP/1.1\r\n" + HEAD + b"\r\n", patience=HELD_SECONDS)
        ended = [attack.result() for attack in held]

    assert visitor.status == 200
    assert visitor.seconds < HELD_SECONDS / 2
    assert {answer.status for answer in ended} <= {0, 400, 403}  # none got a response


@pytest.mark.slow
def test_threads_held_by_clients_that_do_not_read(site: Site) -> None:
    """Slow read: as many large files as there are threads are requested and not read."""
    deaf = []
    for _ in range(16):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", site.port))
        connection.sendall(f"GET /static/{LARGE} HTTP/1.1\r\n".encode() + HEAD + b"\r\n")
        deaf.append(connection)
    visitor = site.raw(b"GET /live HTTP/1.1\r\n" + HEAD + b"\r\n", patience=HELD_SECONDS)
    for connection in deaf:
        connection.close()
    assert visitor.status == 200
    assert visitor.seconds < HELD_SECONDS / 2


@pytest.mark.parametrize("trusted", [b"SCRIPT_NAME: /x", b"PATH_INFO: /live"])
def test_a_path_forged_in_a_header(site: Site, trusted: bytes) -> None:
    """A header with which some servers let a proxy set the path, sent by a visitor."""
    answer = site.raw(b"GET /x/live HTTP/1.1\r\n" + HEAD + trusted + b"\r\n\r\n")
    assert answer.status == 404


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"])
def test_a_method_forged_in_a_header(site: Site, header: str) -> None:
    """A GET treated as a DELETE would need no CSRF token."""
    asked = {"Authorization": f"Token {site.token}", header: "DELETE"}
    assert site.ask("GET", "/api/v1/analyses/", headers=asked).status == 200


@pytest.mark.parametrize("method", ["TRACE", "QQQ"])
def test_an_unsupported_method(site: Site, method: str) -> None:
    """TRACE would show scripts cookies they cannot read."""
    answer = site.ask(method, "/accounts/login/", headers={"Cookie": "sessionid=abc123"})
    assert answer.status in (400, 403, 405)
    assert "abc123" not in answer.body


def test_a_body_larger_than_any_form(site: Site) -> None:
    """Three MiB in one field, without signing in."""
    body = f"csrfmiddlewaretoken={CSRF}&{NAME_FIELD}=".encode() + b"a" * 3 * 2**20
    form = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"csrftoken={CSRF}",
        "Referer": f"https://{NAME}/",
    }
    assert site.ask("POST", "/accounts/login/", body[:200], form).status == 200
    assert site.ask("POST", "/accounts/login/", body, form).status == 413


def test_a_body_that_claims_to_be_larger_than_it_is(site: Site) -> None:
    """A gigabyte is announced and never sent; no memory is reserved for it."""
    announced = HEAD + b"Content-Length: 1073741824\r\nContent-Type: application/json\r\n"
    token = f"Authorization: Token {site.token}\r\n\r\n".encode()
    answer = site.raw(b"POST /api/v1/predict/ HTTP/1.1\r\n" + announced + token + b"{")
    assert answer.status in (0, 400, 413)


def test_an_endless_chunked_body(site: Site) -> None:
    """Chunked, so that the length is not known in advance."""
    chunk = b"100000\r\n" + b'"' * 0x100000 + b"\r\n"
    head = HEAD + f"Authorization: Token {site.token}\r\n".encode()
    chunked = b"Transfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    answer = site.raw(b"POST /api/v1/analyses/ HTTP/1.1\r\n" + head + chunked, *[chunk] * 8)
    assert answer.status in (0, 400, 413)


@pytest.mark.slow
def test_a_connection_that_was_idle_for_a_while_takes_another_request(site: Site) -> None:
    """As a proxy's does; gunicorn by itself closes it after two seconds."""
    connection = HTTPConnection("127.0.0.1", site.port, timeout=120)
    for _ in range(2):
        connection.request("GET", "/live", headers={"Host": NAME})
        kept = connection.sock
        assert connection.getresponse().read() == b'{"status": "ok"}'
        assert connection.sock is kept
        sleep(4)
    connection.close()
