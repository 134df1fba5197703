"""Webhooks that point into the site's own network.

Redirects, proxies and slow responses on real connections:
analyses/notifications/tests/test_webhook.py.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Event, Thread
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from analyses.models import NotificationChoices
from analyses.notifications import channels
from analyses.notifications.address import Address, WrongAddress, is_public, parse, resolve
from analyses.notifications.webhook import NotDelivered, call
from analyses.tests.factories import make_user

PUBLIC = ["8.8.8.8", "93.184.215.14", "2606:4700:4700::1111", "64:ff9b::808:808"]
PRIVATE = [
    "0.0.0.0",  # noqa: S104  # nothing listens here
    "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.0.2.1",
    "192.168.1.1", "198.18.0.1", "224.0.0.251", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "2002:7f00:1::",
    "2002:a9fe:a9fe::1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "fe80::1",
    "fc00::1", "fd12:3456::1", "fec0::1", "ff02::1", "2001:db8::1",
    "2001:0:4136:e378::1", "4000::1",
]  # fmt: skip


def _resolves_to(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def answer(_host: str, port: int, **_kwargs: Any) -> list[Any]:
        return [(None, None, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", answer)


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_allowed(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_all_other_addresses_are_refused(text: str) -> None:
    assert not is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_cannot_hide_in_an_ipv6_address(inner: IPv4Address) -> None:
    for outer in (
        IPv6Address(0xFFFF << 32 | int(inner)),
        IPv6Address(0x0064FF9B << 96 | int(inner)),
        IPv6Address(0x2002 << 112 | int(inner) << 80 | 1),
    ):
        assert is_public(outer) == is_public(inner)


@pytest.mark.parametrize(
    ("url", "expected", "authority"),
    [
        ("https://hook.example", Address("https", "hook.example", 443, "/"), "hook.example"),
        (
            "http://HOOK.example:8080/a?b=c#d",
            Address("http", "hook.example", 8080, "/a?b=c"),
            "hook.example:8080",
        ),
        ("https://[2606:4700::1]/", Address("https", "2606:4700::1", 443, "/"), "[2606:4700::1]"),
    ],
)
def test_a_url_is_parsed(url: str, expected: Address, authority: str) -> None:
    assert parse(url) == expected
    assert parse(url).authority == authority


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "full URL"),
        ("hook.example/a", "full URL"),
        ("ftp://hook.example/", "full URL"),
        ("file:///etc/passwd", "full URL"),
        ("https://", "full URL"),
        ("https://ada:secret@hook.example/", "name and password"),
        ("https://hook.example\\@127.0.0.1/", "name and password"),
        ("https://hook.example:99999/", "not a URL"),
        ("https://hook.example:0/", "not a port"),
        ("https://[::1/", "not a URL"),
        ("https://hook.example/a b", "without spaces"),
        ("https://hook.example/\r\nX-Evil: 1", "without spaces"),
        ("https://höök.example/", "ASCII"),
        ("https://hook.example/" + "a" * 2000, "longer than"),
    ],
)
def test_an_invalid_webhook_url_is_refused(url: str, why: str) -> None:
    with pytest.raises(WrongAddress, match=why):
        parse(url)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]"]
)
def test_this_machine_is_refused_however_it_is_written(host: str) -> None:
    with pytest.raises(WrongAddress, match="MEMORYMARK_WEBHOOK_HOSTS"):
        resolve(parse(f"http://{host}/"), (), seconds=5)


def test_every_address_of_a_name_has_to_be_public(monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse("https://hook.example/")
    _resolves_to(monkeypatch, "8.8.8.8", "2606:4700:4700::1111", "8.8.8.8")
    assert [str(ip) for ip in resolve(address, (), 5)] == ["8.8.8.8", "2606:4700:4700::1111"]

    _resolves_to(monkeypatch, "8.8.8.8", "10.0.0.1")
    with pytest.raises(WrongAddress, match=r"hook\.example has the address 10\.0\.0\.1"):
        resolve(address, (), 5)


def test_an_admin_allows_hosts_by_their_exact_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _resolves_to(monkeypatch, "10.0.0.1")
    allowed = {"chat.lab.example"}

    assert resolve(parse("https://Chat.lab.example/"), allowed, 5) == [ip_address("10.0.0.1")]
    for other in ("evil.chat.lab.example", "lab.example", "10.0.0.1"):
        with pytest.raises(WrongAddress):
            resolve(parse(f"https://{other}/"), allowed, 5)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "a" * 64 + ".example", ".a"])
def test_a_name_without_an_address_is_reported(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host.endswith(".invalid"):  # no test uses a real name server

        def unknown(*_args: object, **_kwargs: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="cannot be resolved"):
        resolve(parse(f"https://{host}/"), (), 5)


def test_a_silent_name_server_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def silent(*_args: object, **_kwargs: object) -> list[object]:
        ended.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(OSError, match="not resolved in time"):
        resolve(parse("https://hook.example/"), (), 0.05)
    ended.set()


# A whole call to a local service that no one else may reach


class Inside:
    """A service that only listens on this machine and counts its visitors."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.visitors = 0
        Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            self.visitors += 1
            request = b""
            while not request.endswith(b"{}") and (part := connection.recv(4096)):
                request += part  # read all of it, or a client still sending would see a broken pipe
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            connection.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def inside() -> Iterator[Inside]:
    service = Inside()
    yield service
    service.close()


