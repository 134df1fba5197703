"""Predictions of the workloads of a self-check, for the device that measures them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core.errors import EngineError
from ..gpus import GPUS, Gpu
from ..gpus.checked import MEMORY, STEP, SelfCheck
from ..gpus.fixed_costs import CUDNN_BYTES
from ..gpus.known import on_checked
from ..interface.trial import GpuFacts, Trial
from ..interface.workload import Workload
from ..prediction.probe import predict_live_memory, predict_memory
from ..prediction.timing.step_time import step_work
from ..traces.tracer import trace
from ..tracing.lowering import behaviour_of, cuda_behaviour
from ..tracing.trace import Trace


@dataclass(frozen=True)
class Asked:
    """One workload to predict: its fields that are not at their defaults, and a batch size."""

    fields: dict[str, Any]
    batch_size: int


@dataclass(frozen=True)
class PredictedNumbers:
    """Predictions for one workload at one batch size.

    Attributes:
        numbers: Predicted values, by what they count; see :class:`~engine.gpus.checked.Comparison`.
        launches: Operations that the host launches in a step; 0 where that does not matter.
        problem: Reason why nothing could be predicted; empty if it could.
    """

    numbers: dict[str, float]
    launches: float = 0.0
    problem: str = ""


def predict(check: SelfCheck, asked: Asked) -> PredictedNumbers:
    """Predict a workload on the device of a self-check, with what it has measured so far.

    Any error is a finding: it says that predictions do not run with what is installed here.
    """
    try:
        return _predict(check, Workload.parse(asked.fields), asked.batch_size)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        name = "" if isinstance(error, EngineError) else f"{type(error).__name__}: "
        return PredictedNumbers({}, problem=f"{name}{reason}")


def launch_seconds_of(check: SelfCheck, asked: Asked, step_seconds: float) -> float | None:
    """Host time of one launch, from a step that is all launches.

    Args:
        check: The self-check, with its device.
        asked: A workload whose kernels take the GPU less than its host takes to launch them.
        step_seconds: Measured time of its step.

    Returns:
        ``None`` where its launches are not known: the catalogue lacks the GPU, or tracing fails.
    """
    launches = predict(check, asked).launches
    return step_seconds / launches if launches else None


def _predict(check: SelfCheck, workload: Workload, batch_size: int) -> PredictedNumbers:
    device = check.device
    if device is None:
        raise ValueError("there is no device to predict for")
    if device.kind != "cuda":
        step = trace(workload, batch_size, None)
        live = predict_live_memory(device.total_bytes, step).peak_allocated_bytes
        return PredictedNumbers({"live_bytes": float(live or 0)})
    known = GPUS.get(check.gpu_name)
    gpu = None if known is None else on_checked(known, check)
    behaviour = behaviour_of(gpu) if gpu else cuda_behaviour(device.compute_capability)
    step = trace(workload, batch_size, behaviour)
    usable = device.total_bytes - (check.context_bytes or 0)
    facts = GpuFacts(device.name, device.total_bytes, usable)
    cudnn = CUDNN_BYTES if check.cudnn_bytes is None else check.cudnn_bytes
    memory = _memory(predict_memory(facts, step, cudnn_bytes=cudnn))
    if gpu is None:
        return PredictedNumbers(memory)
    launches, seconds = _time(workload, gpu, step)
    return PredictedNumbers(memory | {STEP: seconds}, launches)


def _memory(trial: Trial) -> dict[str, float]:
    found = {name: getattr(trial, name, None) for name in MEMORY}
    return {name: float(value) for name, value in found.items() if value is not None}


def _time(workload: Workload, gpu: Gpu, step: Trace) -> tuple[float, float]:
    """The launches of a step, and its seconds."""
    accumulated = workload.gradient_accumulation
    work = step_work(step.operations, gpu, workload.precision, accumulated)
    return work.launches, work.seconds()
