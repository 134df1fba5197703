"""Calls a webhook: one POST to a checked address, with an end to everything.

Signed as Standard Webhooks has it (https://www.standardwebhooks.com), so that receivers can check
it with a library of theirs: HMAC-SHA256 over ``id.timestamp.body``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import io
import secrets
import socket
import ssl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from time import monotonic, time
from typing import IO

from analyses.notifications.address import Address, IPAddress, WrongAddress, parse, resolve

LIMIT_SECONDS = 5.0
"""For all of it: resolving, connecting, TLS, sending and reading."""

MOST_BYTES = 64 * 1024
"""More of an answer is not read."""

_END_OF_HEAD = b"\r\n\r\n"
_SHOWN_CHARACTERS = 200
_SECRET_BYTES = 24
_SECRET_PREFIX = "whsec_"  # noqa: S105  # how Standard Webhooks marks a secret


class NotDelivered(Exception):
    """The webhook was not called, or has not accepted the call; the text says why."""


class _Deadline:
    """A moment by which everything has to be done."""

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            TimeoutError: If there are none.
        """
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def new_secret() -> str:
    """A secret to sign with."""
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """What the header ``webhook-signature`` says of a body."""
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def call(
    url: str, secret: str, message_id: str, body: bytes, allowed_hosts: Collection[str]
) -> int:
    """Send one signed message; no redirect is followed and no proxy is used.

    Args:
        url: The webhook's.
        secret: Shared with its owner, from :func:`new_secret`.
        message_id: The same for each try of one message, so that a receiver can tell.
        body: JSON.
        allowed_hosts: Host names that may have private addresses, in lower case.

    Returns:
        The HTTP status, 200 to 299.

    Raises:
        NotDelivered: In every other case.
    """
    deadline = _Deadline(LIMIT_SECONDS)
    try:
        address = parse(url)
        request = _request(address, secret, message_id, body)
        ips = resolve(address, allowed_hosts, deadline.left())
        with _connection(address, ips, deadline) as connection:
            connection.settimeout(deadline.left())
            connection.sendall(request)
            received = _receive(connection, deadline)
        return _accepted(received)
    except TimeoutError as error:
        raise NotDelivered(f"no whole answer within {LIMIT_SECONDS:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise NotDelivered(f"its TLS certificate is not good: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise NotDelivered(f"it does not speak TLS as expected: {error.reason}") from error
    except (OSError, WrongAddress) as error:
        raise NotDelivered(str(error) or type(error).__name__) from error


def _request(address: Address, secret: str, message_id: str, body: bytes) -> bytes:
    now = int(time())
    head = [
        f"POST {address.target} HTTP/1.1",
        f"Host: {address.authority}",
        "User-Agent: MemoryMark",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Accept: */*",
        "Accept-Encoding: identity",
        "Connection: close",
        f"webhook-id: {message_id}",
        f"webhook-timestamp: {now}",
        f"webhook-signature: {signature(secret, message_id, now, body)}",
    ]
    return "\r\n".join([*head, "", ""]).encode("ascii") + body


@contextmanager
def _connection(
    address: Address, ips: list[IPAddress], deadline: _Deadline
) -> Iterator[socket.socket]:
    """A connection to the first of the addresses that takes one, with TLS where the URL says so."""
    plain = _connect(address, ips, deadline)
    with plain:
        if address.scheme == "http":
            yield plain
            return
        plain.settimeout(deadline.left())  # OpenSSL's handshake as a whole has to be done by then
        context = ssl.create_default_context()
        with context.wrap_socket(plain, server_hostname=address.host) as secure:
            yield secure


def _connect(address: Address, ips: list[IPAddress], deadline: _Deadline) -> socket.socket:
    failed = OSError(f"{address.host} has no address")
    for tried, ip in enumerate(ips):
        connection = socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET)
        connection.settimeout(deadline.left() / (len(ips) - tried))  # time for the rest is left
        try:
            connection.connect((str(ip), address.port))
        except OSError as error:
            connection.close()
            failed = OSError(f"no connection to {ip}, port {address.port}: {error}")
        else:
            return connection
    raise failed


def _receive(connection: socket.socket, deadline: _Deadline) -> bytes:
    """The answer, as far as it is needed: its head, and for an error what else comes in time.

    Raises:
        TimeoutError: If not even the head comes in time.
    """
    received = b""
    while len(received) < MOST_BYTES and not _says_yes(received):
        try:
            connection.settimeout(deadline.left())
            chunk = connection.recv(MOST_BYTES - len(received))
        except TimeoutError:
            if _END_OF_HEAD in received:
                break
            raise
        if not chunk:
            break
        received += chunk
    return received


def _says_yes(received: bytes) -> bool:
    return received[8:10] == b" 2" and _END_OF_HEAD in received  # after "HTTP/1.1"


class _Received:
    """Bytes that have arrived, as the standard library's parser of answers takes them."""

    def __init__(self, received: bytes) -> None:
        self._received = received

    def makefile(self, _mode: str) -> IO[bytes]:
        """A file of them."""
        return io.BytesIO(self._received)


def _accepted(received: bytes) -> int:
    """The status of an answer that says yes."""
    answer = http.client.HTTPResponse(_Received(received), method="POST")  # type: ignore[arg-type]  # makefile is all it asks of a socket
    try:
        answer.begin()
    except http.client.HTTPException as error:
        raise NotDelivered(f"its answer is not HTTP: {error!r}") from error
    if 200 <= answer.status <= 299:
        return answer.status
    said = f"HTTP {answer.status} {answer.reason}".rstrip()
    if 300 <= answer.status <= 399:
        raise NotDelivered(f"{said}: redirects are not followed; give the address it leads to")
    try:
        text = answer.read()
    except http.client.IncompleteRead as error:
        text = error.partial
    words = " ".join(text.decode(errors="replace").replace("\0", "").split())[:_SHOWN_CHARACTERS]
    raise NotDelivered(f"{said}: {words}" if words else said)
