"""Processes of trials: each has one of its own, which has its libraries at once where it can.

Every trial has a fresh process, but loading torch and transformers takes longer than most trials.
So one process loads them, and is forked for each trial; see :mod:`engine.measurement.loader`.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from .loaded import Forked, Loader


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
        loader: Forks it, if it can; with the same environment.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], loader: Loader | None = None
    ) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        forked = loader.fork(command, self._errors) if loader else None
        self._process = forked or subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._thread: threading.Thread | None = None

    def carry_out(self, order: str, ended: Callable[[Ended], None]) -> None:
        """Give it its order.

        Args:
            order: A line.
            ended: Called with how it ended, in another thread.
        """
        self._thread = threading.Thread(target=self._run, args=(order, ended), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End it, if it has not ended yet."""
        self._process.kill()
        if self._thread is not None:
            self._thread.join()
        with self._errors:
            if isinstance(self._process, Forked):
                self._process.close()
                return
            with suppress(BrokenPipeError):  # what it never read is still to be flushed
                self._pipes()[0].close()
            with self._process:
                pass

    def _run(self, order: str, ended: Callable[[Ended], None]) -> None:
        orders, answers = self._pipes()
        with suppress(BrokenPipeError):  # it died at once; status and errors say why
            orders.write(order + "\n")
            orders.flush()
        answer = _last(answers.read())
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


class Loading:
    """Whether the processes of trials are forked from one that has loaded their libraries."""

    def __init__(self) -> None:
        self._loader: Loader | None = None
        self._kept = False

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> TrialProcess:
        """A fresh process for an order."""
        return TrialProcess(command, environment, self._loader_with(environment))

    def _loader_with(self, environment: Mapping[str, str]) -> Loader | None:
        """The loader with this environment; one with another is ended, as are those to come."""
        if not self._kept:
            return None
        if self._loader is None or self._loader.environment != dict(environment):
            self._end()
            self._loader = Loader(environment)
        return self._loader

    def _end(self) -> None:
        if self._loader is not None:
            self._loader.end()
            self._loader = None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep the libraries loaded for as long as the context lasts.

        Only on Linux: elsewhere a process that has loaded them cannot be forked safely.
        """
        if self._kept or sys.platform != "linux":
            yield
            return
        self._kept = True
        try:
            yield
        finally:
            self._kept = False
            self._end()


libraries = Loading()
"""This process's."""
