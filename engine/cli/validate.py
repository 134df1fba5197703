"""The commands ``validate backward``, ``validate compile`` and ``validate prediction``.

What loads torch or rich is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from ..core.process import CALIBRATION_VARIABLE, calibration_file
from ..gpus import GPUS, LOCAL
from ..interface.request import AnalysisRequest
from ..models.presets import PRESETS
from ..prediction.timing.intervals import append_residuals
from .commands import given_fields, request_of
from .terminal import FAILED, OK, answer, progress


def backward(options: argparse.Namespace) -> int:
    from .render_checks import render_backward

    request = request_of(options)
    with progress():
        from ..measurement.checks import validate_backward

        check = validate_backward(request.workload, request.known_batch_size, request.gpu)
    where = "this machine" if request.gpu == LOCAL else GPUS[request.gpu].display_name
    answer(options, asdict(check), lambda: render_backward(check, request.workload, where))
    return OK if check.passed else FAILED


def compiling(options: argparse.Namespace) -> int:
    """Run ``validate compile``. The status is 0 whether compiling pays off or not."""
    from .render_checks import render_compile

    request = AnalysisRequest.parse(given_fields(options) | {"gpu": LOCAL})
    with progress() as emit:
        from ..measurement.compilation import validate_compile

        check = validate_compile(request.workload, request.known_batch_size, emit)
    answer(options, asdict(check), lambda: render_compile(check))
    return OK


def add_prediction_flags(parser: Any) -> None:
    """Add what ``validate prediction`` takes: any number of models, including none."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help="such as `models` lists")
    parser.add_argument(
        "--gpu", metavar=LOCAL, help="measure on this machine; without it nothing is run"
    )
    parser.add_argument(
        "--write",
        metavar="PATH",
        nargs="?",
        const="",
        help=f"append the results to a calibration file; default ${CALIBRATION_VARIABLE}, or "
        "~/.local/state/memorymark/calibration.toml",
    )


def prediction(options: argparse.Namespace) -> int:
    """Run ``validate prediction``: every batch predicted to fit must fit.

    Raises:
        InvalidInput: If a value is wrong, or measuring is requested on another GPU than this one.
    """
    from .render_checks import render_prediction

    given = given_fields(options)
    if given["gpu"] not in (None, LOCAL):
        raise InvalidInput({"gpu": f"{shown(given['gpu'])} is not here; only {LOCAL} is measured"})
    if given["gpu"] is None and (options.models or options.write is not None):
        raise InvalidInput({"gpu": f"pass --gpu {LOCAL} to measure on this machine"})
    limit = AnalysisRequest.parse(
        {"model": next(iter(PRESETS)), "gpu": LOCAL} | {n: v for n, v in given.items() if v}
    ).memory_limit_bytes
    with progress() as emit:
        from ..measurement import checks

        if given["gpu"] is None:
            check = checks.validate_known()
        else:
            check = checks.validate_local(options.models or checks.MODELS, limit, emit)
    if options.write is not None:
        path = Path(options.write) if options.write else calibration_file()
        append_residuals(path, [compared.residual for compared in check.comparisons])
        sys.stderr.write(f"{len(check.comparisons)} rows added to {path}\n")
    answer(options, asdict(check), lambda: render_prediction(check))
    return FAILED if check.false_safe_rate else OK
