"""A node of a drill's lab: real processes, found by their role."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
STOP_SECONDS = 60.0


class Node:
    """A node process, restarted as a process manager would."""

    def __init__(self, name: str, environment: dict[str, str], log: Path) -> None:
        self.name, self._environment, self._log = name, environment, log
        self.start()

    def start(self) -> None:
        """Start the node process, as the process manager does."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "cluster"],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def keep(self) -> None:
        """Restart it if it has ended."""
        if self.process.poll() is not None:
            self.start()

    def stop(self) -> int:
        """Shut it down gracefully; returns its exit status."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        return self.process.wait(STOP_SECONDS)

    def strike(self, role: str, number: signal.Signals) -> None:
        """Send a signal to its processes of a role; of its staff, to those with an engine."""
        struck = self.processes()[role]
        if role == "staff":
            struck = [process for process in struck if process.children()]
        for process in alive(struck):
            process.send_signal(number)

    def kill(self) -> None:
        """Kill all its processes at once, as when its machine loses power."""
        for process in [process for found in self.processes().values() for process in found]:
            process.kill()
        self.process.wait()

    def said(self) -> str:
        """Its whole log."""
        return self._log.read_text(errors="replace")

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Its live processes by role.

        The roles are node and, for the pool of workers, pool, guard, staff (workers and helpers)
        and engine; the interactive pool has the same four.
        """
        roles = ("pool", "guard", "staff", "engine")
        found: dict[str, list[psutil.Process]] = {
            role: [] for role in ("node", *roles, *(f"interactive {role}" for role in roles))
        }
        if self.process.poll() is not None:
            return found
        with suppress(psutil.NoSuchProcess):
            node = psutil.Process(self.process.pid)
            found["node"] = [node]
            for child in node.children():
                which = "interactive " if "interactive" in child.cmdline() else ""
                found[f"{which}pool"].append(child)
            for which in ("", "interactive "):
                for parents, role in pairwise(roles):
                    found[f"{which}{role}"] = _children(found[f"{which}{parents}"])
        return found


def alive(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    """The processes still running, without zombies."""
    return [process for process in processes if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(parents: Iterable[psutil.Process]) -> list[psutil.Process]:
    return [child for parent in parents for child in parent.children()]
