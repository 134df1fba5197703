"""One tool's search for the largest batch, timed, in the process that calls it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import replace

from engine.answer.search import find_largest
from engine.benchmarks.gpu.foresight import largest, predictor, usable_bytes
from engine.benchmarks.gpu.results import Search
from engine.benchmarks.limited_training import LimitedTraining, one_thread
from engine.benchmarks.searchers import CURRENT_BATCH_SIZE, SEARCHERS, Searcher
from engine.measurement.environment import device_kind
from engine.measurement.parent import local_device, measure
from engine.measurement.protocol import TrialOrder
from engine.result import Trial
from engine.workload import Workload

OURS = SEARCHERS[-1].name


def search(row: Search, workload: Workload) -> Search:
    """Let a tool search, and count what that takes.

    Args:
        row: Says which tool, and at what capacity; the rest is filled in.
        workload: What is searched.
    """
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
            from engine.benchmarks.gpu.cuda_session import cuda_sessions  # begins a CUDA context

            sessions = cuda_sessions(row.limit_bytes)
            training = LimitedTraining(workload, row.limit_bytes, sessions)
        else:
            stack.enter_context(one_thread())
        begin = time.perf_counter()
        answer = searcher.search(training)
        seconds = time.perf_counter() - begin
    return _found(row, answer, seconds, training.tried)


def _in_fresh_processes(row: Search, workload: Workload) -> Search:
    """Ours as an analysis of the local device does it, the prediction's time counted in."""
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
