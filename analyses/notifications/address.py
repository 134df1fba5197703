"""Addresses a webhook may have: none that reaches the site's own network.

The libraries for this (as of November 2026) do less: ``advocate`` has had no release since 2020;
``requests-hardened`` and ``safehttpx`` build on requests and httpx, whose timeouts are per read, so
a server that sends a byte a second never ends.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from queue import Empty, SimpleQueue
from threading import Thread
from urllib.parse import urlsplit

from analyses.models.notifications import MAX_URL_LENGTH

IPAddress = IPv4Address | IPv6Address

_DEFAULT_PORTS = {"http": 80, "https": 443}
_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""IANA's allocation for global unicast (RFC 4291, section 2.4)."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""IPv4 addresses as a translator shows them to IPv6 (RFC 6052)."""

ONLY_PUBLIC = (
    "a webhook may only call addresses of the public internet; "
    "to allow a host on your own network, an admin sets MEMORYMARK_WEBHOOK_HOSTS"
)


class WrongAddress(Exception):
    """No webhook may have this address; the message says why and what to do."""


@dataclass(frozen=True)
class Address:
    """A parsed webhook URL.

    Attributes:
        host: The host in lower case; an IPv6 address without its brackets.
        target: Path and query, as in the first line of a request.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def parse(url: str) -> Address:
    """Parse a URL.

    Raises:
        WrongAddress: No webhook may have it, whatever its host resolves to.
    """
    if len(url) > MAX_URL_LENGTH:
        raise WrongAddress(f"the URL is longer than {MAX_URL_LENGTH:,} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise WrongAddress(
            "write the URL without spaces and in plain ASCII: xn--… for a host, %XX elsewhere"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise WrongAddress(f"this is not a URL: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise WrongAddress("enter a full URL that starts with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise WrongAddress(
            "leave user name and password out of the URL. The signature proves who calls"
        )
    if port == 0:
        raise WrongAddress("port 0 is not a port")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(
        parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port, target
    )


def resolve(address: Address, allowed_hosts: Collection[str], seconds: float) -> list[IPAddress]:
    """The IP addresses of the host, if all of them are allowed.

    Connect to these and do not resolve the name again: the next answer may differ (DNS rebinding).
    ``allowed_hosts``, in lower case, may have any address.

    Raises:
        WrongAddress: One of them is not allowed.
        OSError: The name was not resolved in ``seconds``.
    """
    found = _look_up(address, seconds)
    refused = [ip for ip in found if not is_public(ip)]
    if refused and address.host not in allowed_hosts:
        raise WrongAddress(f"{address.host} has the address {refused[0]}: {ONLY_PUBLIC}")
    return found


def is_public(ip: IPAddress) -> bool:
    """Whether an address, and any IPv4 address embedded in it, is global unicast."""
    if isinstance(ip, IPv4Address):
        return ip.is_global and not ip.is_multicast
    if (inner := _inside(ip)) is not None:
        return is_public(inner)
    return ip.is_global and ip in _GLOBAL_UNICAST


def _inside(ip: IPv6Address) -> IPv4Address | None:
    """The IPv4 address to which packets for this IPv6 address go."""
    if ip in _NAT64:
        return IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour


def _look_up(address: Address, seconds: float) -> list[IPAddress]:
    """Resolve the name in a thread, since the C library's call cannot be interrupted."""
    answers: SimpleQueue[list[IPAddress] | OSError] = SimpleQueue()

    def ask() -> None:
        try:
            infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            answers.put([ip_address(str(info[4][0])) for info in infos])
        except (OSError, UnicodeError) as error:  # UnicodeError: a label is empty or too long
            answers.put(OSError(f"the name {address.host} cannot be resolved: {error}"))

    Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise OSError(f"the name {address.host} was not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    return list(dict.fromkeys(answer))
