"""The stored JSON of a result, read back into the engine's data classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import InvalidInput
from engine.result import AnalysisResult, GpuFacts, Savings, Source, Trial
from engine.workload import Workload

UNREADABLE = (TypeError, KeyError, ValueError, InvalidInput)
"""What :func:`read_result` raises on a row that another version of MemoryMark wrote."""


def read_result(stored: Mapping[str, Any]) -> AnalysisResult:
    """Rebuild the result that ``AnalysisResult.to_dict`` wrote.

    Raises:
        TypeError, KeyError, ValueError, InvalidInput: If a field is missing, unknown or not valid
            any more; see :data:`UNREADABLE`.
    """
    savings = stored["savings"]
    return AnalysisResult(
        **dict(stored)
        | {
            "workload": Workload(**stored["workload"]),
            "gpu": GpuFacts(**stored["gpu"]),
            "source": Source(stored["source"]),
            "savings": savings and Savings(**savings | {"source": Source(savings["source"])}),
            "curve": [_read_trial(trial) for trial in stored["curve"]],
            "trials": [_read_trial(trial) for trial in stored["trials"]],
        }
    )


def trial_at(result: AnalysisResult, batch_size: int) -> Trial | None:
    """What is known of one batch size; a measured trial goes before a predicted one."""
    known = [trial for trial in [*result.trials, *result.curve] if trial.batch_size == batch_size]
    measured = [trial for trial in known if trial.source is Source.MEASURED]
    return next(iter(measured + known), None)


def _read_trial(stored: Mapping[str, Any]) -> Trial:
    return Trial(**dict(stored) | {"source": Source(stored["source"])})
