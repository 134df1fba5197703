"""Decisions with more moves than the batch: how an analysis takes one over, and gives it up."""

from __future__ import annotations

from typing import Any

from analyses.models import Analysis, Decided
from analyses.stored_result import result_columns
from engine.answer.ladder import Rung

RESULT_COLUMNS = (
    "result", "source", "largest_batch_size", "recommended_batch_size", "speedup", "has_gain",
    "usd_per_year", "gpu_hours_per_year", "kwh_per_year", "kg_co2e_per_year", "worst_tokens",
    "padding", "longest_tokens",
)  # fmt: skip
"""The columns that :func:`~analyses.stored_result.result_columns` fills."""


def take_over(analysis: Analysis, rung: Rung) -> dict[str, Any]:
    """Keep the analysis's own columns, and return those of a rung, for the caller to write.

    Call it in a transaction.

    Raises:
        ValueError: The rung has no result.
    """
    if rung.result is None:
        raise ValueError(f"{rung.moves} has no result to adopt")
    Decided.objects.create(
        analysis=analysis, moves=rung.moves, fields=rung.fields, before=own_columns(analysis)
    )
    return result_columns(rung.result)


def give_up(analysis: Analysis) -> dict[str, Any]:
    """Forget the decision, and return the analysis's own columns, for the caller to write.

    Call it in a transaction.
    """
    columns = own_columns(analysis)
    Decided.objects.filter(analysis=analysis).delete()
    return columns


def own_columns(analysis: Analysis) -> dict[str, Any]:
    """The analysis's own result columns, whatever was decided since."""
    decided = Decided.objects.filter(analysis=analysis).first()
    if decided is not None:
        before: dict[str, Any] = decided.before
        return before
    return {name: getattr(analysis, name) for name in RESULT_COLUMNS}


def decided_moves(analysis: Analysis) -> list[str]:
    """The moves that were adopted; none where only the batch was."""
    decided = Decided.objects.filter(analysis=analysis).values_list("moves", flat=True).first()
    return decided or []
