"""Memory and speed by batch size: every batch size that is known, with its figures."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from analyses.charts.breakdown import used_bytes
from analyses.charts.picture import Drawn, Picture, Point, draw, point_of
from analyses.formatting import tokens_per_second
from engine.answer.amounts import Answered, trial_at
from engine.answer.economics import usd_per_million_samples
from engine.answer.figures import COST, LARGEST_BATCH, RECOMMENDED_BATCH, SPEED
from engine.answer.superlatives import LARGEST, named_batches
from engine.core.sizes import gib
from engine.interface.result import AnalysisResult
from engine.interface.tokens import Tokens
from engine.interface.trial import Trial

_FARTHEST = 2
"""Batch sizes beyond this multiple of the limit are left out."""


def picture_of(answered: Answered) -> Picture | None:
    """The picture of an answer; ``None`` where the memory of no batch size is known."""
    result = answered.result
    trials = _trials(result) if result else []
    if result is None or not trials:
        return None

    def text(trial: Trial, categories: Collection[str]) -> Point:
        speed = trial.samples_per_second if trial.fits else None
        point = point_of(trial, trial.batch_size, result.gpu.total_bytes, categories)
        return replace(point, speed=_speed(speed, answered.tokens), cost=_cost(speed, answered))

    names = named_batches(result)
    return draw(
        Drawn(
            title="Memory and speed by batch",
            name="Batch",
            label="Batch size",
            unit="samples",
            description=_description(result),
        ),
        [(trial.batch_size, trial) for trial in trials],
        names,
        result.recommended_batch_size,
        result.gpu.total_bytes,
        text,
    )


def _trials(result: AnalysisResult) -> list[Trial]:
    """One trial for each batch size whose memory is known, growing."""
    farthest = _FARTHEST * result.next_batch_size
    sizes = {trial.batch_size for trial in [*result.curve, *result.trials]}
    found = (trial_at(result, size) for size in sorted(sizes) if size <= farthest)
    known = [trial for trial in found if trial is not None and used_bytes(trial) is not None]
    has_recommended = any(t.batch_size == result.recommended_batch_size for t in known)
    return known if has_recommended else []


def _speed(samples_per_second: float | None, tokens: Tokens | None) -> str:
    if samples_per_second is None:
        return ""
    counted = tokens_per_second(samples_per_second, tokens)
    speed = SPEED.with_unit(samples_per_second)
    return f"{speed}, {counted}" if counted else speed


def _cost(samples_per_second: float | None, answered: Answered) -> str:
    price = answered.price_per_hour_usd
    if not samples_per_second or not price:
        return ""
    cost = usd_per_million_samples(price * answered.gpu_count, samples_per_second)
    return f"{COST.text(cost)} per million samples"


def _description(result: AnalysisResult) -> str:
    size = result.largest_batch_size
    (largest,) = (name for name in named_batches(result)[size] if name.startswith(LARGEST))
    recommended = RECOMMENDED_BATCH.text(result.recommended_batch_size)
    return (
        f"Memory and speed by batch size for {result.model_name} on {result.gpu.name}, which has "
        f"{gib(result.gpu.total_bytes)}. Batch {LARGEST_BATCH.text(size)} is the {largest}, batch "
        f"{recommended} is recommended."
    )
