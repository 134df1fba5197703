"""Predicts trials of an H200 with the packages of this Python, for :mod:`benchmarks.h200`.

It reads trials as JSON and writes each with its predictions.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from itertools import chain, groupby
from typing import Any

from benchmarks.h100 import MEMORY
from benchmarks.h200 import HOSTS, LAUNCH_SECONDS, Compared, Step
from engine.gpus import GPUS, Gpu
from engine.gpus.known import OF_LARGER_MODELS
from engine.hub import resolve
from engine.interface.workload import Workload
from engine.prediction.limits import gain
from engine.prediction.measured_host import launch_seconds
from engine.prediction.probe import predict_trial
from engine.prediction.timing.step_time import step_work, time_range
from engine.prediction.timing.work import StepTime, StepWork
from engine.traces.workloads import trace_workload
from engine.tracing.lowering import behaviour_of
from engine.tracing.trace import Trace

H200 = GPUS["h200"]


def main() -> None:
    orders = groupby(json.load(sys.stdin), lambda order: order["fields"])
    groups = [list(group) for _, group in orders]
    with ProcessPoolExecutor() as pool:
        json.dump(list(chain.from_iterable(pool.map(predicted, groups))), sys.stdout)


def predicted(orders: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trials of one workload, smallest batch first, with their predictions."""
    workload = resolve(Workload.parse(orders[0]["fields"]))
    traces = trace_workload(workload, behaviour_of(H200), lambda _: None)
    told = launch_seconds(
        _work(workload, H200, traces.at(orders[0]["batch_size"])), orders[0]["seconds"]
    )
    low, middle, high = (times * LAUNCH_SECONDS for times in OF_LARGER_MODELS)
    checked = replace(H200, launch_seconds=middle, launch_range=(low, high))
    gpus = (H200, checked, None if told is None else replace(H200, launch_seconds=told))
    hosts = dict(zip(HOSTS, gpus, strict=True))
    found = [
        asdict(_compared(order, first=orders[0], workload=workload, traces=traces, hosts=hosts))
        for order in orders
    ]
    sys.stderr.write(f"{orders[0]['name']}, {len(orders)} trials\n")
    return found


def _compared(
    order: Mapping[str, Any],
    first: Mapping[str, Any],
    workload: Workload,
    traces: Any,
    hosts: Mapping[str, Gpu | None],
) -> Compared:
    trace: Trace = traces.at(order["batch_size"])
    trial = predict_trial(workload, H200, trace, careful=True)
    steps, speedups = {}, {}
    for host, gpu in hosts.items():
        if gpu is None or (host == HOSTS[-1] and order is first):
            continue
        step = _work(workload, gpu, trace).timed()
        span = time_range(trace.operations, gpu, step)
        steps[host] = Step(step.seconds, step.seconds * span.low, step.seconds * span.high)
        if order is not first:
            speedups[host] = _speedup(
                workload, gpu, traces, first["batch_size"], order["batch_size"]
            )
    return Compared(
        name=order["name"],
        batch_size=order["batch_size"],
        measured=order["measured"],
        predicted={counted: getattr(trial, counted) for counted in MEMORY},
        low=trial.device_used_low_bytes or 0,
        high=trial.device_used_high_bytes or 0,
        seconds=order["seconds"],
        steps=steps,
        speedups=speedups,
        launch_limited=_work(workload, H200, trace).timed().launch_limited,
    )


def _speedup(workload: Workload, gpu: Gpu, traces: Any, current: int, other: int) -> Step:
    """As an analysis predicts it."""

    def step_time(batch_size: int) -> StepTime:
        return _work(workload, gpu, traces.at(batch_size)).timed()

    found = gain(current, other, lambda size: size / step_time(size).seconds, step_time)
    return Step(found.ratio, found.low, found.high)


def _work(workload: Workload, gpu: Gpu, trace: Trace) -> StepWork:
    return step_work(trace.operations, gpu, workload.precision, workload.gradient_accumulation)


if __name__ == "__main__":
    main()
