"""Processes that start with the libraries of a trial loaded: forks of one that has loaded them.

See :mod:`engine.measurement.loader`, which runs in that one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from .protocol import LIBRARIES_LOADED

_COMMAND = [sys.executable, "-m", f"{__package__}.loader"]
_PYTHON_MODULE = [sys.executable, "-m"]


class Forked:
    """A process that another one forked for us, as far as its ``Popen`` would be used.

    Attributes:
        pid: Its number.
        stdin, stdout: Our ends of its pipes.
    """

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], ended: IO[str]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._ended = ended
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status, below zero for a signal; ``None`` while it runs."""
        if self._status is None and select.select([self._ended], [], [], 0)[0]:
            return self.wait()
        return self._status

    def wait(self) -> int:
        """The exit status, once it has ended."""
        if self._status is None:
            # Without a word the process that kept it is gone, and it with that one.
            self._status = int(self._ended.readline() or -signal.SIGKILL)
        return self._status

    def kill(self) -> None:
        """End it, if it has not ended yet."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for its end, and close our ends of its pipes."""
        self.wait()
        for pipe in (self.stdin, self.stdout, self._ended):
            with suppress(BrokenPipeError):  # what it never read is still to be flushed
                pipe.close()


class Loader:
    """One process with the libraries loaded; starting it takes as long as loading them.

    Args:
        environment: Its environment, and that of the processes it forks.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [*_COMMAND, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.environment,
            )
        self._ready: bool | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it can still fork."""
        return self._process.poll() is None

    def fork(self, command: Sequence[str], errors: IO[str]) -> Forked | None:
        """Start a command in a fork.

        Args:
            command: ``python -m MODULE``, with its arguments.
            errors: Receives its standard error.

        Returns:
            ``None`` if the libraries cannot be loaded without touching the GPU, or memory for
            another process is lacking: then it has to be started by itself.
        """
        if list(command[:2]) != _PYTHON_MODULE or not self._is_ready():
            return None
        (stdin, to), (of, stdout), (said, status) = os.pipe(), os.pipe(), os.pipe()
        ours = (open(to, "w"), open(of), open(said))  # noqa: PTH123, SIM115  # closed with it
        try:
            words = json.dumps(list(command[2:])).encode()
            with suppress(BrokenPipeError, ConnectionResetError):
                socket.send_fds(self._requests, [words], [stdin, stdout, errors.fileno(), status])
        finally:
            for theirs in (stdin, stdout, status):
                os.close(theirs)
        pid = ours[2].readline()
        if pid:
            return Forked(int(pid), *ours)
        for pipe in ours:
            pipe.close()
        return None

    def _is_ready(self) -> bool:
        if self._ready is None:
            with suppress(ConnectionResetError):
                self._ready = self._requests.recv(len(LIBRARIES_LOADED)) == LIBRARIES_LOADED
        return bool(self._ready) and self.is_alive

    def end(self) -> None:
        """End it; what it has forked ends with it."""
        self._process.kill()
        self._process.wait()
        self._requests.close()
