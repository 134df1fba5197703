"""Trials in the engine's own processes, the next ones started while one is still running.

To load PyTorch and transformers takes longer than most trials. A process of
:mod:`engine.measurement.child` loads them, then waits for its order, and holds nothing of the GPU
until it has one: so each trial has a fresh process, and its start costs no time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Mapping
from typing import Any

from engine.errors import MeasurementFailed
from engine.measurement.parent import CHILD
from engine.measurement.processes import OutOfTime
from engine.measurement.protocol import GAVE_UP, TrialOrder
from engine.result import Source, Trial


class Trials:
    """Measures trials one after the other; a context that ends its processes with it.

    Args:
        environment: Of the processes.
        ahead: How many are started before they are needed.
    """

    def __init__(self, environment: Mapping[str, str], ahead: int) -> None:
        self._environment = environment
        self._ahead = ahead
        self._waiting: deque[_Child] = deque()

    def __enter__(self) -> Trials:
        self._start(self._ahead)
        return self

    def __exit__(self, *_: object) -> None:
        while self._waiting:
            self._waiting.popleft().end()

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        """Run one trial.

        Raises:
            OutOfTime: If it takes longer; it is ended.
            MeasurementFailed: If it ended for another reason than memory.
        """
        self._start(1)
        child = self._waiting.popleft()
        self._start(self._ahead)
        try:
            return child.measure(order, deadline_seconds)
        finally:
            child.end()

    def _start(self, count: int) -> None:
        while len(self._waiting) < count:
            self._waiting.append(_Child(self._environment))


class _Child:
    """A process that waits for the order of a trial; it ends when ``_orders`` is closed."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        reads, self._orders = os.pipe()
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed with the process
        try:
            self._process = subprocess.Popen(
                [*CHILD, "trial"],
                stdin=reads,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                env=environment,
            )
        finally:
            os.close(reads)

    def measure(self, order: TrialOrder, deadline_seconds: float) -> Trial:
        try:
            os.write(self._orders, f"{order.to_json()}\n".encode())
            said, _ = self._process.communicate(timeout=deadline_seconds)
        except BrokenPipeError:  # it died at once; its exit status and errors say why
            said, _ = self._process.communicate()
        except subprocess.TimeoutExpired as error:
            raise OutOfTime(f"the trial did not end within {deadline_seconds:.0f} s") from error
        status = self._process.returncode
        if status == -signal.SIGKILL:
            return Trial(
                order.batch_size,
                fits=False,
                source=Source.MEASURED,
                failure="the operating system ended the trial, most likely for want of host memory",
            )
        if status not in (0, GAVE_UP):
            raise MeasurementFailed(f"the trial failed: {self._last_words()}")
        answer: dict[str, Any] = json.loads(said.splitlines()[-1])
        return Trial(**answer | {"source": Source(answer["source"])})

    def end(self) -> None:
        os.close(self._orders)
        self._process.kill()
        with self._process, self._errors:
            pass

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else "without a word"
