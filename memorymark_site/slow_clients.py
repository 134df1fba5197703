"""The worker of gunicorn that does not wait for ever for whoever sends or reads slowly.

What it refuses itself, before Django sees it, has the headers that keep a browser from running it.

gunicorn 27 bounds how long a connection may be silent before its first byte, and nothing after it:
as many half requests as there are threads, or visitors who ask for a large file and do not read it,
would hold the whole site. When it hangs up, its loop
stands still for up to 2 s, until the visitor has hung up too. A proxy that takes requests in
whole before it passes them on keeps such visitors away altogether; see docs/operations.md.
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

PATIENCE_SECONDS = 10.0
"""For the head of a request, again for its body, and for each part of the answer to be taken."""

SLOWEST_BYTES_PER_SECOND = 20_000
"""What is sent at least so fast may take longer; a modem of 1996 is slower, a telephone is not."""


LINGER_SECONDS = 0.2
"""For a visitor who still sends when all is said. gunicorn's loop stands still for that time."""


GUARDS = (
    b"Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
    b"X-Content-Type-Options: nosniff\r\n"
    b"Cache-Control: no-store\r\n"
)
"""Headers of gunicorn's own answers, which say again what was wrong with the request."""


class PatientSocket(socket.socket):
    """A connection that is read and written for a bounded time."""

    _until = 0.0
    _received = 0

    def be_patient(self, seconds: float) -> None:
        """Begin to count the time."""
        self._until, self._received = monotonic() + seconds, 0

    def recv(self, size: int, flags: int = 0) -> bytes:
        """What has arrived.

        Raises:
            ConnectionResetError: If it took too long: gunicorn takes that for a visitor who left.
            TimeoutError: If gunicorn has set a bound itself.
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
            ConnectionResetError: If it took too long, or the visitor has left.
        """
        with self._bounded(PATIENCE_SECONDS + len(data) / SLOWEST_BYTES_PER_SECOND):
            super().sendall(data, flags)

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        """Send a file; the time is that between two parts of it.

        Raises:
            ConnectionResetError: As :meth:`sendall`.
        """
        with self._bounded(PATIENCE_SECONDS):
            return super().sendfile(file, offset, count)

    def shutdown(self, how: int) -> None:
        """Say that nothing more will be sent; then gunicorn reads on, for visitors who still do."""
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
        return ConnectionResetError(errno.ECONNRESET, "the visitor is too slow")


class _Guarding:
    """A connection that takes gunicorn's words for an error, which come in one piece."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendall(self, data: bytes) -> None:
        """Send all of it, with the headers behind the first line."""
        line, end, rest = data.partition(b"\r\n")
        self._sock.sendall(line + end + GUARDS + rest)


class Worker(ThreadWorker):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's worker with threads, on such connections."""

    def handle(self, conn: TConn) -> Any:
        """Read the head of a request, and answer it."""
        if not isinstance(conn.sock, PatientSocket):
            conn.sock = PatientSocket(fileno=conn.sock.detach())
        conn.sock.be_patient(PATIENCE_SECONDS)
        return super().handle(conn)

    def handle_request(self, req: Any, conn: TConn) -> Any:
        """Answer a request whose head has been read."""
        conn.sock.be_patient(PATIENCE_SECONDS)
        return super().handle_request(req, conn)

    def handle_error(self, req: Any, client: Any, addr: Any, exc: BaseException) -> None:
        """Say what is wrong with a request that cannot be read."""
        super().handle_error(req, _Guarding(client), addr, exc)
