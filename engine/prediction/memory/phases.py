"""Peaks of memory in each phase of a training run: loading, step, evaluation, generation, saving.

Steps, evaluation and generation are traced. What loading and saving take of a GPU follows from
the tensors that the trace keeps: weights that GPUs divide are whole on each of them for a moment, a
unit of FSDP when it is sharded (``fully_shard`` of PyTorch 2.13), a tensor or a module at a time
when a checkpoint is gathered (``full_tensor``; ``GatheredParameters`` of DeepSpeed 0.19). All else
moves weights to the GPU as they stay there, and copies them to the host. A weight that is
quantized while it is loaded is whole on the GPU for a moment, as it is in each step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...allocator.caching import ALLOCATE, FREE
from ...core.choices import Parallelism, Rollout
from ...core.sizes import gib
from ...gpus import Gpu
from ...interface.result import Phase, PhaseName
from ...interface.trial import Source, Trial
from ...interface.workload import Workload
from ...step.evaluating import rows_before_last
from ...step.rollouts import METRICS, SCORING
from ...tracing.trace import Category, Trace, is_generating
from .colocation import bytes_in_generation, vllm_bytes_in_update
from .host_memory import (
    HostNeed,
    State,
    of_evaluation,
    processes_on_a_node,
    while_loading,
    while_saving,
)
from .weights import weights_of

EVALUATING = ("evaluation", "outputs")
_BETWEEN = ("idle", "inputs")
"""Phases of a trace that belong to whatever comes before or after them."""
_BLOCK = re.compile(r"(.*?\.\d+)\.")
"""The name of a repeated block, in that of a module within it."""
_ROOT = ""
"""The unit of all that is in no block."""


def traced_peaks(step: Trace) -> dict[PhaseName, int]:
    """The most bytes of tensors on the GPU in each phase that was traced."""
    found: dict[PhaseName, int] = {}
    for name, peak in step.peak_by_phase().items():
        if name not in _BETWEEN:
            phase = _phase_of(name, step)
            found[phase] = max(found.get(phase, 0), peak)
    return found


def _phase_of(name: str, step: Trace) -> PhaseName:
    if name in EVALUATING:
        return PhaseName.EVALUATION
    if is_generating(name):
        evaluates = any(other in EVALUATING for _, other in step.phases)
        return PhaseName.EVALUATION if evaluates else PhaseName.GENERATION
    if name in (SCORING, METRICS):
        return PhaseName.GENERATION
    return PhaseName.STEP


def phases_of(
    workload: Workload, gpu: Gpu, step: Trace, source: Source = Source.PREDICTED
) -> list[Phase]:
    """The phases of a training run, in the order in which they come.

    Args:
        workload: The workload.
        gpu: The GPU.
        step: The trace of its batch.
        source: That of the step's memory.
    """
    weights, running = weights_of(workload), _running_peaks(workload, gpu, step)
    shared = _whole_bytes_at_once(workload, step)
    in_transit = max(weights.largest_quantized, shared.get(PhaseName.LOADING, 0))
    held = step.held_between_steps()
    state = State(
        whole=held[Category.OPTIMIZER_STATE] * workload.shard_count,
        largest=_largest_state(step),
    )
    versions = workload.versions_here
    needs = {
        PhaseName.LOADING: while_loading(workload, weights),
        PhaseName.STEP: _of_step(workload, step),
        PhaseName.EVALUATION: of_evaluation(workload, *_kept_by_evaluation(workload, step)),
        PhaseName.GENERATION: _of_generation(workload),
        PhaseName.SAVING: while_saving(workload, weights, state, versions["transformers"]),
    }
    peaks = {
        PhaseName.LOADING: _loaded_bytes(step) + in_transit,
        **running,
        PhaseName.SAVING: sum(held.values()) + shared.get(PhaseName.SAVING, 0),
    }
    sources = dict.fromkeys((PhaseName.LOADING, PhaseName.SAVING), Source.COMPUTED)
    return [
        Phase(
            name=name,
            peak_device_bytes=peaks[name],
            peak_host_bytes=need.bytes,
            host_processes=need.processes,
            source=sources.get(name, source),
            how=need.how,
        )
        for name, need in needs.items()
        if name in peaks
    ]


def largest_phase(workload: Workload, gpu: Gpu, step: Trace) -> PhaseName:
    """The phase that needs the most of the GPU; the step, where others need no more."""
    peaks = _running_peaks(workload, gpu, step) | _gathering_peaks(workload, step)
    return max(peaks, key=lambda name: (peaks[name], name is PhaseName.STEP))


def judged_by_all_phases(trial: Trial, workload: Workload, gpu: Gpu, step: Trace) -> Trial:
    """A trial of a step, judged by loading and saving too: they may need more of the GPU.

    That is only so where GPUs divide the weights and gather them for that.

    Args:
        trial: Trial of the step.
        workload: The workload.
        gpu: The GPU.
        step: The trace of the batch.
    """
    peaks = _gathering_peaks(workload, step)
    if not peaks:
        return trial
    name = max(peaks, key=lambda one: peaks[one])
    more = peaks[name] - (trial.peak_allocated_bytes or 0)
    said = f"{name}, which has weights whole for a moment, takes"
    judged = judged_by(trial, more, said, gpu)
    return judged if judged is trial else replace(judged, source=Source.COMPUTED)


def judged_by(trial: Trial, more: int, said: str, gpu: Gpu) -> Trial:
    """A trial of a step, judged by a phase that may need more of the GPU.

    Args:
        trial: Trial of the step.
        more: Bytes that the phase needs beyond the step; below 1 it changes nothing.
        said: The phase and its verb, for the reason why a batch does not fit.
        gpu: The GPU.
    """
    used = trial.device_used_bytes
    if used is None or more <= 0:
        return trial
    failure = trial.failure
    if used + more > gpu.total_bytes:
        failure = failure or (
            f"out of memory: {said} {gib(used + more)}, and {gpu.display_name} has "
            f"{gib(gpu.total_bytes)}"
        )
    return replace(
        trial,
        fits=not failure,
        failure=failure,
        device_used_bytes=used + more,
        device_used_low_bytes=(trial.device_used_low_bytes or used) + more,
        device_used_high_bytes=(trial.device_used_high_bytes or used) + more,
    )


def with_measured_step(phases: Sequence[Phase], trial: Trial) -> list[Phase]:
    """Predicted phases with the measured peak in place of the step's.

    Args:
        phases: Phases of a training run, predicted.
        trial: Measured trial of its batch.
    """
    evaluates = any(phase.name is PhaseName.EVALUATION for phase in phases)
    return [
        _measured(phase, trial, evaluates=evaluates) if phase.name is PhaseName.STEP else phase
        for phase in phases
    ]


def _measured(step: Phase, trial: Trial, *, evaluates: bool) -> Phase:
    if trial.peak_allocated_bytes is None:
        return step
    other = ", and its evaluation, where trials have one" if evaluates else ""
    return replace(
        step,
        peak_device_bytes=trial.peak_allocated_bytes,
        source=Source.MEASURED,
        how=f"Measured on the GPU{other}; the host's share is predicted. {step.how}",
    )


def _running_peaks(workload: Workload, gpu: Gpu, step: Trace) -> dict[PhaseName, int]:
    """Peaks of what was traced, with vLLM beside it where that generates."""
    peaks = traced_peaks(step)
    if workload.rollout is Rollout.VLLM:
        peaks[PhaseName.STEP] += vllm_bytes_in_update(workload, gpu.total_bytes)
        peaks[PhaseName.GENERATION] = bytes_in_generation(workload, gpu, step)
    return peaks


def _of_generation(workload: Workload) -> HostNeed:
    said = "Completions are generated on the GPU, and scored there."
    if workload.rollout is Rollout.VLLM:
        said = "vLLM generates beside the training; what it takes of the host is not known."
    return HostNeed(0, processes_on_a_node(workload), said)


def _of_step(workload: Workload, step: Trace) -> HostNeed:
    offloads = "What is offloaded is held in pinned memory."
    said = offloads if step.host_bytes else "Nothing of a step stays on the host."
    return HostNeed(step.host_bytes, processes_on_a_node(workload), said)


def _loaded(step: Trace) -> Iterator[int]:
    """The tensors of a model before its first step."""
    begins = next((at for at, name in step.phases if name not in ("", "idle")), 0)
    for kind, tensor in step.events[:begins]:
        if kind == ALLOCATE and step.categories[tensor] is Category.PARAMETERS:
            yield tensor


def _loaded_bytes(step: Trace) -> int:
    return sum(step.sizes[tensor] for tensor in _loaded(step))


def _whole_bytes_at_once(workload: Workload, step: Trace) -> dict[PhaseName, int]:
    """Bytes that GPUs which divide weights have whole at a time, while loading and saving."""
    if workload.shard_count == 1:
        return {}
    modules: dict[str, int] = {}
    units: dict[str, int] = {}
    largest = 0
    for tensor in _loaded(step):
        name, size = step.modules[tensor], step.sizes[tensor] * workload.shard_count
        block = _BLOCK.match(f"{name}.")
        unit = block.group(1) if block else _ROOT
        modules[name] = modules.get(name, 0) + size
        units[unit] = units.get(unit, 0) + size
        largest = max(largest, size)
    module = max(modules.values(), default=0)
    if workload.parallelism is Parallelism.ZERO_3:
        return {PhaseName.LOADING: module, PhaseName.SAVING: module}
    return {PhaseName.LOADING: max(units.values(), default=0), PhaseName.SAVING: largest}


def _gathering_peaks(workload: Workload, step: Trace) -> dict[PhaseName, int]:
    """Peaks of loading and saving, where GPUs divide the weights and may need more for these."""
    whole = _whole_bytes_at_once(workload, step)
    if not whole:
        return {}
    held = sum(step.held_between_steps().values())
    return {
        PhaseName.LOADING: _loaded_bytes(step) + whole[PhaseName.LOADING],
        PhaseName.SAVING: held + whole[PhaseName.SAVING],
    }


def _largest_state(step: Trace) -> int:
    """Bytes of the largest tensor of the optimizer's state."""
    sizes: Sequence[int] = [
        size
        for size, category in zip(step.sizes, step.categories, strict=True)
        if category is Category.OPTIMIZER_STATE
    ]
    return max(sizes, default=0)


def _kept_by_evaluation(workload: Workload, step: Trace) -> tuple[int, int]:
    """Bytes of logits and labels on the GPU when they move to the host, and of how many samples."""
    if workload.eval_batch_size is None or not workload.eval_samples:
        return 0, 0
    size = min(workload.eval_batch_size, workload.eval_samples)
    rows = rows_before_last(size, workload.eval_samples, workload.eval_accumulation_steps)
    names, live, kept = dict(step.phases), 0, 0
    phase = ""
    for index, (kind, tensor) in enumerate(step.events):
        phase = names.get(index, phase)
        if step.categories[tensor] is Category.OUTPUTS:
            live += -step.sizes[tensor] if kind == FREE else step.sizes[tensor]
        kept = live if phase in EVALUATING else kept
    return kept, rows + size if kept else 0
