"""The time of a script's step on a GPU, whose host a recorded training run may show."""

from __future__ import annotations

from ...core.choices import Precision
from ...gpus import Gpu
from ...interface.result import StepProfile
from ...parallel.interconnect import link_bytes_per_second
from ...records.comparison import RecordedFile
from ...script.factory import Factory
from ...script.request import ScriptRequest
from ...traces.source import TraceSource
from ...tracing.trace import Trace
from ..measured_host import on_told_host
from ..step_profile import step_profile
from ..timing.correction import UNCORRECTED, Correction
from ..timing.recorded_steps import Sifted, at_batch, of_script
from ..timing.step_time import step_work
from ..timing.work import StepWork


def work_of_script(request: ScriptRequest, gpu: Gpu, trace: Trace) -> StepWork:
    """The work of a script's step; of a script, all micro-batches were traced."""
    link = link_bytes_per_second(gpu, trace.world_size)
    return step_work(trace.operations, gpu, *_traced_as(request, trace), link)


def profile_of_script(request: ScriptRequest, gpu: Gpu, trace: Trace) -> StepProfile:
    """The parts of a script's step."""
    return step_profile(trace, gpu, *_traced_as(request, trace))


def _traced_as(request: ScriptRequest, trace: Trace) -> tuple[Precision, int]:
    """The precision of products in fp32, and the micro-batches that were not all traced."""
    of_factory = isinstance(request.script, Factory)
    accumulated = request.accumulation_at(trace.batch_size) if of_factory else 1
    return precision_of(trace), accumulated


def precision_of(trace: Trace) -> Precision:
    """The precision of a script's products in fp32."""
    return Precision.TF32 if trace.tf32 else Precision.FP32


def micro_batches_of_script(request: ScriptRequest, trace: Trace) -> int:
    """Number of micro-batches of a step: as requested, or as a script was seen to accumulate."""
    accumulated = request.accumulation_at(trace.batch_size)
    if isinstance(request.script, Factory):
        return accumulated
    return max(accumulated, trace.micro_batches)


def on_recorded_host(
    request: ScriptRequest, gpu: Gpu, traces: TraceSource, file: RecordedFile | None
) -> tuple[Gpu, Correction]:
    """The GPU in the machine where the script ran, and the correction for it.

    Args:
        request: The request about the script.
        gpu: The GPU to predict for; it is returned where no step shows its host.
        traces: The traces of the script on that GPU.
        file: Training runs of the script, if a file was given.
    """
    if file is None:
        return gpu, UNCORRECTED
    today = traces.at(request.known_batch_size)
    taken = today.batch_multiple
    sifted = of_script(file, gpu.name, today.world_size)
    sizes = {step.batch_size for step in sifted.counted if step.batch_size % taken}
    refused = [at_batch(f"the script takes multiples of {taken:,}", size) for size in sizes]
    counted = [step for step in sifted.counted if step.batch_size not in sizes]
    correction = UNCORRECTED.with_file(file.name, Sifted(counted, [*sifted.refused, *refused]))
    return on_told_host(
        gpu,
        correction,
        lambda batch_size: micro_batches_of_script(request, traces.at(batch_size)),
        lambda batch_size: work_of_script(request, gpu, traces.at(batch_size)),
    )
