"""Calls a webhook: one POST to a checked address, with a deadline for the whole call.

Signed as in Standard Webhooks (https://www.standardwebhooks.com), so that receivers can verify it
with an existing library: HMAC-SHA256 over ``id.timestamp.body``.

The standard library's HTTP client would resolve the host name again, so :class:`_Connection` goes
to the checked addresses. Its timeout is per read, and a server that sends a byte a second would
never end, so :class:`_Reader` has a deadline.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import secrets
import socket
import ssl
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse
from time import monotonic, time
from typing import TYPE_CHECKING

from analyses.notifications.address import Address, IPAddress, WrongAddress, parse, resolve

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

LIMIT_SECONDS = 5.0
"""Limit for the whole call: resolving, connecting, TLS, sending and reading."""

MAX_BYTES = 64 * 1024
"""Size limit of a response's body. The library limits the head to 100 lines of 64 KiB."""

_SHOWN_CHARACTERS = 200
_SECRET_BYTES = 24
_SECRET_PREFIX = "whsec_"  # noqa: S105  # how Standard Webhooks marks a secret


class NotDelivered(Exception):
    """The webhook was not called or did not accept the call; the message says why."""


class _Deadline:
    """The end of the time for a call."""

    def __init__(self, seconds: float) -> None:
        self._until = monotonic() + seconds

    def left(self) -> float:
        """The seconds left; :exc:`TimeoutError` if there are none."""
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def new_secret() -> str:
    return _SECRET_PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode()


def signature(secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The value of the header ``webhook-signature`` for a body."""
    key = base64.b64decode(secret.removeprefix(_SECRET_PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}"


def call(
    url: str, secret: str, message_id: str, body: bytes, allowed_hosts: Collection[str]
) -> int:
    """Send one signed message; no redirect is followed and no proxy is used.

    ``message_id`` is the same at every try, so that the receiver recognises a repeated message.
    ``allowed_hosts``, in lower case, may have private addresses.

    Returns:
        The HTTP status, 200 to 299.

    Raises:
        NotDelivered: In every other case.
    """
    return _post(url, body, allowed_hosts, _signed(secret, message_id, body))


def post(url: str, body: bytes, allowed_hosts: Collection[str]) -> int:
    """Send JSON unsigned, to a receiver that knows its sender by the URL; else as :func:`call`."""
    return _post(url, body, allowed_hosts, {})


def _post(
    url: str, body: bytes, allowed_hosts: Collection[str], more_headers: Mapping[str, str]
) -> int:
    deadline = _Deadline(LIMIT_SECONDS)
    try:
        address = parse(url)
        ips = resolve(address, allowed_hosts, deadline.left())
        with closing(_Connection(address, ips, deadline)) as connection:
            headers = {**_headers(address), **more_headers}
            connection.request("POST", address.target, body, headers)
            answer = HTTPResponse(_Reader(connection.sock, deadline), method="POST")  # type: ignore[arg-type]  # makefile is all it needs of a socket
            answer.begin()
            return _accepted(answer)
    except TimeoutError as error:
        raise NotDelivered(f"no complete response within {LIMIT_SECONDS:g} s") from error
    except HTTPException as error:
        raise NotDelivered(f"its response is not HTTP: {error!r}") from error
    except ssl.SSLCertVerificationError as error:
        raise NotDelivered(f"its TLS certificate is not valid: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise NotDelivered(f"the TLS handshake failed: {error.reason}") from error
    except (OSError, WrongAddress) as error:
        raise NotDelivered(str(error) or type(error).__name__) from error


def _headers(address: Address) -> dict[str, str]:
    return {
        "Host": address.authority,
        "User-Agent": "MemoryMark",
        "Content-Type": "application/json",
        "Accept": "*/*",
        "Connection": "close",
    }


def _signed(secret: str, message_id: str, body: bytes) -> dict[str, str]:
    now = int(time())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secret, message_id, now, body),
    }


class _Connection(HTTPConnection):
    """Connects to the checked addresses, with TLS for https."""

    def __init__(self, address: Address, ips: list[IPAddress], deadline: _Deadline) -> None:
        super().__init__(address.host, address.port)
        self._address, self._ips, self._deadline = address, ips, deadline

    def connect(self) -> None:
        self.sock = _connect(self._address, self._ips, self._deadline)
        if self._address.scheme == "https":
            self.sock.settimeout(self._deadline.left())  # OpenSSL: for the handshake as a whole
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self._address.host)

    def send(self, data: ReadableBuffer) -> None:  # type: ignore[override]  # our bodies are bytes
        if self.sock is None:
            self.connect()
        self.sock.settimeout(self._deadline.left())
        self.sock.sendall(data)


def _connect(address: Address, ips: list[IPAddress], deadline: _Deadline) -> socket.socket:
    failed = OSError(f"{address.host} has no address")
    for tried, ip in enumerate(ips):
        connection = socket.socket(socket.AF_INET6 if ip.version == 6 else socket.AF_INET)
        connection.settimeout(deadline.left() / (len(ips) - tried))  # leaves time for the others
        try:
            connection.connect((str(ip), address.port))
        except OSError as error:
            connection.close()
            failed = OSError(f"no connection to {ip}, port {address.port}: {error}")
        else:
            return connection
    raise failed


class _Reader(io.RawIOBase):
    """A response as it arrives; every read ends at the deadline."""

    def __init__(self, connection: socket.socket, deadline: _Deadline) -> None:
        self._connection, self._deadline = connection, deadline

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._connection.settimeout(self._deadline.left())
        return self._connection.recv_into(buffer)


def _accepted(answer: HTTPResponse) -> int:
    if 200 <= answer.status <= 299:
        return answer.status
    status = f"HTTP {answer.status} {answer.reason}".rstrip()
    if 300 <= answer.status <= 399:
        raise NotDelivered(f"{status}: redirects are not followed. Use the address it leads to")
    text = b""
    with suppress(OSError, HTTPException):  # shown as far as it arrived in time
        while len(text) < MAX_BYTES and (part := answer.read1(MAX_BYTES - len(text))):
            text += part
    words = " ".join(text.decode(errors="replace").replace("\0", "").split())[:_SHOWN_CHARACTERS]
    raise NotDelivered(f"{status}: {words}" if words else status)
