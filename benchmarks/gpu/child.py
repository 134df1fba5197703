"""A benchmark process that needs PyTorch: ``python -m benchmarks.gpu.child WHAT``.

``device`` measures what context, libraries and workspaces take before the first tensor,
``prediction`` predicts, and ``search`` times one tool's search. The order is a line of JSON on
standard input, the answer the last line of standard output. The process ends when its standard
input does.
"""

from __future__ import annotations

import copy
import gc
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import torch

from benchmarks.gpu.prediction import largest, predict_all, predictor, usable_bytes
from benchmarks.gpu.processes import PredictionRequest, Predictions
from benchmarks.gpu.results import Device, Search
from benchmarks.searchers import (
    CURRENT_BATCH_SIZE,
    SEARCHERS,
    LimitedTraining,
    Searcher,
    Session,
    one_thread,
    small_workload,
)
from engine.answer.search import find_largest
from engine.core.errors import EngineError, report_unexpected
from engine.core.process import end_with
from engine.interface.trial import Trial
from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.cuda import emulate_a_smaller_gpu
from engine.measurement.environment import device_kind, measured_on
from engine.measurement.parent import local_device, measure
from engine.measurement.protocol import TrialOrder
from engine.selfcheck.first_uses import facts_and_costs
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.traces.tracer import warm_up


def cuda_sessions(limit_bytes: int) -> Callable[[Workload, int, int], Session]:
    """Creates sessions on the GPU, in which the capacity is emulated for this whole process.

    The model is built once; each session moves a copy of it.
    """
    emulate_a_smaller_gpu(limit_bytes)
    built: dict[Workload, torch.nn.Module] = {}

    def make(workload: Workload, batch_size: int, _: int) -> CudaSession:
        if workload not in built:
            built[workload] = build_model(workload)
        return CudaSession(workload, built[workload], batch_size)

    return make


class CudaSession:
    """A fresh copy of a model with its optimizer, stepping at one batch size."""

    def __init__(self, workload: Workload, model: torch.nn.Module, batch_size: int) -> None:
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        self._training = prepare(workload, copy.deepcopy(model).to("cuda"))
        self._batch = make_batch(workload, batch_size)

    @property
    def peak_bytes(self) -> int:
        return torch.cuda.max_memory_allocated()

    def step(self) -> None:
        training_step(self._training, self._batch)
        torch.cuda.synchronize()


OURS = SEARCHERS[-1].name


def search(row: Search, workload: Workload) -> Search:
    """Run a tool's search; ``row`` sets tool and capacity, the rest is filled in."""
    searcher = next(one for one in SEARCHERS if one.name == row.tool)
    row = replace(row, version=searcher.version)
    if row.version is None:
        return row
    searcher.load()
    if searcher.name == OURS:
        return _in_fresh_processes(row, workload)
    return _in_this_process(row, workload, searcher)


def _in_this_process(row: Search, workload: Workload, searcher: Searcher) -> Search:
    with ExitStack() as stack:
        training = LimitedTraining(workload, row.limit_bytes)
        if device_kind() == "cuda":
            sessions = cuda_sessions(row.limit_bytes)
            training = LimitedTraining(workload, row.limit_bytes, sessions)
        else:
            stack.enter_context(one_thread())
        begin = time.perf_counter()
        answer = searcher.search(training)
        seconds = time.perf_counter() - begin
    return _found(row, answer, seconds, training.tried)


def _in_fresh_processes(row: Search, workload: Workload) -> Search:
    """MemoryMark's search as an analysis runs it; the time includes the prediction."""
    begin = time.perf_counter()
    device = local_device()
    guess = largest(predictor(workload, device), device, row.limit_bytes)
    tried: list[tuple[int, bool]] = []

    def probe(batch_size: int) -> Trial:
        trial = measure(TrialOrder(workload, batch_size, row.limit_bytes))
        tried.append((batch_size, trial.fits))
        return trial

    outcome = find_largest(
        probe,
        guess=guess,
        limit_bytes=usable_bytes(device, row.limit_bytes),
        known=[probe(CURRENT_BATCH_SIZE)],
    )
    return _found(row, outcome.largest_batch_size, time.perf_counter() - begin, tried)


def _found(row: Search, answer: int, seconds: float, tried: list[tuple[int, bool]]) -> Search:
    return replace(row, answer=answer, seconds=seconds, trials=len(tried), tried=tuple(tried))


def main() -> None:
    line = sys.stdin.readline()
    end_with(sys.stdin)
    try:
        answer = _WORK[sys.argv[1]](json.loads(line))
    except EngineError as error:
        sys.stderr.write(" ".join(str(error).split()) + "\n")
        sys.exit(1)
    except Exception as error:
        report_unexpected(error)
        sys.exit(1)
    sys.stdout.write("\n" + json.dumps(asdict(answer)) + "\n")


def _device(order: dict[str, Any]) -> Device:
    quick = bool(order["quick"])
    ran_on = TrialOrder(small_workload(), 1)
    if device_kind() != "cuda":
        return Device(cpu.facts(), measured_on(ran_on), quick=quick)
    facts, costs = facts_and_costs()
    return Device(facts, fixed_costs=costs, ran_on=measured_on(ran_on), quick=quick)


def _prediction(order: dict[str, Any]) -> Predictions:
    return predict_all(PredictionRequest.parse(order))


def _search(order: dict[str, Any]) -> Search:
    warm_up()
    workload = Workload.parse(order.pop("fields"))
    return search(Search(**order, version=None), workload)


_WORK: dict[str, Callable[[dict[str, Any]], Device | Predictions | Search]] = {
    "device": _device,
    "prediction": _prediction,
    "search": _search,
}

if __name__ == "__main__":
    main()
