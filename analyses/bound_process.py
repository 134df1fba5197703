"""The children of the node process, each the first of a group of processes of its own.

Both ends of the bond are pipes, which the operating system closes however a process ends: the
group's processes end when the node process does, and the node process hears the canary.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from time import monotonic, sleep

from django.conf import settings

from analyses import canary

LIFELINE = "MEMORYMARK_LIFELINE"
"""Names the pipe whose end means that the node process has gone."""


class Bound:
    """A running management command and its group, seen from the node process."""

    def __init__(self, command: str) -> None:
        lifeline, self._lifeline = os.pipe()
        self._canary, song = os.pipe()
        os.set_blocking(self._canary, False)
        os.set_blocking(song, False)  # a canary that nobody hears must not block a worker
        self._process = subprocess.Popen(
            [sys.executable, "manage.py", command],
            cwd=settings.BASE_DIR,
            env=os.environ | {LIFELINE: str(lifeline), canary.PIPE: str(song)},
            pass_fds=(lifeline, song),
            start_new_session=True,
        )
        os.close(lifeline)
        os.close(song)
        self.heard_at = monotonic()

    @property
    def pid(self) -> int:
        """Of its first process, and of its process group."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How its first process ended; ``None`` while it runs."""
        return self._process.poll()

    def listen(self) -> None:
        """Note whether the canary has sung since the last time."""
        try:
            if os.read(self._canary, 4096):
                self.heard_at = monotonic()
        except BlockingIOError:
            return

    def ask_to_end(self) -> None:
        """Send TERM to all of its processes."""
        self._signal(signal.SIGTERM)

    def stop(self, grace_seconds: float) -> None:
        """End all of its processes: TERM, and KILL after the grace."""
        self.ask_to_end()
        until = monotonic() + grace_seconds
        while self._has_members() and monotonic() < until:
            sleep(0.05)
        self._signal(signal.SIGKILL)
        self._process.wait()
        for pipe in (self._lifeline, self._canary):
            os.close(pipe)

    def _has_members(self) -> bool:
        """Whether any of its processes holds the canary's pipe, which each of them inherits."""
        try:
            return os.read(self._canary, 4096) != b""
        except BlockingIOError:
            return True

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return  # nobody is left (macOS says EPERM of a group of zombies)


def end_with_node_process() -> None:
    """End this process and its group when the node process has gone.

    Workers do that too: the first process of their group may have died or be frozen at that moment.
    """
    if LIFELINE not in os.environ:
        return  # one of a test, whose process nobody keeps
    lifeline = int(os.environ[LIFELINE])

    def wait() -> None:
        os.read(lifeline, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()
