"""The analysis of a person's own training code, measured here or predicted for another GPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from engine.answer.conclusion import Findings, answer
from engine.answer.recommendation import ENOUGH_SPEED, Bound
from engine.answer.search import find_largest
from engine.events import Event, Log
from engine.gpus import LOCAL
from engine.own.factory import refuse_while_loading
from engine.own.measured import does_not_fit, measure_own_code, telling
from engine.own.request import OwnCodeRequest
from engine.own.trace import trace_own_at_every_batch_size
from engine.prediction.analysis import catalogue_gpu, curve, price_per_hour
from engine.prediction.intervals import memory_range, step_time_range
from engine.prediction.probe import predict_memory
from engine.prediction.step_time import predict_step_seconds
from engine.prediction.timeline import largest_tensors, timeline
from engine.result import AnalysisResult, GpuFacts, Source, Trial
from engine.tracing.lowering import cuda_behaviour
from engine.workload import Precision

Emit = Callable[[Event], None]
Probe = Callable[[int], Trial]


def analyze_own_code(request: OwnCodeRequest, emit: Emit) -> AnalysisResult:
    """Answer a question about a person's own code.

    Args:
        request: The question.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: If the factory does not exist, or the memory limit is missing or too high.
        OwnCodeFailed: If the code raised an error while it was predicted.
        CannotTrace: If it cannot be predicted.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a measured trial ended for another reason than memory.
    """
    refuse_while_loading()
    return (measure_own_code if request.gpu == LOCAL else _predicted)(request, emit)


def _predicted(request: OwnCodeRequest, emit: Emit) -> AnalysisResult:
    """Predict from a trace, with the same figures as for a workload of ours."""
    gpu = catalogue_gpu(request)
    facts = GpuFacts(gpu.display_name, gpu.total_bytes, gpu.usable_bytes)
    emit(Log(f"Tracing {request.factory.name} on fake tensors; none of its steps are run"))
    behaviour = cuda_behaviour(gpu.compute_capability)
    trace_at = trace_own_at_every_batch_size(
        request.factory, behaviour, lambda message: emit(Log(message, "warning"))
    )

    def predict(batch_size: int) -> Trial:
        trace = trace_at(batch_size)
        trial = predict_memory(facts, trace)
        if not trial.fits:
            return trial
        seconds = predict_step_seconds(trace.operations, gpu, _precision())
        return replace(trial, step_seconds=seconds, samples_per_second=batch_size / seconds)

    probe = telling(predict, emit)
    current = probe(request.current_batch_size)
    outcome = find_largest(
        probe,
        batch_multiple=request.batch_multiple,
        limit_bytes=gpu.usable_bytes,
        known=[current],
    )
    if outcome.largest_batch_size == 0:
        raise does_not_fit(request, outcome.trials[-1], facts)
    sizes = range(request.batch_multiple, outcome.largest_batch_size + 1, request.batch_multiple)
    safe = bisect_right(sizes, gpu.total_bytes, key=lambda size: _high_bytes(predict(size)))
    best, bound = _recommend(sizes, safe, predict)
    found = Findings(
        gpu=facts,
        outcome=outcome,
        current=current,
        recommended=probe(best),
        curve=curve(predict, outcome, request),
        price_per_hour_usd=price_per_hour(request, gpu),
        source=Source.PREDICTED,
        bound=bound,
        safe_batch_size=sizes[safe - 1] if safe else 0,
        timeline=timeline(trace_at(best)),
        largest_tensors=largest_tensors(trace_at(best)),
        caveats=[
            "Nothing was run: the code was traced on fake tensors, and memory comes from a replay "
            "through a model of PyTorch's caching allocator. Kernels that it calls outside of "
            "PyTorch's operators are not seen.",
            f"Predicted memory may be off by {memory_range().in_words()}, step times by "
            f"{step_time_range().in_words()}; cuDNN's workspaces are not predicted.",
            "The GPU is taken to be free: another process on it, or a display, takes its share.",
        ],
    )
    return answer(found, request.factory.name, request.assumptions)


def _high_bytes(trial: Trial) -> int:
    """Memory at the high end of a prediction."""
    return trial.device_used_high_bytes or 0


def _recommend(sizes: Sequence[int], safe: int, predict: Probe) -> tuple[int, Bound]:
    """The smallest size within 5 % of the best speed; if that is not safe, of the best safe speed.

    Args:
        sizes: All that fit, growing; speed grows with them.
        safe: How many of them fit even at the high end of the prediction.
        predict: The trial of a size.
    """

    def speed(batch_size: int) -> float:
        return predict(batch_size).samples_per_second or 0.0

    choice = sizes[: max(safe, 1)]
    if speed(choice[-1]) >= ENOUGH_SPEED * speed(sizes[-1]):
        best, bound = speed(sizes[-1]), Bound.SPEED
    else:
        best, bound = speed(choice[-1]), Bound.MEMORY
    return choice[bisect_left(choice, ENOUGH_SPEED * best, key=speed)], bound


def _precision() -> Precision:
    """What fp32 matrix products may use, as the person's code has set it up."""
    return Precision.TF32 if torch.backends.cuda.matmul.allow_tf32 else Precision.FP32
