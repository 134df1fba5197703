"""The analysis of a person's own training code, measured here or predicted for another GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import torch

from engine.allocator.options import AllocatorOptions
from engine.answer.certificate import repeating
from engine.answer.conclusion import Findings, answer
from engine.errors import DoesNotFit
from engine.events import Event, Log
from engine.gpus import LOCAL, Gpu
from engine.own.factory import refuse_while_loading
from engine.own.measured import does_not_fit, measure_own_code
from engine.own.request import OwnCodeRequest
from engine.own.trace import trace_own_question
from engine.prediction.analysis import catalogue_gpu, facts_of, find_out
from engine.prediction.probe import predict_memory, timed
from engine.prediction.step_time import predict_step_seconds
from engine.result import AnalysisResult, GpuFacts, Trial
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace
from engine.tracing.tracer import TraceAt
from engine.workload import Precision

Emit = Callable[[Event], None]


def analyze_own_code(request: OwnCodeRequest, emit: Emit) -> AnalysisResult:
    """Answer a question about a person's own code.

    Args:
        request: The question.
        emit: Receives log lines and trials as they come.

    Raises:
        InvalidInput: If the factory does not exist, cannot accumulate and has to, or the memory
            limit is missing or too high.
        OwnCodeFailed: If the code raised an error while it was predicted.
        CannotTrace: If it cannot be predicted.
        DoesNotFit: If not even the smallest batch does.
        MeasurementFailed: If a measured trial ended for another reason than memory.
    """
    refuse_while_loading()
    if request.global_batch_size is not None:
        # Else it would be told only when the search comes to a batch that has to accumulate.
        replace(request.factory, gradient_accumulation=2).load()
    found = (measure_own_code if request.gpu == LOCAL else _predicted)(request, emit)
    settings = {"memory_limit_bytes": request.memory_limit_bytes, "allocator": request.allocator}
    changed = {name: value for name, value in settings.items() if value}
    trained = ["--factory", request.factory.name]
    commands = repeating(request, trained, changed, found.source, found.sides)
    return answer(request, found, request.factory.name, commands)


def predict_own_batch(request: OwnCodeRequest, emit: Emit) -> tuple[GpuFacts, Trial]:
    """Predict one batch size, the request's current one, on a GPU of the catalogue.

    Raises:
        InvalidInput: If the factory does not exist, or cannot accumulate and has to.
        OwnCodeFailed: If the code raised an error.
        CannotTrace: If it cannot be predicted.
    """
    refuse_while_loading()
    gpu = catalogue_gpu(request)
    trace_at = _traces(request, gpu, emit)
    trace_at(request.current_batch_size).check_it_runs()
    return facts_of(gpu), _prediction(request, gpu, trace_at, request.current_batch_size)


def _predicted(request: OwnCodeRequest, emit: Emit) -> Findings:
    """Predict from a trace, by the same search as for a model that the engine knows."""
    gpu = catalogue_gpu(request)
    trace_at = _traces(request, gpu, emit)

    @cache
    def predict(batch_size: int) -> Trial:
        return _prediction(request, gpu, trace_at, batch_size)

    def refusal(smallest: Trial) -> DoesNotFit:
        return does_not_fit(request, smallest, gpu.display_name)

    found = find_out(request, gpu, predict, trace_at, refusal, emit)
    step = trace_at(found.recommended.batch_size)
    return replace(found, caveats=[*_about_the_trace(step), *found.caveats])


def _traces(request: OwnCodeRequest, gpu: Gpu, emit: Emit) -> TraceAt:
    emit(Log(f"Tracing {request.factory.name} on fake tensors; none of its steps are run"))
    behaviour = cuda_behaviour(gpu.compute_capability)
    return trace_own_question(request, behaviour, lambda message: emit(Log(message, "warning")))


def _prediction(request: OwnCodeRequest, gpu: Gpu, trace_at: TraceAt, batch_size: int) -> Trial:
    """Memory and time of one batch size, with the same figures as for a model of ours."""
    trace = trace_at(batch_size)
    trial = predict_memory(facts_of(gpu), trace, AllocatorOptions.parse(request.allocator))
    if not trial.fits:  # a step that cannot run takes no time
        return trial
    accumulated = request.accumulation_at(batch_size)
    seconds = predict_step_seconds(trace.operations, gpu, _precision(), accumulated)
    return timed(trial, seconds, batch_size * accumulated)


def _precision() -> Precision:
    """What fp32 matrix products may use, as the person's code has set it up."""
    return Precision.TF32 if torch.backends.cuda.matmul.allow_tf32 else Precision.FP32


def _about_the_trace(trace: Trace) -> list[str]:
    """What a reader has to know about a trace of code that nothing is known of."""
    caveats = [
        "Nothing was run: the code was traced on fake tensors, and memory comes from a replay "
        "through a model of PyTorch's caching allocator. Kernels that it calls outside of "
        "PyTorch's operators are not seen.",
        "What memory is for is found out from outside: what the factory makes besides the modules' "
        "parameters and the optimizers' state counts as inputs.",
    ]
    if Category.PARAMETERS not in trace.categories:
        caveats.append(
            "No torch.nn.Module with parameters was made in the factory: parameters and their "
            "gradients are not told apart from inputs and activations."
        )
    if "optimizer" not in (phase for _, phase in trace.phases):
        caveats.append(
            "No torch.optim.Optimizer took a step: an optimizer's state, if there is any, is not "
            "told apart from inputs and activations."
        )
    return caveats
