"""Processes that work side by side on one order, and how each of them ended."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

from engine.errors import MeasurementFailed

GRACE_SECONDS = 5.0
"""Once one has ended badly, the others may still tell why; then they are ended."""


class OutOfTime(MeasurementFailed):
    """Not all of them ended before the deadline."""


@dataclass(frozen=True)
class Ended:
    """How a process ended by itself.

    Attributes:
        status: As ``Popen.returncode``: 0 for success, below zero for a signal.
        answer: The last line of its output; empty if it wrote none.
        last_words: The last line of its errors; empty if there are none.
    """

    status: int
    answer: str
    last_words: str


def run_together(
    command: Sequence[str],
    orders: Sequence[str],
    environment: Mapping[str, str],
    deadline_seconds: float,
) -> dict[int, Ended]:
    """Give each order, a line, to a process of its own, and wait for all of them.

    Processes of a group wait for each other, so one that dies would leave the others waiting for
    ever: these are ended. Each process's input stays open while it works, so that it can tell when
    this one has gone.

    Args:
        command: What each process runs.
        orders: Their first lines of input.
        environment: Their environment.
        deadline_seconds: How long they may take, together.

    Returns:
        Those that ended by themselves, by number, in the order in which they did.

    Raises:
        OutOfTime: If that took too long.
    """
    ends: queue.SimpleQueue[tuple[int, Ended]] = queue.SimpleQueue()
    ended: dict[int, Ended] = {}
    until = time.monotonic() + deadline_seconds
    with ExitStack() as stack:
        for number, order in enumerate(orders):
            stack.enter_context(_Worker(number, command, order, environment, ends))
        while len(ended) < len(orders):
            try:
                number, end = ends.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                if any(end.status for end in ended.values()):
                    break
                raise OutOfTime(f"it did not end within {deadline_seconds:.0f} s") from None
            ended[number] = end
            if end.status:
                until = min(until, time.monotonic() + GRACE_SECONDS)
    return ended


class _Worker:
    """One process, and the thread that speaks with it; both are over when the context is."""

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        order: str,
        environment: Mapping[str, str],
        ends: queue.SimpleQueue[tuple[int, Ended]],
    ) -> None:
        self._number = number
        self._order = order
        self._ends = ends
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._thread = threading.Thread(target=self._attend, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._thread.join()
        with self._process, self._errors:
            pass

    def _attend(self) -> None:
        orders, answers = self._pipes()
        with suppress(BrokenPipeError):  # it died at once; its exit status and errors say why
            orders.write(self._order + "\n")
            orders.flush()
        said = answers.read()
        status = self._process.wait()
        self._errors.seek(0)
        self._ends.put((self._number, Ended(status, _last(said), _last(self._errors.read()))))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the process was started without pipes")
        return self._process.stdin, self._process.stdout


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
