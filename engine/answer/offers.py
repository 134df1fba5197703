"""Offers of an answer: what keeps the global batch, and what changes it, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.numbers import whole
from ..interface.result import AnalysisResult, OptimizerStep
from .ladder import Rung, best_of
from .learning_rate import KEPT, advice_for_classes, global_batches

_IN_ITS_CODE = (
    "The script does not accumulate, so its code decides the rest: memorymark plan tries bf16, a "
    "fused optimizer and checkpointing in it."
)


@dataclass(frozen=True)
class Offer:
    """One of the two ways to train faster, or why there is none.

    Attributes:
        title: What it does to the global batch.
        change: What to change, such as ``batch 64 in 2 micro-batches``; empty where there is none.
        speedup: Speedup over today; ``None`` where the current batch does not fit.
        speedup_low, speedup_high: Its interval.
        batch_size: The batch to train with.
        samples_per_second: Speed at that batch.
        learning_rate: What to do with the learning rate, in one line.
        why_none: Reason why there is none, in a sentence; else empty.
    """

    title: str
    change: str = ""
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    batch_size: int | None = None
    samples_per_second: float | None = None
    learning_rate: str = ""
    why_none: str = ""


def kept_title(before: int) -> str:
    """The title of what keeps a global batch."""
    return f"Keeps the global batch of {whole(before)}"


def changed_title(before: int, after: int | None) -> str:
    """The title of what changes a global batch; ``None`` where nothing does."""
    if after is None or after == before:
        return f"Another global batch than {whole(before)}"
    verb = "Raises" if after > before else "Lowers"
    return f"{verb} the global batch from {whole(before)} to {whole(after)}"


def offers_of_script(result: AnalysisResult) -> list[Offer]:
    """The offers of a script's answer: both, of which one may say why there is none.

    None where it is not known how many samples an optimizer step has today. Those of a model are in
    its ladder.
    """
    step, batches = result.optimizer_step, global_batches(result)
    if step is None or batches is None:
        return []
    return [_kept(result, step, *batches), _changed(result, step, *batches)]


def offers_of_ladder(rungs: Sequence[Rung]) -> list[tuple[Offer, Rung | None]]:
    """The same of a ladder, each with its rung.

    Another split of a script's global batch is no rung: it is offered where it is faster than what
    keeps the global batch with moves.

    Args:
        rungs: In the order of the ladder, the one without a move first.
    """
    before = next((rung.global_batch_before for rung in rungs if rung.global_batch_before), None)
    if before is None:
        return []
    kept, changed = (best_of(rungs, keeps_global_batch=keeps) for keeps in (True, False))
    split = _split_of(rungs[0].result)
    if kept is None and changed is None and split is None:
        return []
    outcome = "is surely faster" if any(rung.speedup for rung in rungs) else "surely fits"
    none = f"Nothing that was tried {outcome}."
    keeping = (_of_a_rung(kept_title(before), kept, none), kept)
    if split is not None and (split.speedup or 0.0) > ((kept and kept.speedup) or 0.0):
        keeping = (split, None)
    after = None if changed is None else changed.global_batch_size
    return [keeping, (_of_a_rung(changed_title(before, after), changed, none), changed)]


def _of_a_rung(title: str, rung: Rung | None, why_none: str) -> Offer:
    if rung is None:
        return Offer(title, why_none=why_none)
    return Offer(
        title,
        ", ".join(rung.moves),
        rung.speedup,
        rung.speedup_low,
        rung.speedup_high,
        rung.batch_size,
        rung.samples_per_second,
        rung.learning_rate,
    )


def _split_of(result: AnalysisResult | None) -> Offer | None:
    """The best other split of a script's global batch; ``None`` without one."""
    if result is None or result.kept_batch is None:
        return None
    offers = offers_of_script(result)
    return offers[0] if offers else None


def _kept(result: AnalysisResult, step: OptimizerStep, before: int, after: int) -> Offer:
    title, kept = kept_title(before), result.kept_batch
    if before == after and result.recommended_batch_size != result.current_batch_size:
        return _recommended(result, title, _micro_batches(result, step), KEPT)
    if kept is not None:
        return Offer(
            title,
            _split(kept.batch_size, kept.micro_batches),
            kept.speedup,
            kept.speedup_low,
            kept.speedup_high,
            kept.batch_size,
            kept.samples_per_second,
            KEPT,
        )
    return Offer(title, why_none=_why_not_kept(result, step, before, after))


def _why_not_kept(result: AnalysisResult, step: OptimizerStep, before: int, after: int) -> str:
    if after < before:
        size = result.recommended_batch_size
        count, rest = divmod(before, size * step.gpus)
        if rest:
            return "No allowed batch that surely fits divides it evenly."
        split = _split(size, count)
        return f"Accumulating would keep it, as {split}: do that, and analyze it again."
    if step.current_micro_batches == 1:
        return _IN_ITS_CODE
    count = step.current_micro_batches
    return f"No other split of its {whole(count)} micro-batches is known to be surely faster."


def _changed(result: AnalysisResult, step: OptimizerStep, before: int, after: int) -> Offer:
    title = changed_title(before, after)
    if before != after:
        advice = advice_for_classes(step.optimizers, before, after)
        return _recommended(result, title, _micro_batches(result, step), advice)
    if result.global_batch is not None:
        return Offer(title, why_none="Not tried, since a global batch to keep is set.")
    return Offer(title, why_none="No other batch is surely faster.")


def _recommended(result: AnalysisResult, title: str, count: int, learning_rate: str) -> Offer:
    size = result.recommended_batch_size
    speeds = {trial.batch_size: trial.samples_per_second for trial in result.trials}
    return Offer(
        title,
        _split(size, count),
        result.speedup,
        result.speedup_low,
        result.speedup_high,
        size,
        speeds.get(size),
        learning_rate,
    )


def _micro_batches(result: AnalysisResult, step: OptimizerStep) -> int:
    kept = result.global_batch
    return step.recommended_micro_batches if kept is None else kept.gradient_accumulation


def _split(size: int, count: int) -> str:
    if count == 1:
        return f"batch {whole(size)}"
    return f"batch {whole(size)} in {whole(count)} micro-batches"
