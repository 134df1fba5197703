from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from engine.client import Lab, Misconfigured, NotAllowed, NotFound, Refused, Unavailable
from engine.client.connection import TRIES, Connection, Settings
from engine.tests.fake_lab import FakeLab

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


def test_it_asks_as_the_member(connection: Connection, lab: FakeLab) -> None:
    lab.say({"results": []})

    assert connection.get("/analyses/", {"model": "bert", "gpu": None}) == {"results": []}
    (asked,) = lab.asked
    assert (asked.method, asked.path) == ("GET", "/api/v1/analyses/?model=bert")
    assert asked.headers["Authorization"] == f"Token {TOKEN}"


def test_it_posts_json(connection: Connection, lab: FakeLab) -> None:
    lab.say((201, {"id": 1}))

    assert connection.send("POST", "/analyses/", {"model": "bert"}) == {"id": 1}
    assert lab.asked[0].body == {"model": "bert"}


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
def test_a_refusal_has_the_labs_words(connection: Connection, lab: FakeLab, body: object) -> None:
    lab.say((400, body))

    with pytest.raises(Refused, match="gpu: unknown gpu 'a11'; model: unknown") as refused:
        connection.send("POST", "/analyses/", {})
    assert refused.value.status == 400
    assert refused.value.fields == {"gpu": ["unknown gpu 'a11'"], "model": ["unknown"]}
    assert len(lab.asked) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(401, NotAllowed), (403, NotAllowed), (404, NotFound), (418, Refused)]
)
def test_refusals_are_told_apart(
    connection: Connection, lab: FakeLab, status: int, kind: type[Refused]
) -> None:
    lab.say((status, {"detail": "no"}))

    with pytest.raises(kind, match="no"):
        connection.get("/analyses/1/")


def test_a_bad_token_says_what_to_do(connection: Connection, lab: FakeLab) -> None:
    lab.say((401, {"detail": "Invalid token."}))

    with pytest.raises(NotAllowed, match="Create a new token"):
        connection.get("/models/")


@pytest.mark.parametrize("status", [429, 502, 503, 504, 0])
def test_a_busy_lab_is_asked_again(
    connection: Connection, lab: FakeLab, pauses: list[float], status: int
) -> None:
    lab.say((status, b""), (status, b""), {"id": 1})

    assert connection.send("POST", "/analyses/", {"model": "bert"}) == {"id": 1}
    assert len(lab.asked) == 3
    assert pauses[1] > pauses[0] > 0
    keys = {asked.headers["Idempotency-Key"] for asked in lab.asked}
    assert len(keys) == 1  # so that the lab does it once


@pytest.mark.parametrize("wanted", ["3", "date"])
def test_it_waits_as_long_as_the_lab_asks(
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
    lab.say((503, b"", {"Retry-After": wanted}), {"id": 1})
    connection.get("/models/")

    assert 2 < pauses[0] < 7


def test_a_lab_that_wants_an_hour_is_left_alone(
    connection: Connection, lab: FakeLab, pauses: list[float]
) -> None:
    lab.say((429, b"", {"Retry-After": "3600"}))

    with pytest.raises(Unavailable, match="in 3,600 s"):
        connection.get("/models/")
    assert not pauses


def test_it_gives_up_in_the_end(connection: Connection, lab: FakeLab, pauses: list[float]) -> None:
    lab.say((503, b""))

    with pytest.raises(Unavailable, match="try again later"):
        connection.get("/models/")
    assert len(lab.asked) == TRIES == len(pauses) + 1


def test_a_lab_that_failed_is_not_asked_again(connection: Connection, lab: FakeLab) -> None:
    lab.say((500, b"<html>"))

    with pytest.raises(Unavailable, match=r"failed \(500\)"):
        connection.get("/models/")
    assert len(lab.asked) == 1


def test_nobody_there(pauses: list[float]) -> None:
    with socket.socket() as held:  # nobody listens, and nobody else can
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        connection = Connection(Settings(url, TOKEN), pause=pauses.append)
        with pytest.raises(Unavailable, match="refused"):
            connection.get("/models/")


def test_a_lab_that_says_nothing_is_not_waited_for(pauses: list[float]) -> None:
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
        other.say({})
        lab.say((status, b"", {"Location": f"{other.url}/api/v1/models/"}))
        with pytest.raises(Misconfigured, match="use that address instead"):
            connection.get("/models/")
        assert not other.asked


def test_no_proxy_reads_the_token(lab: FakeLab, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeLab() as proxy:
        proxy.say({})
        lab.say({"here": True})
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        assert Connection(Settings(lab.url, TOKEN)).get("/models/") == {"here": True}
        assert not proxy.asked


def test_something_else_at_that_address(connection: Connection, lab: FakeLab) -> None:
    lab.say((200, b"<html>It works!</html>"))

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
def test_an_address_that_cannot_be(url: str, reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason):
        Lab(url, TOKEN)


@pytest.mark.parametrize(
    "url",
    ["https://lab.example", "http://localhost:8000/", "http://[::1]:8000", "http://127.0.0.2"],
)
def test_an_address_that_can_be(url: str) -> None:
    assert Lab(url, TOKEN).url == url.rstrip("/")


def test_whoever_trusts_the_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Lab("http://lab.example", TOKEN, allow_http=True).url
    monkeypatch.setenv("MEMORYMARK_ALLOW_HTTP", "true")
    assert Lab("http://lab.example", TOKEN).url
    monkeypatch.setenv("MEMORYMARK_ALLOW_HTTP", "perhaps")
    with pytest.raises(Misconfigured, match="true or false"):
        Lab("http://lab.example", TOKEN)


def test_the_environment_says_where_and_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORYMARK_URL", "https://lab.example/")
    with pytest.raises(Misconfigured, match="page API tokens"):
        Lab()
    monkeypatch.setenv("MEMORYMARK_TOKEN", f"{TOKEN}\n")
    assert Lab().url == "https://lab.example"


@pytest.mark.parametrize("token", ["two words", "line\nHost: evil", "\u2026", "mm_\0"])
def test_a_token_that_cannot_be(token: str) -> None:
    with pytest.raises(Misconfigured, match="not a token"):
        Lab("https://lab.example", token)


def test_a_token_is_not_shown_by_accident() -> None:
    assert TOKEN not in repr(Settings("https://lab.example", TOKEN))
