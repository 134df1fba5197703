"""Processes for trials, and those that wait for the next one with their libraries loaded.

Every trial has a fresh process, but loading torch and transformers takes longer than most trials.
While one runs, the next process is started. It loads libraries while the trial builds its model,
and stands still while steps are timed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

TIMING = "timing"
"""Line that a trial's process writes just before the first step that it times."""


@dataclass(frozen=True)
class Ended:
    """End of a process that ended by itself.

    Attributes:
        status: Exit status, as ``Popen.returncode``: 0 for success, below zero for a signal.
        answer: The last line of its standard output; may be empty.
        last_words: The last line of its standard error; may be empty.
    """

    status: int
    answer: str
    last_words: str


class TrialProcess:
    """A process that reads one order, a line, and writes one answer.

    Its input stays open while it works, so that it notices when this process is gone.

    Args:
        command: The command that it runs.
        environment: Its environment.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.made_of = list(command), dict(environment)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._thread: threading.Thread | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def carry_out(
        self, order: str, timing: Callable[[], None], ended: Callable[[Ended], None]
    ) -> None:
        """Give it its order.

        Args:
            order: A line.
            timing: Called when it begins to time steps, in another thread.
            ended: Called with how it ended, in another thread.
        """
        arguments = (order, timing, ended)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, if it has not ended yet."""
        self._process.kill()
        if self._thread is not None:
            self._thread.join()
        with suppress(BrokenPipeError):  # what it never read is still to be flushed
            self._pipes()[0].close()
        with self._process, self._errors:
            pass

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def _run(self, order: str, timing: Callable[[], None], ended: Callable[[Ended], None]) -> None:
        orders, answers = self._pipes()
        with suppress(BrokenPipeError):  # it died at once; status and errors say why
            orders.write(order + "\n")
            orders.flush()
        answer = ""
        for line in answers:
            if line.strip() == TIMING:
                timing()
            elif line.strip():
                answer = line.rstrip("\n")
        status = self._process.wait()
        self._errors.seek(0)
        ended(Ended(status, answer, _last(self._errors.read())))

    def _pipes(self) -> tuple[IO[str], IO[str]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise ValueError("the process was started without pipes")
        return self._process.stdin, self._process.stdout


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


class Waiting:
    """Processes that wait for an order; none is kept unless :func:`kept_ready` says so."""

    def __init__(self) -> None:
        self._processes: list[TrialProcess] = []
        self._kept = False

    def take(self, command: Sequence[str], environment: Mapping[str, str]) -> TrialProcess:
        """A process for an order: one that waits, if it was started in the same way, or a new one.

        One that was started in another way is ended: the next orders will be like this one.
        """
        wanted = list(command), dict(environment)
        while self._processes:
            process = self._processes.pop()
            if process.made_of == wanted and process.is_alive:
                return process
            process.end()
        return TrialProcess(command, environment)

    def start(self, command: Sequence[str], environment: Mapping[str, str], count: int) -> None:
        """Start processes for the orders after those that are carried out now."""
        while self._kept and len(self._processes) < count:
            self._processes.append(TrialProcess(command, environment))

    def stand_still(self) -> None:
        """Let those that wait do nothing, not even load libraries."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them load libraries."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.signal(number)

    @contextmanager
    def kept_ready(self) -> Iterator[None]:
        """Keep processes ready for as long as the context lasts; then those left are ended.

        Only on Linux, where a process that stands still is ended with its parent all the same.
        """
        if self._kept or sys.platform != "linux":
            yield
            return
        self._kept = True
        try:
            yield
        finally:
            self._kept = False
            while self._processes:
                self._processes.pop().end()


waiting = Waiting()
"""This process's."""
