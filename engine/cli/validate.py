"""The commands ``validate backward``, ``validate compile`` and ``validate prediction``.

What loads torch is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from engine.cli.progress import progress
from engine.cli.render import render_backward
from engine.cli.render_checks import render_compile, render_prediction
from engine.errors import InvalidInput
from engine.gpus import GPUS, LOCAL
from engine.models.presets import PRESETS
from engine.parsing import shown
from engine.prediction.intervals import OWN, OWN_FILE_VARIABLE, append_residuals, own_file
from engine.request import AnalysisRequest

Answer = Callable[[object, Callable[[], RenderableType]], None]
"""Takes an answer as plain values, and what makes tables of it."""


def answer_backward(request: AnalysisRequest, answer: Answer) -> bool:
    """Answer ``validate backward``; whether the whole step takes clearly more memory."""
    with progress():
        from engine.validation.backward import validate_backward

        check = validate_backward(request.workload, request.current_batch_size, request.gpu)
    where = "this machine" if request.gpu == LOCAL else GPUS[request.gpu].display_name
    answer(asdict(check), lambda: render_backward(check, request.workload, where))
    return check.passed


def answer_compile(request: AnalysisRequest, answer: Answer) -> bool:
    """Answer ``validate compile``. Compiling need not be a gain for this to be an answer."""
    with progress() as emit:
        from engine.validation.compile import validate_compile

        check = validate_compile(request.workload, request.current_batch_size, emit)
    answer(asdict(check), lambda: render_compile(check))
    return True


def add_prediction_flags(parser: Any) -> None:
    """Add what ``validate prediction`` takes: several models, or none."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help=", ".join(PRESETS))
    parser.add_argument(
        "--gpu", metavar=LOCAL, help="measure on this machine; without it nothing is run"
    )
    parser.add_argument(
        "--write",
        metavar="PATH",
        nargs="?",
        const="",
        help=f"add the figures to a calibration file; default ${OWN_FILE_VARIABLE}, or {OWN.name} "
        f"in the folder {OWN.parent.name} beside the engine",
    )


def answer_prediction(
    models: Sequence[str], write: str | None, given: Mapping[str, object], answer: Answer
) -> bool:
    """Answer ``validate prediction``; whether every batch predicted to fit does.

    Args:
        models: Those to measure; the usual ones if none are named.
        write: The calibration file to add to, empty for one's own; ``None`` to write nothing.
        given: The GPU, ``local`` or ``None``, and the memory limit.
        answer: Shows the answer.

    Raises:
        InvalidInput: If a value is wrong, or there is nothing to measure and it is asked for.
    """
    if given["gpu"] not in (None, LOCAL):
        raise InvalidInput({"gpu": f"{shown(given['gpu'])} is not here: only {LOCAL} is measured"})
    if given["gpu"] is None and (models or write is not None):
        raise InvalidInput({"gpu": f"give --gpu {LOCAL} to measure on this machine"})
    limit = AnalysisRequest.parse(
        {"model": next(iter(PRESETS)), "gpu": LOCAL} | {n: v for n, v in given.items() if v}
    ).memory_limit_bytes
    with progress() as emit:
        from engine.validation import prediction

        if given["gpu"] is None:
            check = prediction.validate_known()
        else:
            check = prediction.validate_local(models or prediction.MODELS, limit, emit)
    if write is not None:
        path = Path(write) if write else own_file()
        append_residuals(path, [compared.residual for compared in check.comparisons])
        sys.stderr.write(f"{len(check.comparisons)} rows added to {path}\n")
    answer(asdict(check), lambda: render_prediction(check))
    return not check.false_safe_rate
