"""Which addresses a webhook may have."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address
from threading import Event
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.notifications.address import Address, WrongAddress, is_public, parse, resolve

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
def test_public_addresses_are(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", PRIVATE)
def test_all_others_are_not(text: str) -> None:
    assert not is_public(ip_address(text))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_hides_in_no_ipv6_address(inner: IPv4Address) -> None:
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
def test_a_url_is_taken_apart(url: str, expected: Address, authority: str) -> None:
    assert parse(url) == expected
    assert parse(url).authority == authority


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "whole URL"),
        ("hook.example/a", "whole URL"),
        ("ftp://hook.example/", "whole URL"),
        ("file:///etc/passwd", "whole URL"),
        ("https://", "whole URL"),
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
def test_what_is_no_url_for_a_webhook_is_refused(url: str, why: str) -> None:
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
def test_a_name_without_an_address_is_said_so(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if host.endswith(".invalid"):  # no test asks a real name server

        def unknown(*_args: object, **_kwargs: object) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(OSError, match="cannot be resolved"):
        resolve(parse(f"https://{host}/"), (), 5)


def test_a_name_server_that_is_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Event()

    def silent(*_args: object, **_kwargs: object) -> list[object]:
        ended.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    with pytest.raises(OSError, match="not resolved in time"):
        resolve(parse("https://hook.example/"), (), 0.05)
    ended.set()
