"""Faults around a lab's processes: its database, its disk, the machine of a site."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import psutil
import psycopg

DATABASE_FILE = "memorymark.sqlite3"
_CUT_EVERY_SECONDS = 0.5


def cut_connections(url: str, seconds: float, *, refuse: bool = False) -> None:
    """End all connections to a PostgreSQL database, again and again.

    Args:
        url: Address of the database.
        seconds: Duration.
        refuse: Refuse new connections meanwhile, as when the database does not respond.
    """
    server_url, name = url.rsplit("/", 1)
    end = monotonic() + seconds
    with psycopg.connect(f"{server_url}/postgres", autocommit=True) as server:
        if refuse:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        while monotonic() < end:
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )
            sleep(_CUT_EVERY_SECONDS)
        if refuse:
            server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")


@contextmanager
def locked(data_dir: Path) -> Iterator[None]:
    """Hold the write lock of a lab's SQLite database."""
    database = sqlite3.connect(data_dir / DATABASE_FILE, isolation_level=None, timeout=60)
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        database.execute("ROLLBACK")
        database.close()


class NoSmallDisk(Exception):
    """A small disk cannot be mounted; the message says why."""


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A disk of its own that is soon full, mounted on a new folder.

    Raises:
        NoSmallDisk: Without the rights to mount one.
    """
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)],  # noqa: S607
        capture_output=True,
    )
    if mounted.returncode:
        raise NoSmallDisk("only root may mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)  # noqa: S607


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Leave no space on a disk."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(os.urandom(2**16)):
            pass
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Take no new files on a small disk, and no changes of old ones, as after errors of its device.

    It is bound over itself, since the kernel keeps a disk writable while a file is open for
    writing; what is written into such a file still arrives.
    """
    _mount("--bind", str(disk), str(disk))
    try:
        _mount("-o", "remount,bind,ro", str(disk))
        yield
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)  # noqa: S607  # that of the path


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)  # noqa: S607  # that of the path


def kill_site(site: subprocess.Popen[bytes]) -> None:
    """End a site's processes at once, as when its machine loses power."""
    parent = psutil.Process(site.pid)
    for process in [parent, *parent.children(recursive=True)]:
        process.send_signal(signal.SIGKILL)
