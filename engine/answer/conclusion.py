"""The answer from trials: a pure function, the same for predicted and measured ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.numbers import times, times_range
from ..interface.request import AnalysisRequest, Request
from ..interface.result import (
    AnalysisResult,
    BatchLengths,
    Comparison,
    KeptBatch,
    LargeTensor,
    MeasuredOn,
    OptimizerStep,
    Phase,
    PhaseName,
    StepProfile,
    TimelinePoint,
)
from ..interface.trial import GpuFacts, Source, Trial
from ..interface.workload import Workload
from .certificate import model_commands
from .economics import FILLED_NOISE, Speedup, savings, speedup, speedup_in_turn, within
from .energy import limit_watts, power_of
from .ladder import fits_with, in_few_words, listed, switch_to
from .phases import in_phase
from .recommendation import (
    ENOUGH_SPEED,
    Bound,
    global_batch_caveat,
    kept_global_batch,
    next_friendly,
)
from .search import SearchOutcome
from .superlatives import FASTEST, of_those
from .worth import Option, is_worth_it, may_be_worth_it

_WITHIN = f"it runs within {100 * (1 - ENOUGH_SPEED):.0f}% of"


@dataclass(frozen=True)
class Findings:
    """Findings of an analysis, before they become an answer.

    Attributes:
        outcome: The search, with every trial made.
        current: The trial of the current batch size, without the moves; ``None`` if there is no
            current batch yet.
        recommended: The trial of the recommended batch size.
        fastest_batch_size: The batch with the best speed among those that surely fit.
        curve: Points for the chart of memory vs. batch size.
        price_per_hour_usd: Price of one hour of the GPU.
        source: Source of the limit and of the speeds.
        span: The ends of the speedup's interval, as shares of it, where nothing was compared in
            turn.
        comparison: Current and recommended batch, measured in turn; ``None`` if they were not.
        measured_on: Device and software of the trials; ``None`` where nothing was measured.
        bound: The constraint that decided the recommended batch.
        safe_batch_size: The largest that fits even at the high end of its prediction; ``None``
            where the limit was measured.
        timeline: Memory along a step of the recommended batch; empty where it is not known.
        largest_tensors: The largest tensors at its peak; empty as above.
        moves: Other changes to the workload, in engineers' terms.
        lengths: Sample lengths of the recommended batch; ``None`` where all are equal.
        host_decides: Whether the speedup depends on the host, of which nothing is known.
        foregone: A larger batch that was not worth a change, where the current one is kept for
            that.
        program_hash: Hash of a script; empty for a workload.
        phases: Peaks of memory by phase; empty where they are not known.
        limiting_phase: The phase in which the next batch does not fit; ``None`` as above.
        optimizer_step: The optimizer step of a script; ``None`` for a workload, or if unknown.
        kept_batch: The best other split of its global batch; ``None`` without one.
        profile: Parts of the step at the current batch, else at the recommended one; ``None``
            where they are not known.
        move_lines: The lines of code that make the moves in a script; empty for a workload.
    """

    gpu: GpuFacts
    outcome: SearchOutcome
    current: Trial | None
    recommended: Trial
    fastest_batch_size: int
    curve: Sequence[Trial]
    price_per_hour_usd: float
    source: Source
    span: tuple[float, float] = within(FILLED_NOISE)
    comparison: Comparison | None = None
    measured_on: MeasuredOn | None = None
    caveats: Sequence[str] = ()
    bound: Bound = Bound.SPEED
    safe_batch_size: int | None = None
    timeline: Sequence[TimelinePoint] = ()
    largest_tensors: Sequence[LargeTensor] = ()
    moves: Sequence[str] = ()
    lengths: BatchLengths | None = None
    host_decides: bool = False
    foregone: Option | None = None
    program_hash: str = ""
    phases: Sequence[Phase] = ()
    limiting_phase: PhaseName | None = None
    optimizer_step: OptimizerStep | None = None
    kept_batch: KeptBatch | None = None
    profile: StepProfile | None = None
    move_lines: Sequence[str] = ()

    @property
    def sides(self) -> tuple[int, int]:
        """The batch sizes on both sides of the limit."""
        return self.outcome.largest_batch_size, self.outcome.next_batch_size

    @property
    def batches(self) -> tuple[int, ...]:
        """The current batch, if there is one, and the one to hold against it."""
        current = () if self.current is None else (self.current.batch_size,)
        other = self.foregone.batch_size if self.foregone else self.recommended.batch_size
        return *current, other

    @property
    def speedup(self) -> Speedup | None:
        """Speedup of the recommended over the current batch: from the comparison in turn, if any.

        ``None`` if there is no current batch, it does not fit, or a speed is not known.
        """
        if self.comparison is not None:
            return speedup_in_turn(self.comparison)
        if self.current is None:
            return None
        speeds = (self.current.samples_per_second, self.recommended.samples_per_second)
        if not (self.current.fits and speeds[0] and speeds[1]):
            return None
        return speedup(speeds[0], speeds[1], self.span)


def conclude(request: AnalysisRequest, found: Findings) -> AnalysisResult:
    """The answer to a request for a model."""
    commands = model_commands(request, found.source, found.sides)
    measured = model_commands(request, Source.MEASURED, found.batches)
    runs = [] if found.moves else measured  # the first one would be without the moves
    workload = request.workload
    return answer(request, found, workload.preset.display_name, commands, runs, workload)


def answer(
    request: Request,
    found: Findings,
    model_name: str,
    commands: list[str],
    runs: Sequence[str],
    workload: Workload | None = None,
) -> AnalysisResult:
    """The answer for a model or a custom step.

    Args:
        request: The current batch, the global batch and the assumptions.
        found: The findings.
        model_name: The display name.
        commands: Commands that repeat the trials on both sides of the limit.
        runs: Commands that measure the current and the recommended batch.
        workload: ``None`` for a custom step.
    """
    current, recommended, gained = found.current, found.recommended, found.speedup
    saved = None
    if current is not None and gained is not None:
        limit = limit_watts(found.gpu, found.measured_on)
        known = (*found.outcome.trials, *found.curve)
        saved = savings(
            request.assumptions,
            found.price_per_hour_usd,
            gained,
            found.source,
            # How much of the GPU another workload keeps busy is not known.
            None if found.moves else power_of(limit, current, recommended, known),
            taken=is_worth_it(gained, found.source),
        )
    largest = next(
        trial
        for trial in found.outcome.trials
        if trial.batch_size == found.outcome.largest_batch_size
    )
    # With moves, today's trial is that of another workload.
    today = [] if found.moves or current is None else [current]
    trials = {t.batch_size: t for t in (*found.outcome.trials, *today, recommended)}
    more = [global_batch_caveat(request, recommended.batch_size), _two_runs(found, runs)]
    return AnalysisResult(
        model_name=model_name,
        workload=workload,
        gpu=found.gpu,
        source=found.source,
        largest_batch_size=found.outcome.largest_batch_size,
        next_batch_size=found.outcome.next_batch_size,
        next_batch_size_fails=found.outcome.next_batch_size_fails,
        recommended_batch_size=recommended.batch_size,
        fastest_batch_size=found.fastest_batch_size,
        current_batch_size=None if current is None else current.batch_size,
        current_headroom_bytes=(
            _headroom(current, found.gpu) if current is not None and current.fits else None
        ),
        largest_headroom_bytes=_headroom(largest, found.gpu),
        speedup=None if gained is None else gained.ratio,
        savings=saved,
        decision=decision(found),
        verdict=verdict(found),
        curve=list(found.curve),
        trials=list(trials.values()),
        caveats=[*found.caveats, *filter(None, more)],
        timeline=list(found.timeline),
        largest_tensors=list(found.largest_tensors),
        certificate=commands,
        safe_batch_size=found.safe_batch_size,
        lengths=found.lengths,
        global_batch=kept_global_batch(request, recommended.batch_size),
        speedup_low=None if gained is None else gained.low,
        speedup_high=None if gained is None else gained.high,
        comparison=found.comparison,
        measured_on=found.measured_on,
        today=current if found.moves else None,
        program_hash=found.program_hash,
        phases=list(found.phases),
        limiting_phase=found.limiting_phase,
        optimizer_step=found.optimizer_step,
        kept_batch=found.kept_batch,
        profile=found.profile,
        move_lines=[*found.move_lines],
    )


def _headroom(trial: Trial, gpu: GpuFacts) -> int:
    """Bytes left unused on the device; of tensor memory, where there is no allocator."""
    used = trial.device_used_bytes
    return gpu.total_bytes - (used if used is not None else trial.peak_allocated_bytes or 0)


def verdict(found: Findings) -> str:
    """The decision, and what fits."""
    limit = f"Up to {found.outcome.largest_batch_size:,} fits"
    if found.outcome.next_batch_size_fails:
        where = in_phase(found.limiting_phase)
        limit += f"; {found.outcome.next_batch_size:,} does not{where}."
    else:
        limit += "; nothing larger was tried."
    return f"{decision(found)} {limit} ({found.source.capitalize()})"


def decision(found: Findings) -> str:
    """The advice, in one sentence of at most fifteen words."""
    batch, safe, moves = found.recommended.batch_size, found.safe_batch_size, found.moves
    current = None if found.current is None else found.current.batch_size
    gained = found.speedup
    batch_kept = moves and batch == current
    changes = moves if batch_kept else [*moves, f"batch {batch:,}"]
    if safe == 0:
        return _try(changes, "no batch is certain to fit")
    if current is None:
        return f"Start with batch {batch:,}: {_why_enough(found)}."
    if gained is None:
        why = f"batch {current:,} runs out of memory"
        return fits_with(moves, batch) if moves else switch_to(changes, why)
    if safe is not None and current > safe and not moves:
        return switch_to(changes, f"batch {current:,} may run out of memory")
    if is_worth_it(gained, found.source):
        return switch_to(changes, _faster(gained, found.host_decides))
    if moves:
        return _keep_without(current, changes, gained, found.source)
    return f"Keep batch {current:,}: {_why_kept(found)}."


def _faster(gained: Speedup, host_decides: bool) -> str:
    """A speedup that is worth a change: a range where nobody knows the machine's CPU."""
    if not host_decides:
        return f"{times(gained.ratio)} faster"
    return f"{times_range(gained.low, gained.high)} faster, depending on the CPU"


