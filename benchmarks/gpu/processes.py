"""The processes of the benchmark: its own, and the engine's for trials."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.gpu.results import Device, Search, device_of, search_of, trial_of
from engine.core.errors import MeasurementFailed
from engine.interface.trial import Source, Trial
from engine.measurement.parent import CHILD, run_together
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


def run_trial(order: TrialOrder, environment: Mapping[str, str], deadline_seconds: float) -> Trial:
    """Run one trial.

    Raises:
        OutOfTime: If it takes longer; it is killed.
        MeasurementFailed: If it failed for a reason other than memory.
    """
    line = order_line("trial", order.to_json())
    end = run_together(CHILD, [line], environment, max(deadline_seconds, 0.0))[0]
    if end.status == -signal.SIGKILL:
        return Trial(
            order.batch_size,
            fits=False,
            source=Source.MEASURED,
            failure="the operating system killed the trial; most likely host memory ran out",
        )
    if end.status not in (0, GAVE_UP):
        raise MeasurementFailed(f"the trial failed: {end.last_words or 'without a message'}")
    answer: dict[str, Any] = json.loads(end.answer)
    return Trial(**answer | {"source": Source(answer["source"])})
