"""Checks that a result agrees with its request, and that its trials are consistent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from analyses.bodies import MAX_NAME_LENGTH
from engine.answer.ladder import Rung
from engine.core.choices import Goal
from engine.core.parsing import shown
from engine.gpus import GPUS, LOCAL
from engine.interface.program import MOVED, AnyRequest, ProgramRequest
from engine.interface.request import MAX_BATCH_SIZE
from engine.interface.result import (
    AnalysisResult,
    GlobalBatch,
    GpuOffer,
    KeptBatch,
    OptimizerStep,
    Savings,
)
from engine.interface.trial import GpuFacts, Source, Trial
from engine.interface.workload import Workload

MAX_TRIALS = 500

_SETTLED_LATER = {"config", "gradient_accumulation", "task", "label_count"}
"""The engine fills these in once it has a model's config, or a global batch to keep."""

_MAX_OPTIMIZERS = 10
_MAX_MOVES = 20
_MAX_COUNT = 2**40
_MAX_BYTES = 2**60
_MAX_SECONDS = 86_400
_COUNTS = f"its counts are from 1 to {_MAX_COUNT:,}"

_LIMITED = " limited to "


def of_the_goal(request: AnyRequest, goal: Goal) -> str:
    """The error in the goal of a result; empty if there is none."""
    return "" if request.goal is goal else f"it is not {request.goal}, as in the request"


def of_the_workload(request: AnyRequest, workload: Workload | None) -> str:
    """The error in the workload of a result; empty if there is none."""
    if isinstance(request, ProgramRequest):
        return "" if workload is None else "a script has none"
    if workload is None:
        return "it is of a script, so send its name as model, and its hash as program.hash"
    answered = asdict(workload)
    different = [
        name
        for name, value in asdict(request.workload).items()
        if name not in _SETTLED_LATER and value is not None and value != answered[name]
    ]
    return f"it differs from the request: {', '.join(different)}" if different else ""


def of_the_program(request: AnyRequest, result: AnalysisResult) -> str:
    """The error in the hash of a result; empty if there is none."""
    return (
        "" if result.program_hash == request.subject.program_hash else "it differs from the request"
    )


def of_an_offer(offer: GpuOffer) -> str:
    """The error in one of the compared GPUs of a result; empty if there is none."""
    speeds = (
        offer.samples_per_second_low,
        offer.samples_per_second,
        offer.samples_per_second_high,
    )
    if offer.fits and not (offer.recommended_batch_size and all(speeds) and rises(*speeds)):
        return f"{shown(offer.gpu)} fits, so it has a batch, and a speed within its interval"
    return ""


def of_a_ladder(rungs: Sequence[Rung]) -> str:
    """The error in the rungs of a script's ladder together; empty if there is none."""
    if rungs and rungs[0].fields:
        return "the first one is without a move"
    names = [tuple(rung.moves) for rung in rungs]
    return "two rungs have the same moves" if len(set(names)) < len(names) else ""


def of_a_rung(rung: Rung) -> str:
    """The error in one rung of a script's ladder; empty if there is none."""
    if len(rung.moves) > _MAX_MOVES or not all(0 < len(m) <= MAX_NAME_LENGTH for m in rung.moves):
        return f"it has at most {_MAX_MOVES} moves, each with a name"
    if rung.gpu or "gpu" in rung.fields:
        is_one = rung.gpu in GPUS and rung.fields == {"gpu": rung.gpu} and rung.result is None
        return "" if is_one else "it changes the GPU to another catalogue GPU, and nothing else"
    if not all(value in MOVED.get(name, ()) for name, value in rung.fields.items()):
        return f"its fields are {', '.join(MOVED)}, with what a move may change them to"
    result = rung.result
    if result is None:
        return "it fits, so it has a result" if rung.fits else ""
    if not rung.fits or rung.batch_size != result.recommended_batch_size:
        return "it has a result, so it fits, at the batch that the result recommends"
    if rung.keeps_global_batch != (rung.global_batch_size == rung.global_batch_before):
        return "its two global batches say whether it keeps the global batch"
    trial = next((t for t in result.trials if t.batch_size == rung.batch_size), None)
    speeds = (result.speedup, result.speedup_low, result.speedup_high)
    same = (rung.speedup, rung.speedup_low, rung.speedup_high) == speeds
    if not same or trial is None or trial.samples_per_second != rung.samples_per_second:
        return "its speeds are those of its result"
    return ""


def of_the_global_batch(kept: GlobalBatch | None) -> str:
    """The error in the global batch of a result; empty if there is none."""
    if kept is None:
        return ""
    counts = (kept.size, kept.gradient_accumulation, kept.kept_size)
    return "" if all(map(_is_count, counts)) else _COUNTS


