"""A result as it is stored: the columns it fills, and its JSON read back into data classes.

A field that an older version did not store takes its default; an unknown field or a value of the
wrong type is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from analyses import models
from analyses.savings.estimate import has_gain
from engine.border import read_json
from engine.errors import InvalidInput
from engine.result import AnalysisResult, Source, Trial
from engine.tokens import Tokens, tokens_of

logger = logging.getLogger(__name__)


def result_columns(result: AnalysisResult) -> dict[str, object]:
    """The columns that a result fills."""
    energy = result.savings and result.savings.energy
    return {
        "result": result.to_dict(),
        "source": result.source,
        "largest_batch_size": result.largest_batch_size,
        "recommended_batch_size": result.recommended_batch_size,
        "speedup": result.speedup,
        "has_gain": None if result.speedup is None else has_gain(result),
        "usd_per_year": result.savings and result.savings.usd_per_year,
        "gpu_hours_per_year": result.savings and result.savings.gpu_hours_per_year,
        "kwh_per_year": energy and energy.kwh_per_year,
        "kg_co2e_per_year": energy and energy.kg_co2e_per_year,
    }


def read_result(stored: Mapping[str, Any]) -> AnalysisResult:
    """The result that ``AnalysisResult.to_dict`` wrote.

    Raises:
        InvalidInput: An incompatible version of MemoryMark wrote it.
    """
    return read_json(AnalysisResult, stored)


def read_trial(stored: Mapping[str, Any]) -> Trial:
    return read_json(Trial, stored)


def result_of(analysis: models.Analysis) -> AnalysisResult | None:
    """The result of an analysis; ``None`` if there is none, or none that can be read."""
    if analysis.result is None:
        return None
    try:
        return read_result(analysis.result)
    except InvalidInput:
        logger.warning("the result of analysis %s cannot be read", analysis.pk, exc_info=True)
        return None


def tokens_in(analysis: models.Analysis) -> Tokens | None:
    """How an analysis counts tokens: by its result, which has every size, else by its request."""
    trained = (analysis.result or {}).get("workload") or analysis.request
    return tokens_of(trained)


def tried_batch(row: models.Trial) -> Trial:
    return read_trial({field.name: getattr(row, field.name) for field in fields(Trial)})


def trial_at(result: AnalysisResult, batch_size: int) -> Trial | None:
    """The trial of one batch size, measured rather than predicted."""
    known = [trial for trial in [*result.trials, *result.curve] if trial.batch_size == batch_size]
    measured = [trial for trial in known if trial.source is Source.MEASURED]
    return next(iter(measured + known), None)


def source_at(result: AnalysisResult, batch_size: int) -> Source:
    trial = trial_at(result, batch_size)
    return trial.source if trial else result.source
