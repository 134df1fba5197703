"""Predictions for one script on one GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...answer.conclusion import Findings
from ...core.errors import DoesNotFit, EngineError, InvalidInput
from ...events import Emit
from ...gpus import Gpu
from ...interface.result import OptimizerStep, StepProfile
from ...interface.trial import Trial
from ...parallel.interconnect import nccl_bytes
from ...script.batch_sizes import TracesOnGpus
from ...script.identity import hash_of_traces
from ...script.request import ScriptRequest
from ...script.trace import CannotTrace
from ...script.trace_report import about_the_trace
from ...traces.source import TraceSource
from ...tracing.unsure import peak_interval
from ..prediction import Prediction
from ..probe import computed, predict_memory, with_peak_interval
from ..requested_gpu import gpu_facts
from ..timing.correction import UNCORRECTED, Correction
from ..timing.work import StepTime
from .global_batch import kept_batch
from .phases import ScriptPhases
from .step_time import micro_batches_of_script, profile_of_script, work_of_script

_SMALLER = "gradient checkpointing, LoRA, smaller samples or several GPUs"
"""Changes in a script's code that take memory from its step."""


class ScriptPrediction(Prediction):
    """Predictions for one script on one GPU; each batch size once.

    Args:
        request: The request for the script, for those batch sizes that it takes.
        gpu: The GPU.
        traces: The traces of the script there.
        later: The phases besides its step, which judge a trial too.
        correction: Correction by a training run of the script.
    """

    request: ScriptRequest

    def __init__(
        self,
        request: ScriptRequest,
        gpu: Gpu,
        traces: TraceSource,
        later: ScriptPhases,
        correction: Correction = UNCORRECTED,
    ) -> None:
        super().__init__(request, gpu, traces, correction)
        self.later = later

    @property
    def usable_bytes(self) -> int:
        shared_by = self.traces.at(self.request.known_batch_size).world_size
        return max(0, self.gpu.usable_bytes - nccl_bytes(shared_by))

    def samples_of_step(self, batch_size: int) -> float:
        trace = self.traces.at(batch_size)
        return batch_size * micro_batches_of_script(self.request, trace) / trace.divided_by

    def profile(self, batch_size: int) -> StepProfile:
        return profile_of_script(self.request, self.gpu, self.traces.at(batch_size))

    def refusal(self, smallest: Trial) -> DoesNotFit:
        return does_not_fit(self.request, smallest, self.gpu.display_name)

    def completed(self, found: Findings) -> Findings:
        request, gpu, traces, later = self.request, self.gpu, self.traces, self.later
        step = traces.at(found.recommended.batch_size)
        caveats = dict.fromkeys(  # the trace's own are among both
            [
                *about_the_trace(step, gpu),
                *later.caveats,
                *self.correction.host_caveats(),
                *found.caveats,
            ]
        )
        beyond, fails = found.outcome.next_batch_size, found.outcome.next_batch_size_fails
        return replace(
            found,
            caveats=later.without_what_was_followed(list(caveats)),
            program_hash=hash_of_traces(traces, request.known_batch_size),
            optimizer_step=optimizer_step(request, traces, found),
            move_lines=step.move_lines,
            kept_batch=kept_batch(request, gpu, traces, found),
            phases=later.phases(step, found.recommended.source),
            limiting_phase=later.limiting(traces.at(beyond)) if fails else None,
        )

    def _fit(self, batch_size: int, *, careful: bool) -> Trial:
        trace = self.traces.at(batch_size)
        usable = max(0, self.gpu.usable_bytes - nccl_bytes(trace.world_size))
        facts = replace(gpu_facts(self.gpu), usable_bytes=usable)
        trial = predict_memory(facts, trace, self.allocator, careful=careful)
        if trace.computed:
            trial = computed(trial)
        trial = with_peak_interval(trial, *peak_interval(trace))
        return self.later.judged(trial, self.gpu, trace)

    def _step_time(self, batch_size: int) -> StepTime:
        return work_of_script(self.request, self.gpu, self.traces.at(batch_size)).timed()


def prediction_on(
    request: ScriptRequest,
    gpu: Gpu,
    emit: Emit,
    traces: TracesOnGpus,
    later: Callable[[Gpu], ScriptPhases],
) -> ScriptPrediction | InvalidInput:
    """Predictions for a script on one GPU of several, or why it cannot be traced there.

    Args:
        request: As for :class:`ScriptPrediction`.
        gpu: The GPU.
        emit: Receives log lines.
        traces: The traces of the script on each.
        later: The phases besides its step on a GPU.
    """
    try:
        there = traces.on(gpu, emit)
    except EngineError as error:
        why = error.reason if isinstance(error, CannotTrace) else str(error)
        return InvalidInput({"gpu": why})
    return ScriptPrediction(request, gpu, there, later(gpu))


def optimizer_step(
    request: ScriptRequest, traces: TraceSource, found: Findings
) -> OptimizerStep | None:
    """The samples of one optimizer step, today and at the recommended batch."""
    if found.current is None:
        return None
    today, then = (traces.at(one.batch_size) for one in (found.current, found.recommended))
    return OptimizerStep(
        optimizers=list(today.optimizers),
        current_micro_batches=micro_batches_of_script(request, today),
        recommended_micro_batches=micro_batches_of_script(request, then),
        gpus=today.world_size // today.divided_by,
    )


def fits_on_none(request: ScriptRequest, nearest: object) -> DoesNotFit:
    """The error for a script that fits on no GPU, with the one where it nearly does."""
    return DoesNotFit(
        f"{request.script.name} fits on no catalogue GPU. The nearest is {nearest}. Try "
        f"{_SMALLER} in its code."
    )


def does_not_fit(request: ScriptRequest, smallest: Trial, device: str) -> DoesNotFit:
    """The error for a script whose smallest batch does not fit."""
    return DoesNotFit(
        f"{request.script.name} does not fit on {device}: batch {smallest.batch_size} ends with "
        f"{smallest.failure}. Use a GPU with more memory, or "
        f"{_SMALLER} in its code."
    )
