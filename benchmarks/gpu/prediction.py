"""Predictions for a measured device, from its facts alone: no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from benchmarks.gpu.calibration import Timed
from benchmarks.gpu.processes import PredictionRequest, Predictions
from benchmarks.gpu.results import Results
from benchmarks.gpu.workloads import BY_NAME
from engine.answer.search import find_largest
from engine.gpus import GPUS, catalogue_name
from engine.hub import resolve
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.measurement.device import limited_device
from engine.measurement.protocol import DeviceFacts
from engine.prediction.probe import predict_live_memory, predict_memory, timed
from engine.prediction.timing.step_time import step_work, time_range
from engine.traces.source import TraceSource
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import cuda_behaviour


def predict_all(request: PredictionRequest) -> Predictions:
    workload = resolve(Workload.parse(request.fields))
    predict = predictor(workload, request.facts)
    return Predictions(
        largest=[largest(predict, request.facts, limit) for limit in request.limits],
        trials=[predict(limit, size) for limit, size in request.sizes],
    )


def largest(
    predict: Callable[[int | None, int], Trial], facts: DeviceFacts, limit_bytes: int | None
) -> int:
    usable = usable_bytes(facts, limit_bytes)
    return find_largest(
        lambda size: predict(limit_bytes, size), limit_bytes=usable
    ).largest_batch_size


def usable_bytes(facts: DeviceFacts, limit_bytes: int | None) -> int:
    return limited_device(facts, limit_bytes or facts.total_bytes).usable_bytes


def predictor(workload: Workload, facts: DeviceFacts) -> Callable[[int | None, int], Trial]:
    """Predict a trial by memory limit and batch size; with a step time on catalogue GPUs."""
    traces = traces_on(workload, facts)
    gpu = GPUS.get(catalogue_name(facts.name) or "")

    @cache
    def predict(limit_bytes: int | None, batch_size: int) -> Trial:
        step = traces.at(batch_size)
        limited = limited_device(facts, limit_bytes or facts.total_bytes)
        if facts.kind != "cuda":
            return predict_live_memory(limited.usable_bytes, step)
        trial = predict_memory(limited, step)
        if gpu is None or not trial.fits:
            return trial
        accumulated = workload.gradient_accumulation
        time = step_work(step.operations, gpu, workload.precision, accumulated).timed()
        span = time_range(step.operations, gpu, time)
        return timed(trial, time, batch_size * accumulated, span)

    return predict


def timed_steps(results: Results, log: Callable[[str], None]) -> list[Timed]:
    """Every measured step time with the work of its step, which is traced for that.

    Args:
        results: Results of a catalogue GPU; the peak rates of any other are not known.
        log: Receives what is being traced.
    """
    facts = results.device.facts
    gpu = GPUS.get(catalogue_name(facts.name) or "")
    rows = [row for row in results.rows if row.measured.fits and row.measured.step_seconds]
    found = []
    for name in dict.fromkeys(row.workload for row in rows if gpu is not None):
        log(f"Tracing {name}")
        workload = resolve(BY_NAME[name].workload)
        traces = traces_on(workload, facts)
        for row in rows:
            if gpu is None or row.workload != name or not row.measured.step_seconds:
                continue
            size = row.measured.batch_size
            work = step_work(
                traces.at(size).operations, gpu, workload.precision, workload.gradient_accumulation
            )
            found.append(Timed(name, size, work, row.measured.step_seconds))
    return found


def traces_on(workload: Workload, facts: DeviceFacts) -> TraceSource:
    on_cuda = facts.kind == "cuda"
    behaviour = cuda_behaviour(facts.compute_capability) if on_cuda else None
    return trace_workload(workload, behaviour, lambda _: None)