def of_the_savings(savings: Savings | None) -> str:
    """The error in the savings of a result; empty if there is none."""
    if savings is None or savings.energy is None:
        return ""
    energy = savings.energy
    saved = (energy.kwh_per_year_low, energy.kwh_per_year, energy.kwh_per_year_high)
    return "" if rises(*saved) else "the energy saved per year lies within its interval"


def of_the_optimizer_step(request: AnyRequest, step: OptimizerStep | None) -> str:
    """The error in the optimizer step of a result; empty if there is none."""
    if step is None:
        return ""
    if not isinstance(request, ProgramRequest):
        return "only a script has it"
    if len(step.optimizers) > _MAX_OPTIMIZERS or not all(map(_is_name, step.optimizers)):
        return f"send the names of at most {_MAX_OPTIMIZERS} classes"
    counts = (step.current_micro_batches, step.recommended_micro_batches, step.gpus)
    return "" if all(map(_is_count, counts)) else _COUNTS


def of_the_kept_batch(result: AnalysisResult, kept: KeptBatch | None) -> str:
    """The error in the other split of a script's global batch; empty if there is none."""
    if kept is None:
        return ""
    step, today = result.optimizer_step, result.current_batch_size
    if step is None or today is None:
        return "it needs an optimizer_step and a current batch"
    if kept.batch_size * kept.micro_batches != today * step.current_micro_batches:
        return "its micro-batches do not add up to today's global batch"
    if not today < kept.batch_size <= result.largest_batch_size:
        return "its batch is larger than today's, and fits"
    ends = (kept.speedup_low, kept.speedup, kept.speedup_high)
    return "" if all(ends) and rises(*ends) else "its speedup lies within its interval"


def of_the_profile(result: AnalysisResult) -> str:
    """The error in the parts of a step of a result; empty if there is none."""
    profile = result.profile
    if profile is None:
        return ""
    batch_size = result.current_batch_size or result.recommended_batch_size
    if profile.batch_size != batch_size:
        return f"it is that of batch {batch_size:,}"
    sizes = [size for one in profile.tensors for size in (one.count, one.size_bytes)]
    counts = [one.count for one in profile.operations]
    if not all(0 <= number <= _MAX_BYTES for number in (*sizes, *counts)):
        return f"its counts and bytes are from 0 to {_MAX_BYTES:,}"
    if not all(0 <= one.seconds <= _MAX_SECONDS for one in profile.operations):
        return f"its times are from 0 to {_MAX_SECONDS:,} s"
    return ""


def _is_count(number: int) -> bool:
    return 0 < number <= _MAX_COUNT


def _is_name(text: str) -> bool:
    return len(text) <= MAX_NAME_LENGTH and text.isidentifier()


def kind_of(gpu: GpuFacts) -> str:
    """The kind of a GPU, without its limit."""
    return gpu.name.partition(_LIMITED)[0]


def of_the_gpu(request: AnyRequest, gpu: GpuFacts) -> str:
    """The error in the GPU of a result; empty if there is none."""
    if gpu.usable_bytes > gpu.total_bytes:
        return "more of its memory is usable than it has"
    if not (0 < len(gpu.name) <= 200 and gpu.name.isprintable()):
        return "enter its name, of at most 200 characters"
    if request.gpu != LOCAL and kind_of(gpu) != (GPUS[request.gpu].display_name):
        return f"it is not {GPUS[request.gpu].display_name}, as in the request"
    limit = request.memory_limit_bytes
    if limit is not None and gpu.total_bytes > limit:
        return "it has more memory than the limit in the request"
    return ""


def of_a_trial(trial: Trial) -> Iterator[str]:
    """Yield the inconsistencies of a trial."""
    if not 0 < trial.batch_size <= 2 * MAX_BATCH_SIZE:  # the one beyond the limit is a multiple
        yield f"enter a batch size from 1 to {MAX_BATCH_SIZE:,}"
    if trial.source is Source.ASSUMED:
        yield "a trial is measured, predicted or computed"
    if trial.fits and trial.failure:
        yield "it fits but has a failure"
    if not rises(trial.peak_allocated_bytes, trial.peak_reserved_bytes, trial.device_used_bytes):
        yield "device used is at least peak reserved, and that at least peak allocated"
    if not rises(
        trial.device_used_low_bytes, trial.device_used_bytes, trial.device_used_high_bytes
    ):
        yield "device used lies within its interval"
    if not rises(trial.step_seconds_low, trial.step_seconds, trial.step_seconds_high):
        yield "step time lies within its interval"
    if trial.breakdown and sum(trial.breakdown.values()) != trial.peak_allocated_bytes:
        yield "the breakdown does not add up to peak allocated"


def rises(*values: float | None) -> bool:
    """Whether the known values are in ascending order."""
    known = [value for value in values if value is not None]
    return known == sorted(known)
