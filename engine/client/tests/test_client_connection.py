from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from engine.client import Lab, Misconfigured, NotAllowed, NotFound, Refused, Unavailable
from engine.client.connection import TRIES, Connection, Settings
from engine.client.tests.fake_lab import FakeLab

TOKEN = "mm_0123456789abcdef"  # noqa: S105  # of these tests


@pytest.fixture
def lab() -> Iterator[FakeLab]:
    with FakeLab() as lab:
        yield lab


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MEMORYMARK_URL", "MEMORYMARK_TOKEN", "MEMORYMARK_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def connection(lab: FakeLab, pauses: list[float]) -> Connection:
    return Connection(Settings(lab.url, TOKEN), timeout_seconds=60, pause=pauses.append)


def test_requests_carry_the_members_token(connection: Connection, lab: FakeLab) -> None:
    lab.respond({"results": []})

    assert connection.get("/analyses/", {"model": "bert", "gpu": None}) == {"results": []}
    (request,) = lab.requests
    assert (request.method, request.path) == ("GET", "/api/v1/analyses/?model=bert")
    assert request.headers["Authorization"] == f"Token {TOKEN}"


def test_posts_are_json(connection: Connection, lab: FakeLab) -> None:
    lab.respond((201, {"id": 1}))

    assert connection.send("POST", "/analyses/", {"model": "bert"}) == {"id": 1}
    assert lab.requests[0].body == {"model": "bert"}


@pytest.mark.parametrize(
    "body",
    [
        {"gpu": ["unknown gpu 'a11'"], "model": ["unknown"]},
        {
            "type": "about:blank",
            "title": "The fields are wrong",
            "status": 400,
            "errors": {"gpu": ["unknown gpu 'a11'"], "model": ["unknown"]},
        },
    ],
    ids=["fields alone", "a problem of RFC 9457"],
)
def test_a_refusal_has_the_labs_message(connection: Connection, lab: FakeLab, body: object) -> None:
    lab.respond((400, body))

    with pytest.raises(Refused, match="gpu: unknown gpu 'a11'; model: unknown") as refused:
        connection.send("POST", "/analyses/", {})
    assert refused.value.status == 400
    assert refused.value.fields == {"gpu": ["unknown gpu 'a11'"], "model": ["unknown"]}
    assert len(lab.requests) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(401, NotAllowed), (403, NotAllowed), (404, NotFound), (418, Refused)]
)
def test_refusals_have_distinct_errors(
    connection: Connection, lab: FakeLab, status: int, kind: type[Refused]
) -> None:
    lab.respond((status, {"detail": "no"}))

    with pytest.raises(kind, match="no"):
        connection.get("/analyses/1/")


def test_a_bad_token_says_what_to_do(connection: Connection, lab: FakeLab) -> None:
    lab.respond((401, {"detail": "Invalid token."}))

    with pytest.raises(NotAllowed, match="Create a new token"):
        connection.get("/models/")


@pytest.mark.parametrize("status", [429, 502, 503, 504, 0])
def test_a_request_to_a_busy_lab_is_retried(
    connection: Connection, lab: FakeLab, pauses: list[float], status: int
) -> None:
    lab.respond((status, b""), (status, b""), {"id": 1})

    assert connection.send("POST", "/analyses/", {"model": "bert"}) == {"id": 1}
    assert len(lab.requests) == 3
    assert pauses[1] > pauses[0] > 0
    keys = {request.headers["Idempotency-Key"] for request in lab.requests}
    assert len(keys) == 1  # so that the lab acts only once


