"""A stored analysis as the numbers take it, with today's price where its answer has none."""

from __future__ import annotations

from analyses.models import Analysis
from analyses.results.stored import result_of, tokens_in
from engine.answer.amounts import Answered
from engine.core.choices import Goal
from engine.gpus import GPUS
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source


def answered(analysis: Analysis, instead: AnalysisResult | None = None) -> Answered:
    """The answer of an analysis, with what its numbers are computed from.

    Args:
        analysis: An analysis with its stored result.
        instead: A result to take instead of it, such as that of other moves.
    """
    result = instead or result_of(analysis)
    is_about_texts = analysis.goal != Goal.BATCH
    return Answered(
        result=result,
        price_per_hour_usd=_price_per_hour(analysis, result),
        gpu_count=analysis.request.get("world_size") or 1,
        tokens=tokens_in(analysis),
        largest_texts=analysis.largest_batch_size if is_about_texts else None,
        longest_tokens=analysis.longest_tokens if is_about_texts else None,
        text_source=Source(analysis.source) if is_about_texts and analysis.source else None,
        is_adopted=bool(analysis.adopted_at),
    )


def _price_per_hour(analysis: Analysis, result: AnalysisResult | None) -> float | None:
    """Price of one GPU per hour: the result's, else the request's, else the catalogue's."""
    if result and result.savings:
        return result.savings.price_per_hour_usd
    own: float | None = analysis.request.get("price_per_hour_usd")
    if own is not None or analysis.gpu not in GPUS:
        return own
    return GPUS[analysis.gpu].price_per_hour_usd
