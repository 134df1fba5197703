"""gunicorn's threaded worker, with limits on clients that send or read slowly.

A proxy that buffers requests (docs/operations.md) keeps such clients away altogether. ``make run``
has none in front, and gunicorn 27 limits only how long a connection may be silent before its first
byte. With its own worker, 24 half-sent requests, or 16 clients that request a large file and do not
read it, kept the whole site from answering for as long as they liked (both tests of
``test_requests.py`` fail with it). So this stays: any account on the machine could do it.

gunicorn's own refusals, sent before Django sees the request, also get the headers that keep a
browser from running them.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any

from gunicorn.workers.gthread import TConn, ThreadWorker

TIMEOUT_SECONDS = 10.0
"""Timeout for the head of a request, again for its body, and for each part of the response."""

SLOWEST_BYTES_PER_SECOND = 20_000
"""Clients that send at least this fast may take longer."""


LINGER_SECONDS = 0.2
"""Time for a client that still sends after the response; gunicorn's loop is blocked meanwhile."""


GUARDS = (
    b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Cache-Control: no-store\r\n"
)
"""Headers of gunicorn's own responses, which quote the faulty request."""


class PatientSocket(socket.socket):
    """A connection whose reads and writes have a time limit."""

    _until = 0.0
    _received = 0

    def be_patient(self, seconds: float) -> None:
        """Start the clock."""
        self._until, self._received = monotonic() + seconds, 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive.

        Raises:
            ConnectionResetError: If it took too long: gunicorn takes that for a client that left.
            TimeoutError: If gunicorn has set a limit itself.
        """
        given = self.gettimeout()
        left = self._until + self._received / SLOWEST_BYTES_PER_SECOND - monotonic()
        try:
            self.settimeout(min(max(left, 0.001), inf if given is None else given))
            data = super().recv(size, flags)
        except TimeoutError as error:
            if given is not None:
                raise
            raise self._given_up() from error
        finally:
            self.settimeout(given)
        self._received += len(data)
        return data

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all of it.

        Raises:
            ConnectionResetError: If it took too long, or the client has left.
        """
        with self._bounded(TIMEOUT_SECONDS + len(data) / SLOWEST_BYTES_PER_SECOND):
            super().sendall(data, flags)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """Send a file; the limit applies to each part of it.

        Raises:
            ConnectionResetError: As :meth:`sendall`.
        """
        with self._bounded(TIMEOUT_SECONDS):
            return super().sendfile(file, offset, count)

    def shutdown(self, how: int) -> None:
        """Close for writing; gunicorn then reads what the client still sends."""
        self.be_patient(LINGER_SECONDS)
        super().shutdown(how)

    @contextmanager
    def _bounded(self, seconds: float) -> Iterator[None]:
        given = self.gettimeout()
        self.settimeout(seconds)
        try:
            yield
        except TimeoutError as error:
            raise self._given_up() from error
        finally:
            self.settimeout(given)

    def _given_up(self) -> ConnectionResetError:
        super().shutdown(socket.SHUT_RDWR)
        return ConnectionResetError(errno.ECONNRESET, "the client is too slow")


class _Guarding:
    """A connection for gunicorn's own error responses, which come in one piece."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        """Send all of it, with our headers after the first line."""
        line, end, rest = data.partition(b"\r\n")
        self._sock.sendall(line + end + GUARDS + rest)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker with threads, on such connections."""

    def handle(self, conn: TConn) -> Any:
        if not isinstance(conn.sock, PatientSocket):
            conn.sock = PatientSocket(fileno=conn.sock.detach())
        conn.sock.be_patient(TIMEOUT_SECONDS)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: TConn) -> Any:
        conn.sock.be_patient(TIMEOUT_SECONDS)
        return super().handle_request(req, conn)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        super().handle_error(req, _Guarding(client), addr, exc)
