"""The processes of the benchmark: its own, and the engine's for trials.

Loading PyTorch and transformers takes longer than most trials. A process of
:mod:`engine.measurement.child` loads them, then waits for its order without holding any GPU memory.
Starting a few ahead gives every trial a fresh process at no cost in time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu.results import Device, Search, device_of, search_of, trial_of
from engine.core.errors import MeasurementFailed
from engine.interface.result import Source, Trial
from engine.measurement.parent import CHILD, OutOfTime, run_together
from engine.measurement.protocol import GAVE_UP, DeviceFacts, TrialOrder, order_line


@dataclass(frozen=True)
class PredictionRequest:
    """A workload to predict on a device.

    Attributes:
        fields: Fields of the workload.
        facts: The device as measured.
        limits: Capacities to predict the largest batch for.
        sizes: Capacities and batch sizes to predict trials for.
    """

    fields: dict[str, Any]
    facts: DeviceFacts
    limits: tuple[int | None, ...] = ()
    sizes: tuple[tuple[int | None, int], ...] = ()

    @classmethod
    def parse(cls, read: dict[str, Any]) -> PredictionRequest:
        return cls(
            fields=read["fields"],
            facts=DeviceFacts(**read["facts"]),
            limits=tuple(read["limits"]),
            sizes=tuple((limit, size) for limit, size in read["sizes"]),
        )


@dataclass(frozen=True)
class Predictions:
    """The predictions, in the order of the request."""

    largest: list[int]
    trials: list[Trial]


_CHILD = [sys.executable, "-m", "benchmarks.gpu.child"]


def describe_device(environment: Mapping[str, str], deadline_seconds: float, quick: bool) -> Device:
    """The device of this machine, with its fixed costs.

    Raises:
        MeasurementFailed: If the device does not answer.
    """
    return device_of(_ask("device", {"quick": quick}, environment, deadline_seconds))


def request_predictions(
    request: PredictionRequest, environment: Mapping[str, str], deadline_seconds: float
) -> Predictions:
    """Predict in another process.

    Raises:
        MeasurementFailed: If the prediction failed.
    """
    answer = _ask("prediction", asdict(request), environment, deadline_seconds)
    return Predictions(answer["largest"], [trial_of(trial) for trial in answer["trials"]])


def time_search(
    row: Search, fields: Mapping[str, Any], environment: Mapping[str, str], deadline_seconds: float
) -> Search:
    """Run a tool's search; ``row`` sets tool, workload and capacity.

    Raises:
        OutOfTime: If it took longer than the deadline.
        MeasurementFailed: If it failed.
    """
    order = {
        "tool": row.tool,
        "workload": row.workload,
        "limit_bytes": row.limit_bytes,
        "fields": dict(fields),
    }
    return search_of(_ask("search", order, environment, deadline_seconds))


def _ask(
    what: str, order: object, environment: Mapping[str, str], deadline_seconds: float
) -> dict[str, Any]:
    end = run_together(
        [*_CHILD, what], [json.dumps(order)], environment, max(deadline_seconds, 0.0)
    )[0]
    if end.status != 0:
        raise MeasurementFailed(f"the {what} failed: {end.last_words or 'without a message'}")
    answer: dict[str, Any] = json.loads(end.answer)
    return answer


class Trials:
    """Measures trials one after another; a context that ends its processes.

    Args:
        environment: Environment of the processes.
        ahead: Number of processes to start before they are needed.
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
            OutOfTime: If it takes longer; it is killed.
            MeasurementFailed: If it failed for a reason other than memory.
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
                CHILD,
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
            os.write(self._orders, f"{order_line('trial', order.to_json())}\n".encode())
            output, _ = self._process.communicate(timeout=deadline_seconds)
        except BrokenPipeError:  # it died at once; its exit status and errors say why
            output, _ = self._process.communicate()
        except subprocess.TimeoutExpired as error:
            raise OutOfTime(f"the trial did not end within {deadline_seconds:.0f} s") from error
        status = self._process.returncode
        if status == -signal.SIGKILL:
            return Trial(
                order.batch_size,
                fits=False,
                source=Source.MEASURED,
                failure="the operating system killed the trial; most likely host memory ran out",
            )
        if status not in (0, GAVE_UP):
            raise MeasurementFailed(f"the trial failed: {self._last_words()}")
        answer: dict[str, Any] = json.loads(output.splitlines()[-1])
        return Trial(**answer | {"source": Source(answer["source"])})

    def end(self) -> None:
        os.close(self._orders)
        self._process.kill()
        with self._process, self._errors:
            pass

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else "without a message"