def _keep_without(current: int, changes: Sequence[str], gained: Speedup, source: Source) -> str:
    """The decision against moves."""
    if may_be_worth_it(gained, source):
        outcome = f"may be {times(gained.ratio)} faster, which is not sure"
    else:
        outcome = f"would be {_slightly(gained)}"
    return in_few_words(
        f"Keep batch {current:,}: {listed(changes)} {outcome}.",
        f"Keep batch {current:,}: these {len(changes)} changes {outcome}.",
    )


def _slightly(gained: Speedup) -> str:
    """A speedup that is not worth a change, in percent."""
    percent = round(100 * (gained.ratio - 1))
    return f"only about {percent}% faster" if percent > 0 else "no faster"


def _try(changes: Sequence[str], outcome: str) -> str:
    return in_few_words(
        f"Try {listed(changes)}: {outcome}.", f"Try these {len(changes)} changes: {outcome}."
    )


def _why_enough(found: Findings) -> str:
    """Why to begin with the recommended batch, and not with a larger one."""
    if found.bound is Bound.MEMORY and found.recommended.batch_size < found.fastest_batch_size:
        return f"{_WITHIN} the {of_those(FASTEST, is_sure=True)}"
    return _why_kept(found)


def _why_kept(found: Findings) -> str:
    foregone = found.foregone
    if foregone is not None and may_be_worth_it(foregone.gained, found.source):
        faster = f"{times(foregone.gained.ratio)} faster"
        return f"batch {foregone.batch_size:,} may be {faster}, which is not sure"
    percent = round(100 * (foregone.gained.ratio - 1)) if foregone else 0
    at_most = f"at most about {percent}% faster" if percent > 0 else "no faster"
    if found.bound is Bound.MEMORY:
        if foregone is not None:
            return f"larger batches that surely fit would be {at_most}"
        return f"batch {next_friendly(found.recommended.batch_size):,} does not surely fit"
    if found.bound is Bound.GLOBAL_BATCH:
        if foregone is not None:
            gain = f"at most about {percent}%" if percent > 0 else "nothing"
            return f"larger ones of the global batch gain {gain}"
        return "larger ones do not keep the global batch"
    if percent > 0:
        return f"larger batches would be {at_most}"
    return f"{_WITHIN} this GPU's top speed"


def _two_runs(found: Findings, runs: Sequence[str]) -> str:
    """The two runs that would show whether there is a gain; empty where that is known."""
    unsure = (
        found.source is not Source.MEASURED
        and found.foregone is not None
        and may_be_worth_it(found.foregone.gained, found.source)
    )
    if not (runs and unsure):
        return ""
    return f"Two short runs on the GPU would tell: {' and '.join(runs)}"
