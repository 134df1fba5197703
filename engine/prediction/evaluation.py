"""Memory of an evaluation between training steps, and the largest batch that it can have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..allocator.options import AllocatorOptions
from ..answer.search import find_largest
from ..core.sizes import gib, gib_of
from ..gpus import Gpu
from ..interface.request import MAX_BATCH_SIZE, AnalysisRequest
from ..interface.result import PhaseName
from ..interface.trial import Trial
from ..interface.workload import Workload
from ..traces.batch_rule import LOW, on_a_line
from ..traces.shallow_models import ShallowModels
from ..traces.tracer import WholeModel
from ..tracing.lowering import CudaBehaviour, behaviour_of
from ..tracing.trace import Trace, is_generating
from .memory.phases import traced_peaks
from .probe import predict_trial


def needs_most(trace: Trace) -> bool:
    """Whether the evaluation needs more memory than the training steps of a trace do."""
    evaluating, training = _peaks(trace)
    return evaluating > training


def _peaks(trace: Trace) -> tuple[int, int]:
    """The peaks of evaluation and of training, in bytes; 0 where there is none."""
    peaks = traced_peaks(trace)
    return peaks.get(PhaseName.EVALUATION, 0), peaks.get(PhaseName.STEP, 0)


def evaluation_caveats(request: AnalysisRequest, gpu: Gpu, step: Trace) -> list[str]:
    """Caveat on which of training and evaluation needs more, and the largest evaluation batch.

    Args:
        request: Its workload may have an evaluation.
        gpu: The GPU.
        step: The trace of a batch that fits.
    """
    if request.workload.eval_batch_size is None:
        return []
    evaluating, training = _peaks(step)
    more = "Evaluation" if evaluating > training else "Training"
    largest = largest_evaluation_batch(request, gpu)
    generates = ""
    if tokens := request.workload.eval_new_tokens:
        peaks = step.peak_by_phase()
        most = max((peak for name, peak in peaks.items() if is_generating(name)), default=0)
        generates = f" (generating {tokens:,} tokens at {gib(most)})"
    return [
        f"{more} needs more memory: evaluation at batch {request.workload.eval_batch_size:,} peaks "
        f"at {gib(evaluating)}{generates}, training at batch "
        f"{step.batch_size:,} at {gib(training)}. Evaluation batches up to {largest:,} fit."
    ]


def why_evaluation_fails(request: AnalysisRequest, gpu: Gpu, smallest: Trial) -> str:
    """The sentences for an evaluation that does not fit: what it needs, and what helps.

    Args:
        request: Its workload has an evaluation.
        gpu: The GPU.
        smallest: The trial of the smallest batch.
    """
    workload = request.workload
    needed = smallest.device_used_bytes or 0
    kept = smallest.breakdown.get("outputs", 0)
    said = (
        f"Evaluation does not fit on {gpu.display_name}: at batch {workload.eval_batch_size:,} it "
        f"needs {gib_of(needed, gpu.total_bytes)}"
    )
    if kept:
        said += (
            f", {gib(kept)} of them for logits: the Trainer keeps those of all "
            f"{workload.eval_samples:,} samples on the GPU, and copies them with each batch"
        )
    if workload.eval_samples is None:
        largest = largest_evaluation_batch(request, gpu)
        return f"{said}. {_up_to(largest)}"
    changed = replace(workload, eval_accumulation_steps=1)
    largest = largest_evaluation_batch(replace(request, workload=changed), gpu)
    return (
        f"{said}. Keep less of each with preprocess_logits_for_metrics (such as argmax), or set "
        f"eval_accumulation_steps to 1: then {_up_to(largest).lower()}"
    )


def _up_to(largest: int) -> str:
    if largest == 0:
        return "No evaluation batch fits."
    return f"Evaluation batches up to {largest:,} fit."


def largest_evaluation_batch(request: AnalysisRequest, gpu: Gpu) -> int:
    """The largest evaluation batch that fits beside the training state; 0 if none does.

    Training itself has a small batch here: its activations are gone when evaluation begins.
    """
    behaviour = behaviour_of(gpu)
    traces = on_a_line(EvaluationBatches(request.workload, behaviour))
    allocator = AllocatorOptions.parse(request.allocator)

    def probe(batch_size: int) -> Trial:
        return predict_trial(request.workload, gpu, traces.at(batch_size), allocator)

    return find_largest(
        probe,
        limit_bytes=gpu.usable_bytes,
        largest=min(request.workload.eval_samples or MAX_BATCH_SIZE, MAX_BATCH_SIZE),
    ).largest_batch_size


@dataclass(eq=False)
class EvaluationBatches:
    """Traces by the batch of the evaluation, where training has a small one.

    Attributes:
        workload: The workload.
        behaviour: Behaviour of the GPU.
    """

    workload: Workload
    behaviour: CudaBehaviour

    def at(self, batch_size: int) -> Trace:
        evaluated = replace(self.workload, eval_batch_size=batch_size)
        each = ShallowModels(WholeModel(evaluated, self.behaviour))
        return replace(each.at(LOW), batch_size=batch_size)
