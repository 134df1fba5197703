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
from engine.answer.worth import has_gain
from engine.core.border import read_json
from engine.core.errors import InvalidInput
from engine.interface.result import AnalysisResult
from engine.interface.texts import TextResult
from engine.interface.tokens import Tokens, tokens_of
from engine.interface.trial import Trial

logger = logging.getLogger(__name__)


Result = AnalysisResult | TextResult


def result_columns(result: Result) -> dict[str, object]:
    """The columns that a result fills."""
    if isinstance(result, TextResult):
        return _text_columns(result)
    energy = result.savings and result.savings.energy
    return {
        "result": result.to_dict(),
        "source": result.source,
        "largest_batch_size": result.largest_batch_size,
        "recommended_batch_size": result.recommended_batch_size,
        "worst_tokens": result.lengths and result.lengths.worst_tokens,
        "padding": result.lengths and result.lengths.padding,
        "speedup": result.speedup,
        "has_gain": None if result.speedup is None else has_gain(result),
        "usd_per_year": result.savings and result.savings.usd_per_year,
        "gpu_hours_per_year": result.savings and result.savings.gpu_hours_per_year,
        "kwh_per_year": energy and energy.kwh_per_year,
        "kg_co2e_per_year": energy and energy.kg_co2e_per_year,
    }


def _text_columns(result: TextResult) -> dict[str, object]:
    return {
        "result": result.to_dict(),
        "source": result.source,
        "largest_batch_size": result.generation and result.generation.largest_batch_size,
        "longest_tokens": result.longest_tokens,
    }


def read_result(stored: Mapping[str, Any]) -> Result:
    """The result that ``to_dict`` wrote; only one about texts has a goal.

    Raises:
        InvalidInput: An incompatible version of MemoryMark wrote it.
    """
    is_about_texts = isinstance(stored, Mapping) and "goal" in stored
    return read_json(TextResult, stored) if is_about_texts else read_json(AnalysisResult, stored)


def read_trial(stored: Mapping[str, Any]) -> Trial:
    return read_json(Trial, stored)


def result_of(analysis: models.Analysis) -> AnalysisResult | None:
    """The result of an analysis; ``None`` if there is none about batches that can be read."""
    return batch_result(analysis.pk, analysis.result)


def batch_result(number: int, stored: Mapping[str, Any] | None) -> AnalysisResult | None:
    """A stored result of an analysis; ``None`` as above."""
    result = _read(number, stored)
    return result if isinstance(result, AnalysisResult) else None


def text_result_of(analysis: models.Analysis) -> TextResult | None:
    """The result of an analysis; ``None`` if there is none about texts that can be read."""
    result = _read(analysis.pk, analysis.result)
    return result if isinstance(result, TextResult) else None


def _read(number: int, stored: Mapping[str, Any] | None) -> Result | None:
    if stored is None:
        return None
    try:
        return read_result(stored)
    except InvalidInput:
        logger.warning("the result of analysis %s cannot be read", number, exc_info=True)
        return None


def tokens_in(analysis: models.Analysis) -> Tokens | None:
    """The token counts of an analysis: by its result, which has every size, else by its request."""
    trained = (analysis.result or {}).get("workload") or analysis.request
    return tokens_of(trained)


def tried_batch(row: models.Trial) -> Trial:
    return read_trial({field.name: getattr(row, field.name) for field in fields(Trial)})
