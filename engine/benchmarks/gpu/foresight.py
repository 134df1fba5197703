"""What the engine predicts for a measured device: needs its facts and no GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from engine.answer.search import find_largest
from engine.benchmarks.gpu.calibrate import Timed
from engine.benchmarks.gpu.questions import Asked, Foreseen
from engine.benchmarks.gpu.results import Results
from engine.benchmarks.gpu.workloads import BY_NAME
from engine.gpus import GPUS, catalogue_name
from engine.measurement.device import limited_device
from engine.measurement.protocol import DeviceFacts
from engine.models.hub import resolve
from engine.prediction.analysis import traces
from engine.prediction.probe import predict_live_memory, predict_memory, timed
from engine.prediction.step_time import predict_step_seconds, step_work
from engine.result import Trial
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.tracer import TraceAt
from engine.workload import Workload


def foresee(asked: Asked) -> Foreseen:
    """Predict."""
    workload = resolve(Workload.parse(asked.fields))
    predict = predictor(workload, asked.facts)
    return Foreseen(
        largest=[largest(predict, asked.facts, limit) for limit in asked.limits],
        trials=[predict(limit, size) for limit, size in asked.sizes],
    )


def largest(
    predict: Callable[[int | None, int], Trial], facts: DeviceFacts, limit_bytes: int | None
) -> int:
    """The largest batch predicted to fit on the device as it is limited."""
    usable = usable_bytes(facts, limit_bytes)
    return find_largest(
        lambda size: predict(limit_bytes, size), limit_bytes=usable
    ).largest_batch_size


def usable_bytes(facts: DeviceFacts, limit_bytes: int | None) -> int:
    """What a limit leaves the tensors, in bytes."""
    return limited_device(facts, limit_bytes or facts.total_bytes).usable_bytes


def predictor(workload: Workload, facts: DeviceFacts) -> Callable[[int | None, int], Trial]:
    """Predicts the trial of a capacity and a batch size; a step time where the GPU is known."""
    trace_at = traces_on(workload, facts)
    gpu = GPUS.get(catalogue_name(facts.name) or "")

    @cache
    def predict(limit_bytes: int | None, batch_size: int) -> Trial:
        step = trace_at(batch_size)
        limited = limited_device(facts, limit_bytes or facts.total_bytes)
        if facts.kind != "cuda":
            return predict_live_memory(limited.usable_bytes, step)
        trial = predict_memory(limited, step)
        if gpu is None or not trial.fits:
            return trial
        accumulated = workload.gradient_accumulation
        seconds = predict_step_seconds(step.operations, gpu, workload.precision, accumulated)
        return timed(trial, seconds, batch_size * accumulated)

    return predict


def timed_steps(results: Results, say: Callable[[str], None]) -> list[Timed]:
    """Every measured step time with the work of its step, which is traced anew.

    Args:
        results: Of a GPU of the catalogue; of any other there is no peak to compare with.
        say: Is told what is being traced.
    """
    facts = results.device.facts
    gpu = GPUS.get(catalogue_name(facts.name) or "")
    rows = [row for row in results.rows if row.measured.fits and row.measured.step_seconds]
    found = []
    for name in dict.fromkeys(row.workload for row in rows if gpu is not None):
        say(f"Tracing {name}")
        workload = resolve(BY_NAME[name].workload)
        trace_at = traces_on(workload, facts)
        for row in rows:
            if gpu is None or row.workload != name or not row.measured.step_seconds:
                continue
            size = row.measured.batch_size
            work = step_work(
                trace_at(size).operations, gpu, workload.precision, workload.gradient_accumulation
            )
            found.append(Timed(name, size, work, row.measured.step_seconds))
    return found


def traces_on(workload: Workload, facts: DeviceFacts) -> TraceAt:
    """The workload's traces, as that device runs it."""
    on_cuda = facts.kind == "cuda"
    behaviour = cuda_behaviour(facts.compute_capability) if on_cuda else None
    return traces(workload, behaviour, lambda _: None)