@pytest.mark.parametrize("wanted", ["3", "date"])
def test_a_retry_waits_as_long_as_the_lab_requests(
    connection: Connection,
    lab: FakeLab,
    pauses: list[float],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if wanted == "date":
        now = time.time()
        monkeypatch.setattr("engine.client.connection.time.time", lambda: now)
        wanted = formatdate(now + 4, usegmt=True)
    lab.respond((503, b"", {"Retry-After": wanted}), {"id": 1})
    connection.get("/models/")

    assert 2 < pauses[0] < 7


def test_a_wait_of_an_hour_is_not_taken(
    connection: Connection, lab: FakeLab, pauses: list[float]
) -> None:
    lab.respond((429, b"", {"Retry-After": "3600"}))

    with pytest.raises(Unavailable, match="in 3,600 s"):
        connection.get("/models/")
    assert not pauses


def test_retries_are_limited(connection: Connection, lab: FakeLab, pauses: list[float]) -> None:
    lab.respond((503, b""))

    with pytest.raises(Unavailable, match="try again later"):
        connection.get("/models/")
    assert len(lab.requests) == TRIES == len(pauses) + 1


def test_a_server_error_is_not_retried(connection: Connection, lab: FakeLab) -> None:
    lab.respond((500, b"<html>"))

    with pytest.raises(Unavailable, match=r"failed \(500\)"):
        connection.get("/models/")
    assert len(lab.requests) == 1


def test_a_refused_connection_is_reported(pauses: list[float]) -> None:
    with socket.socket() as held:  # no one listens on it, and no one else can
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        connection = Connection(Settings(url, TOKEN), pause=pauses.append)
        with pytest.raises(Unavailable, match="refused"):
            connection.get("/models/")


def test_a_lab_that_does_not_respond_times_out(pauses: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        connection = Connection(Settings(url, TOKEN), timeout_seconds=0.05, pause=pauses.append)
        with pytest.raises(Unavailable, match="timed out"):
            connection.get("/models/")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_token_never_follows_a_redirect(
    connection: Connection, lab: FakeLab, status: int
) -> None:
    with FakeLab() as other:
        other.respond({})
        lab.respond((status, b"", {"Location": f"{other.url}/api/v1/models/"}))
        with pytest.raises(Misconfigured, match="use that address instead"):
            connection.get("/models/")
        assert not other.requests


def test_the_token_is_not_sent_through_a_proxy(
    lab: FakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeLab() as proxy:
        proxy.respond({})
        lab.respond({"here": True})
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert Connection(Settings(lab.url, TOKEN)).get("/models/") == {"here": True}
        assert not proxy.requests


def test_a_site_other_than_memorymark_is_reported(connection: Connection, lab: FakeLab) -> None:
    lab.respond((200, b"<html>It works!</html>"))

    with pytest.raises(Misconfigured, match="not a MemoryMark site"):
        connection.get("/models/")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "set it to the site's address"),
        ("lab.example", "not a web address"),
        ("ftp://lab.example", "https://"),
        ("http://lab.example", "unencrypted"),
        ("http://10.0.0.1:8000", "unencrypted"),
        ("http://localhost.evil.example", "unencrypted"),
        ("https://ada:secret@lab.example", "leave out user"),
        ("https://lab.example/?token=1", "leave out user"),
        ("https://lab example", "not a web address"),
        ("https://lab.example:port", "not a web address"),
        ("https://", "not a web address"),
    ],
)
def test_an_invalid_address_is_refused(url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        Lab(url, TOKEN)


@pytest.mark.parametrize(
    "url",
    ["https://lab.example", "http://localhost:8000/", "http://[::1]:8000", "http://127.0.0.2"],
)
def test_a_valid_address_is_accepted(url: str) -> None:
    assert Lab(url, TOKEN).url == url.rstrip("/")


def test_plain_http_must_be_allowed_explicitly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Lab("http://lab.example", TOKEN, allow_http=True).url
    monkeypatch.setenv("MEMORYMARK_ALLOW_HTTP", "true")
    assert Lab("http://lab.example", TOKEN).url
    monkeypatch.setenv("MEMORYMARK_ALLOW_HTTP", "perhaps")
    with pytest.raises(Misconfigured, match="true or false"):
        Lab("http://lab.example", TOKEN)


def test_the_environment_sets_address_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORYMARK_URL", "https://lab.example/")
    with pytest.raises(Misconfigured, match="API tokens page"):
        Lab()
    monkeypatch.setenv("MEMORYMARK_TOKEN", f"{TOKEN}\n")
    assert Lab().url == "https://lab.example"


@pytest.mark.parametrize("token", ["two words", "line\nHost: evil", "\u2026", "mm_\0"])
def test_an_invalid_token_is_refused(token: str) -> None:
    with pytest.raises(Misconfigured, match="not a token"):
        Lab("https://lab.example", token)


def test_a_token_does_not_show_in_a_repr() -> None:
    assert TOKEN not in repr(Settings("https://lab.example", TOKEN))
