"""The commands that repeat the trials on both sides of the limit."""

from __future__ import annotations

import shlex

from engine.cli.flags import FLAG_OF_FIELD, MEASURE, PREDICT
from engine.request import AnalysisRequest
from engine.result import Source
from engine.workload import Workload


def certificate(
    request: AnalysisRequest, source: Source, batch_sizes: tuple[int, ...]
) -> list[str]:
    """One command for each batch size; settings left at their default are left out.

    Args:
        request: What was asked.
        source: ``measured`` gives commands that measure, anything else commands that predict.
        batch_sizes: Those to repeat.
    """
    measured = source is Source.MEASURED
    known = {flag.field for flag in (MEASURE if measured else PREDICT)}
    plain = Workload(request.workload.model, config=request.workload.config)
    usual = AnalysisRequest(plain, request.gpu).to_dict() | {"config": None}
    words = ["python", "-m", "engine", "measure" if measured else "predict", request.workload.model]
    for field, value in request.to_dict().items():
        needed = field == "gpu" or value not in (usual.get(field), None)
        if field in known and needed and field != "current_batch_size":
            words += [FLAG_OF_FIELD[field], _word(field, value)]
    return [shlex.join([*words, "--batch-size", str(size)]) for size in batch_sizes]


def _word(field: str, value: object) -> str:
    if field == "config":  # too long for a command line; the file has to be saved
        return "config.json"
    return str(value).lower() if isinstance(value, bool) else str(value)