SPELLINGS = [
    "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "0177.0.0.1", "0177.1", "0x7f.0.0.1",  # noqa: S104  # nothing listens here
    "0x7f000001", "2130706433", "017700000001", "127.0.0.1.", "localhost", "LOCALHOST",
    "localhost.", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
    "[0:0:0:0:0:0:0:1]", "[::1%25lo]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "127.255.255.254",
    "%31%32%37.0.0.1", "127。0。0。1", "①②⑦.0.0.1", "127.0.0.1%00.hook.example", "127.0.0.1\t",
    "hook.example@127.0.0.1", "127.0.0.1#@hook.example", "127.0.0.1?@hook.example",
]  # fmt: skip


@pytest.mark.parametrize("host", SPELLINGS)
def test_this_machine_cannot_be_called_by_any_of_its_names(inside: Inside, host: str) -> None:
    for url in (f"http://{host}:{inside.port}/", f"https://{host}:{inside.port}/"):
        with pytest.raises(NotDelivered):
            call(url, "whsec_c2VjcmV0", "msg_1", b"{}", ())
    assert inside.visitors == 0


def test_the_local_service_counts_calls(inside: Inside) -> None:
    """Otherwise the test above would prove nothing."""
    assert (
        call(f"http://127.0.0.1:{inside.port}/", "whsec_c2VjcmV0", "a", b"{}", ["127.0.0.1"]) == 200
    )
    assert inside.visitors == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL", "dict://127.0.0.1:11211/stat",
        "ftp://127.0.0.1/", "ldap://127.0.0.1/", "unix:///var/run/docker.sock", "jar:http://x!/",
        "HTTP+unix://%2Fvar%2Frun%2Fdocker.sock/", "//127.0.0.1/", "http:127.0.0.1", "http:///x",
        "http://127.0.0.1:22\r\nX: y/", "data:,x", "javascript:alert(1)", "http://",
    ],
)  # fmt: skip
def test_other_schemes_are_refused(url: str) -> None:
    with pytest.raises(NotDelivered):
        call(url, "whsec_c2VjcmV0", "msg_1", b"{}", ())


def test_a_name_that_is_public_when_it_is_saved_and_private_when_it_is_called(
    client: Client, db: None, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding, through the form and its test button."""
    mallory = make_user("mallory")
    client.force_login(mallory)
    _resolves_to(monkeypatch, "93.184.215.14")
    url = f"http://rebound.example:{inside.port}/"
    form = {"by_webhook": "on", "webhook_url": url, "only_after_seconds": "0"}
    assert client.post("/notifications/", form).status_code == 302
    assert NotificationChoices.objects.get(member=mallory).webhook_url == url
    _resolves_to(monkeypatch, "127.0.0.1")

    told = client.post("/notifications/test/", follow=True).content.decode()
    assert "public internet" in told
    assert inside.visitors == 0


def test_an_address_that_got_past_the_form(client: Client, db: None, inside: Inside) -> None:
    """Stored by an earlier version, for example: it is checked again when called."""
    mallory = make_user("mallory")
    channels.save_choices(
        mallory, {"by_webhook": True, "webhook_url": f"http://127.0.0.1:{inside.port}/"}
    )
    client.force_login(mallory)
    assert "public internet" in client.post("/notifications/test/", follow=True).content.decode()
    assert inside.visitors == 0
