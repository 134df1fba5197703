"""A PostgreSQL server of a drill's own, behind a wire that can be cut."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep

import psutil
import psycopg

from e2e.running import free_port

_READ_BYTES = 2**16
_USER = "postgres"


class NoServer(Exception):
    """A server cannot be started here; the message says why."""


class Wire:
    """Forwards connections of a new port to another, until it is broken."""

    def __init__(self, to: int) -> None:
        self._to = to
        self._is_whole = True
        self._ends: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @contextmanager
    def broken(self) -> Iterator[None]:
        """End all connections, and every new one at once."""
        self._is_whole = False
        self.cut()
        try:
            yield
        finally:
            self._is_whole = True

    def cut(self) -> None:
        """End all connections; new ones are taken."""
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all of it."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                here, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(here,), daemon=True).start()

    def _connect(self, here: socket.socket) -> None:
        try:
            if not self._is_whole:
                raise ConnectionAbortedError
            there = socket.create_connection(("127.0.0.1", self._to))
        except OSError:  # so is it where the server is down
            here.close()
            return
        self._ends |= {here, there}
        threading.Thread(target=self._forward, args=(here, there), daemon=True).start()
        self._forward(there, here)
        self._ends -= {here, there}

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(_READ_BYTES):
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class OwnServer:
    """A server in a folder, reached through a wire.

    Attributes:
        url: The address of its database, through the wire.
    """

    def __init__(self, folder: Path) -> None:
        self._data = folder / "data"
        self._log = folder / "postgres.log"
        self._port = free_port()
        folder.mkdir()
        shutil.chown(folder, _USER)
        _as_postgres("initdb", "-D", str(self._data), "-A", "trust", "-U", _USER, "--no-sync")
        self.wire = Wire(self._port)
        self.url = f"postgres://{_USER}@127.0.0.1:{self.wire.port}/postgres"

    def start(self) -> None:
        """Start it; returns once it takes connections."""
        options = f"-p {self._port} -k {self._data} -c fsync=off -c listen_addresses=127.0.0.1"
        arguments = ("-t", "180", "-D", str(self._data), "-l", str(self._log), "-o", options)
        _as_postgres("pg_ctl", "-w", *arguments, "start")

    def stop(self) -> None:
        """Stop it as a restart of its machine does: sessions are ended, nothing is waited for."""
        _as_postgres("pg_ctl", "-w", "-t", "180", "-D", str(self._data), "-m", "fast", "stop")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop all of its processes where they are, as a machine without memory or disk does."""
        _signal_all(self._pid(), signal.SIGSTOP)
        try:
            yield
        finally:
            _signal_all(self._pid(), signal.SIGCONT)

    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def restart(self, away_seconds: float) -> None:
        """Stop it, and start it again after a while."""
        self.stop()
        sleep(away_seconds)
        self.start()


@contextmanager
def own_server() -> Iterator[OwnServer]:
    """A new server in a folder that PostgreSQL's account can reach; it runs until the end.

    Raises:
        NoServer: PostgreSQL's programs are not installed, or this is not root.
    """
    if os.geteuid() != 0 or shutil.which("runuser") is None:
        raise NoServer("only root may start a server as PostgreSQL's account")
    if shutil.which("initdb") is None:
        raise NoServer("initdb and pg_ctl are not in PATH (Debian: /usr/lib/postgresql/*/bin)")
    with TemporaryDirectory(prefix="memorymark-server-") as folder:
        Path(folder).chmod(0o755)
        server = OwnServer(Path(folder) / "postgres")
        server.start()
        try:
            yield server
        finally:
            server.wire.close()
            server.stop()


@contextmanager
def tables_locked(url: str) -> Iterator[None]:
    """Hold an ACCESS EXCLUSIVE lock on every table of a database, as a long ALTER TABLE does."""
    with psycopg.connect(url) as database:
        names = database.execute("SELECT quote_ident(tablename) FROM pg_tables "
                                 "WHERE schemaname = 'public' ORDER BY 1").fetchall()  # fmt: skip
        tables = ", ".join(name for (name,) in names)
        database.execute(f"LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE".encode())
        yield
        database.rollback()


def _signal_all(pid: int, number: signal.Signals) -> None:
    """Send a process and its children a signal."""
    first = psutil.Process(pid)
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _as_postgres(program: str, *arguments: str) -> None:
    found = shutil.which(program)
    done = subprocess.run(
        ["runuser", "-u", _USER, "--", str(found), *arguments],  # noqa: S607  # the same
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # pg_ctl's server would keep a pipe open
        stderr=subprocess.DEVNULL,
        cwd="/",
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with status {done.returncode}")
