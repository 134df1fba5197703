"""The commands that repeat the trials on both sides of the limit."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from engine.cli.flags import FLAG_OF_FIELD, MEASURE, PREDICT
from engine.request import LARGEST_ACCUMULATION, AnalysisRequest, Question
from engine.result import Source
from engine.workload import Workload


def certificate(
    request: AnalysisRequest, source: Source, batch_sizes: tuple[int, ...]
) -> list[str]:
    """The commands for a model that the engine knows; arguments as for :func:`repeating`."""
    plain = Workload(request.workload.model, config=request.workload.config)
    usual = AnalysisRequest(plain, request.gpu).to_dict() | {"config": None}
    changed = {n: value for n, value in request.to_dict().items() if value != usual.get(n)}
    return repeating(request, [request.workload.model], changed, source, batch_sizes)


def repeating(
    request: Question,
    trained: Sequence[str],
    changed: Mapping[str, object],
    source: Source,
    batch_sizes: tuple[int, ...],
) -> list[str]:
    """One command for each batch size.

    Args:
        request: What was asked.
        trained: The words that say what is trained.
        changed: Its fields that are not at their default; those that a command has no flag for are
            left out.
        source: ``measured`` gives commands that measure, anything else commands that predict.
        batch_sizes: Those to repeat.
    """
    measured = source is Source.MEASURED
    known = {flag.field for flag in (MEASURE if measured else PREDICT)}

    def command(batch_size: int) -> str:
        words = ["python", "-m", "engine", "measure" if measured else "predict", *trained]
        # As many as keep the global batch with micro-batches of this size, whatever it is today.
        accumulated = min(request.accumulation_at(batch_size), LARGEST_ACCUMULATION)
        accumulation = {"gradient_accumulation": accumulated if accumulated > 1 else None}
        given = {**changed, "gpu": request.gpu, **accumulation, "current_batch_size": None}
        for field, flag in FLAG_OF_FIELD.items():
            if field in known and given.get(field) is not None:
                words += [flag, _word(field, given[field])]
        return shlex.join([*words, "--batch-size", str(batch_size)])

    return [command(size) for size in batch_sizes]


def _word(field: str, value: object) -> str:
    if field == "config":  # too long for a command line; the file has to be saved
        return "config.json"
    return str(value).lower() if isinstance(value, bool) else str(value)
