"""The stored JSON of a result, read back into the engine's data classes.

A field that a result of an older version lacks takes its default; one that this version does not
know, or a value of another type than it should have, is refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from analyses import models
from engine.errors import InvalidInput
from engine.result import AnalysisResult, Source, Trial

logger = logging.getLogger(__name__)

UNREADABLE = (TypeError, KeyError, ValueError, InvalidInput)
"""What :func:`read_result` raises on a row that another version of MemoryMark wrote."""


def read_result(stored: Mapping[str, Any]) -> AnalysisResult:
    """Rebuild the result that ``AnalysisResult.to_dict`` wrote.

    Raises:
        TypeError, KeyError, ValueError, InvalidInput: If a field is missing, unknown or not valid
            any more; see :data:`UNREADABLE`.
    """
    return cast(AnalysisResult, _read(AnalysisResult, stored))


def result_of(analysis: models.Analysis) -> AnalysisResult | None:
    """The result of an analysis; ``None`` while it has none, or none that can be read."""
    if analysis.result is None:
        return None
    try:
        return read_result(analysis.result)
    except UNREADABLE:
        logger.warning("the result of analysis %s cannot be read", analysis.pk, exc_info=True)
        return None


def read_trial(stored: Mapping[str, Any]) -> Trial:
    """Rebuild one trial; raises as :func:`read_result` does."""
    return cast(Trial, _read(Trial, stored))


def tried_batch(row: models.Trial) -> Trial:
    """The engine's trial in a row of the table of trials."""
    return read_trial({field.name: getattr(row, field.name) for field in fields(Trial)})


def trial_at(result: AnalysisResult, batch_size: int) -> Trial | None:
    """What is known of one batch size; a measured trial goes before a predicted one."""
    known = [trial for trial in [*result.trials, *result.curve] if trial.batch_size == batch_size]
    measured = [trial for trial in known if trial.source is Source.MEASURED]
    return next(iter(measured + known), None)


def source_at(result: AnalysisResult, batch_size: int) -> Source:
    """Where the figures of one batch size come from."""
    trial = trial_at(result, batch_size)
    return trial.source if trial else result.source


def _read(kind: Any, stored: Any) -> Any:
    """The value that ``stored`` is in JSON, for an annotation of the engine's data classes."""
    if kind is Any:
        return stored
    if is_dataclass(kind):
        types = _types(cast(type, kind))
        read = {name: _read(types[name], value) for name, value in _checked(dict, stored).items()}
        return cast(type, kind)(**read)
    outer, inner = get_origin(kind), get_args(kind)
    if outer in (Union, UnionType):
        if stored is None and NoneType in inner:
            return None
        (kind,) = (member for member in inner if member is not NoneType)
        return _read(kind, stored)
    if outer is list:
        return [_read(inner[0], item) for item in _checked(list, stored)]
    if outer is dict:
        return {name: _read(inner[1], value) for name, value in _checked(dict, stored).items()}
    if issubclass(kind, StrEnum):
        return kind(stored)
    return _checked(kind, stored)


def _checked(kind: type, value: Any) -> Any:
    """``value`` if it is of that type; a float may be written as a whole number."""
    written_as = (int, float) if kind is float else kind
    if not isinstance(value, written_as) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{value!r:.40} is no {kind.__name__}")
    return value


@cache
def _types(kind: type) -> dict[str, Any]:
    """The field types of a data class; working them out takes longer than all the reading."""
    return get_type_hints(kind)
