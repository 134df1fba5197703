"""The one decision of an analysis, with its numbers, as the API and messages have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyses.models import Analysis
from analyses.results.decided import decided_fields, decided_moves, own_columns
from analyses.results.ladders import pushed_ladder
from analyses.results.stored import batch_result
from analyses.savings.certainty import counted
from engine.answer.offers import Offer, offers_of_ladder, offers_of_script
from engine.answer.worth import gain_by
from engine.interface.trial import Source


@dataclass(frozen=True)
class WithTodaysSettings:
    """The same analysis's answer if nothing but the batch is changed.

    Attributes:
        batch_size: The recommended batch.
        largest_batch_size: The largest that fits.
        speedup: Speedup over the current batch; null without one that fits.
        usd_per_year: Savings, with assumed hours, runs and price.
        gpu_hours_per_year: Savings, with assumed hours and runs.
    """

    batch_size: int | None
    largest_batch_size: int | None
    speedup: float | None
    usd_per_year: float | None
    gpu_hours_per_year: float | None


@dataclass(frozen=True)
class DecisionFigures:
    """The decision of an analysis.

    Attributes:
        sentence: What to do, in one sentence.
        moves: The changes, such as bf16 and batch 200; empty where only the batch is decided.
        fields: The settings that they change, with their new values.
        batch_size: The batch to train with, with these moves.
        largest_batch_size: The largest batch that fits, with these moves.
        source: Whether its numbers are measured or predicted.
        gain: Whether the speedup is worth a change: sure, probable or none.
        speedup: Samples per second with it over those of today; null without a batch today.
        speedup_low: Low end of its interval.
        speedup_high: High end.
        usd_per_year: Savings, with assumed hours, runs and price.
        usd_per_year_low: Savings at the low end of the speedup's interval.
        usd_per_year_high: Savings at its high end.
        gpu_hours_per_year: Savings, with assumed hours and runs.
        gpu_hours_per_year_low: Savings at the low end of the speedup's interval.
        gpu_hours_per_year_high: Savings at its high end.
        is_adopted: Whether a member has marked it as adopted.
        with_todays_settings: The answer if nothing but the batch is changed.
        offers: For a script, what keeps its global batch and what changes it; empty for a model,
            whose plan has them.
    """

    sentence: str
    moves: list[str]
    fields: dict[str, Any]
    batch_size: int | None
    largest_batch_size: int | None
    source: str
    gain: str
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    usd_per_year: float | None
    usd_per_year_low: float | None
    usd_per_year_high: float | None
    gpu_hours_per_year: float | None
    gpu_hours_per_year_low: float | None
    gpu_hours_per_year_high: float | None
    is_adopted: bool
    with_todays_settings: WithTodaysSettings
    offers: list[Offer]


def decision_figures(analysis: Analysis) -> DecisionFigures | None:
    """The decision of an analysis; ``None`` while it has none about a batch."""
    result: Mapping[str, Any] = analysis.result or {}
    if analysis.recommended_batch_size is None:
        return None
    source = Source(analysis.source)
    gain = None
    if analysis.speedup is not None:
        gain = gain_by(analysis.speedup, analysis.has_gain, source)
    ends = counted(analysis.source, result)
    usd, hours = analysis.usd_per_year, analysis.gpu_hours_per_year
    own = own_columns(analysis) if decided_moves(analysis) else vars(analysis)
    return DecisionFigures(
        sentence=result.get("decision") or result.get("verdict") or "",
        moves=decided_moves(analysis),
        fields=dict(decided_fields(analysis)),
        batch_size=analysis.recommended_batch_size,
        largest_batch_size=analysis.largest_batch_size,
        source=analysis.source,
        gain="none" if gain is None else gain.name.lower(),
        speedup=analysis.speedup,
        speedup_low=result.get("speedup_low"),
        speedup_high=result.get("speedup_high"),
        usd_per_year=usd,
        usd_per_year_low=None if usd is None else usd * ends.low,
        usd_per_year_high=None if usd is None else usd * ends.high,
        gpu_hours_per_year=hours,
        gpu_hours_per_year_low=None if hours is None else hours * ends.low,
        gpu_hours_per_year_high=None if hours is None else hours * ends.high,
        is_adopted=analysis.adopted_at is not None,
        with_todays_settings=WithTodaysSettings(
            batch_size=own["recommended_batch_size"],
            largest_batch_size=own["largest_batch_size"],
            speedup=own["speedup"],
            usd_per_year=own["usd_per_year"],
            gpu_hours_per_year=own["gpu_hours_per_year"],
        ),
        offers=_offers(analysis),
    )


def _offers(analysis: Analysis) -> list[Offer]:
    if not analysis.program_hash:
        return []
    if offers := offers_of_ladder(pushed_ladder(analysis)):
        return [offer for offer, _ in offers]
    stored = batch_result(analysis.pk, analysis.result)
    return offers_of_script(stored) if stored else []
