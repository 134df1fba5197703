"""The decision of an analysis: the moves it advises or that were adopted, beside its own answer.

An analysis has one decision. Its own answer is a batch, with today's settings. Where a rung of its
ladder is better, that rung is advised: its result takes the place of the own answer in every
column, so lists, totals, share links, the API and messages all show what the page shows. An adopted
decision stays as it is; an advised one gives way to that of a newer plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyses.models import Analysis, Decided
from analyses.results.stored import batch_result, result_columns
from engine.answer.amounts import trial_at
from engine.answer.ladder import Learning, Rung
from engine.interface.result import AnalysisResult

RESULT_COLUMNS = (
    "result", "source", "largest_batch_size", "recommended_batch_size", "speedup", "has_gain",
    "usd_per_year", "gpu_hours_per_year", "kwh_per_year", "kg_co2e_per_year", "worst_tokens",
    "padding", "longest_tokens",
)  # fmt: skip
"""The columns that :func:`~analyses.results.stored.result_columns` fills."""


def advised(rungs: Sequence[Rung], *, has_answer: bool) -> Rung | None:
    """The rung to advise; ``None`` where today's settings are as good.

    Another global batch learns something else, so what keeps it comes first. Adapters do too, so
    nobody is switched to them unasked, unless nothing fits without them.

    Args:
        rungs: The whole ladder, in order.
        has_answer: Whether a batch fits with today's settings.
    """
    helping = [rung for rung in rungs if rung.fields and rung.helps]
    same_model = [rung for rung in helping if rung.learning is not Learning.TRAINED]
    left = same_model or ([] if has_answer else helping)
    kept = [rung for rung in left if rung.keeps_global_batch]
    return next(iter(kept or left), None)


def is_as_it_is(rung: Rung) -> bool:
    """Whether it is the analysis's own answer: today's settings, at whatever batch."""
    return not rung.fields


def advise(analysis: Analysis, rungs: Sequence[Rung]) -> dict[str, Any]:
    """Take over the best of a whole ladder; returns the columns, for the caller to write.

    An answer that chose its GPU among others stays: the moves are about that GPU alone. With a
    script's plan, its own GPU is only compared with others.

    Call it in a transaction, for an analysis that is not adopted.
    """
    own = own_columns(analysis)["result"]
    best = advised(rungs, has_answer=own is not None)
    chose_its_gpu = (own or {}).get("compared_gpus") and not analysis.program_hash
    if best is None or chose_its_gpu:
        return give_up(analysis)
    return take_over(analysis, best)


def take_over(analysis: Analysis, rung: Rung) -> dict[str, Any]:
    """Keep the analysis's own columns, and return those of a rung, for the caller to write.

    Call it in a transaction.

    Raises:
        ValueError: The rung has no result.
    """
    if rung.result is None:
        raise ValueError(f"{rung.moves} has no result to take over")
    kept = {
        "moves": rung.moves,
        "fields": rung.fields,
        "before": own_columns(analysis),
        "used_bytes": _used_bytes(rung.result),
    }
    Decided.objects.update_or_create(analysis=analysis, defaults=kept)
    return result_columns(rung.result)


def give_up(analysis: Analysis) -> dict[str, Any]:
    """Forget the decision, and return the analysis's own columns, for the caller to write.

    Call it in a transaction.
    """
    columns = own_columns(analysis)
    Decided.objects.filter(analysis=analysis).delete()
    return columns


def own_columns(analysis: Analysis) -> dict[str, Any]:
    """The columns of the analysis's own answer, whatever was decided since."""
    before = Decided.objects.filter(analysis=analysis).values_list("before", flat=True).first()
    if before is not None:
        return dict(before)
    own: dict[str, Any] = Analysis.objects.values(*RESULT_COLUMNS).get(pk=analysis.pk)
    return own


def own_result(analysis: Analysis) -> AnalysisResult | None:
    """The analysis's own answer: that of the settings that were asked about.

    ``None`` if there is none about batches that can be read.
    """
    decided = decided_of(analysis)
    return batch_result(analysis.pk, decided.before["result"] if decided else analysis.result)


def decided_moves(analysis: Analysis) -> list[str]:
    """The moves that are advised or adopted; none where only the batch is."""
    decided = decided_of(analysis)
    return list(decided.moves) if decided else []


def decided_fields(analysis: Analysis) -> Mapping[str, Any]:
    """The fields of the request that the moves change, with their new values."""
    decided = decided_of(analysis)
    return dict(decided.fields) if decided else {}


def decided_of(analysis: Analysis) -> Decided | None:
    """The decision with more moves than the batch, if there is one."""
    decided: Decided | None = getattr(analysis, "decided", None)
    return decided


def _used_bytes(result: AnalysisResult) -> int | None:
    """GPU memory used at the recommended batch."""
    trial = trial_at(result, result.recommended_batch_size)
    if trial is None:
        return None
    sizes = (trial.device_used_bytes, trial.peak_reserved_bytes, trial.peak_allocated_bytes)
    return next((size for size in sizes if size is not None), None)
