"""The commands ``validate backward``, ``validate compile`` and ``validate prediction``.

What loads torch is imported inside, for the reason that :mod:`engine.cli.main` gives.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import InvalidInput
from ..gpus import GIB, GPUS, LOCAL
from ..models.presets import PRESETS
from ..parsing import shown
from ..prediction.intervals import OWN, OWN_FILE_VARIABLE, Counted, append_residuals, own_file
from ..request import AnalysisRequest
from ..workload import Workload
from .commands import FAILED, OK, given_fields, request_of
from .render import describe, figures_table, gib
from .terminal import answer, progress, section, table

if TYPE_CHECKING:
    from ..measurement.checks import BackwardCheck, Comparison, PredictionCheck
    from ..measurement.compilation import CompileCheck  # load torch


def backward(options: argparse.Namespace) -> int:
    request = request_of(options)
    with progress():
        from ..measurement.checks import validate_backward

        check = validate_backward(request.workload, request.current_batch_size, request.gpu)
    where = "this machine" if request.gpu == LOCAL else GPUS[request.gpu].display_name
    answer(options, asdict(check), lambda: render_backward(check, request.workload, where))
    return OK if check.passed else FAILED


def compiling(options: argparse.Namespace) -> int:
    """Run ``validate compile``. The status is 0 whether compiling pays off or not."""
    request = AnalysisRequest.parse(given_fields(options) | {"gpu": LOCAL})
    with progress() as emit:
        from ..measurement.compilation import validate_compile

        check = validate_compile(request.workload, request.current_batch_size, emit)
    answer(options, asdict(check), lambda: render_compile(check))
    return OK


def add_prediction_flags(parser: Any) -> None:
    """Add what ``validate prediction`` takes: any number of models, including none."""
    parser.add_argument("models", metavar="MODEL", nargs="*", help=", ".join(PRESETS))
    parser.add_argument(
        "--gpu", metavar=LOCAL, help="measure on this machine; without it nothing is run"
    )
    parser.add_argument(
        "--write",
        metavar="PATH",
        nargs="?",
        const="",
        help=f"append the results to a calibration file; default ${OWN_FILE_VARIABLE}, or "
        f"{OWN.name} in the folder {OWN.parent.name} beside the engine",
    )


def prediction(options: argparse.Namespace) -> int:
    """Run ``validate prediction``: every batch predicted to fit must fit.

    Raises:
        InvalidInput: If a value is wrong, or measuring is requested on another GPU than this one.
    """
    given = given_fields(options)
    if given["gpu"] not in (None, LOCAL):
        raise InvalidInput({"gpu": f"{shown(given['gpu'])} is not here; only {LOCAL} is measured"})
    if given["gpu"] is None and (options.models or options.write is not None):
        raise InvalidInput({"gpu": f"give --gpu {LOCAL} to measure on this machine"})
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
        path = Path(options.write) if options.write else own_file()
        append_residuals(path, [compared.residual for compared in check.comparisons])
        sys.stderr.write(f"{len(check.comparisons)} rows added to {path}\n")
    answer(options, asdict(check), lambda: render_prediction(check))
    return FAILED if check.false_safe_rate else OK


def render_backward(check: BackwardCheck, workload: Workload, where: str) -> RenderableType:
    """Memory of the forward pass alone vs. the whole training step.

    Args:
        check: The result.
        workload: What was trained.
        where: The display name of the device.
    """
    figures = figures_table()
    figures.add_row("Forward pass alone", gib(check.forward_bytes), check.source)
    figures.add_row("Whole training step", gib(check.training_bytes), check.source)
    figures.add_row("Ratio", f"{check.ratio:.2f}", check.source)
    return Group(
        Text(f"{describe(workload)}, on {where}"),
        Text(check.verdict, style="bold green" if check.passed else "bold red"),
        section(f"Peak allocated at batch {check.batch_size:,}", figures),
    )


def render_compile(check: CompileCheck) -> RenderableType:
    figures = table()
    figures.add_column("", style="cyan", no_wrap=True)
    for heading in ("eager", "compiled", "compiled\nvs. eager"):
        figures.add_column(heading, justify="right", no_wrap=True)
    figures.add_column("source", style="dim")
    rows: list[tuple[str, float | None, float | None, float, int, str]] = [
        ("First step", check.eager_first_seconds, check.compiled_first_seconds, 1, 2, "s"),
        (
            "First step, cached",
            check.eager_first_seconds,
            check.cached_first_seconds,
            1,
            2,
            "s",
        ),
        ("Step", check.eager_step_seconds, check.compiled_step_seconds, 1e-3, 2, "ms"),
        ("Peak allocated", check.eager_peak_bytes, check.compiled_peak_bytes, GIB, 3, "GiB"),
    ]
    for name, eager, compiled, one, digits, unit in rows:
        if eager and compiled is not None:
            shown = (f"{figure / one:,.{digits}f} {unit}" for figure in (eager, compiled))
            figures.add_row(name, *shown, f"{compiled / eager:.2f}", check.source)
    return Group(
        Text(check.verdict, style="bold green" if check.passed else "bold yellow"),
        section(f"Batch {check.batch_size:,} on {check.device}", figures),
    )


def render_prediction(check: PredictionCheck) -> RenderableType:
    parts: list[RenderableType] = [
        Text(check.verdict, style="bold green" if not check.false_safe_rate else "bold red"),
        section("Predicted vs. measured", _comparisons(check)),
    ]
    if check.fits:
        parts.append(section("Does it fit?", _fits(check)))
    return Group(*parts)


def _comparisons(check: PredictionCheck) -> Table:
    shown = table()
    for heading in ("model", "gpu", "counted"):
        shown.add_column(heading, overflow="fold")
    for heading in ("batch", "predicted", "measured", "error"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for compared in check.comparisons:
        shown.add_row(*_figure_row(compared))
    return shown


def _figure_row(compared: Comparison) -> list[str]:
    residual = compared.residual
    counted = residual.counted.removesuffix("_bytes").replace("_", " ")
    counted += ", forward only" if residual.forward_only else ""
    return [
        str(residual.workload["model"]),
        residual.gpu,
        counted,
        f"{residual.batch_size:,}",
        *(_shown(figure, residual.counted) for figure in (residual.predicted, residual.measured)),
        f"{100 * compared.error:+.2f}%",
    ]


def _shown(figure: float, counted: Counted) -> str:
    if counted is Counted.STEP_SECONDS:
        return f"{1e3 * figure:,.1f} ms"
    return f"{figure / GIB:,.3f} GiB"


def _fits(check: PredictionCheck) -> Table:
    shown = table()
    shown.add_column("model")
    shown.add_column("batch", justify="right")
    shown.add_column("predicted")
    shown.add_column("measured")
    for fit in check.fits:
        wrong = fit.predicted and not fit.measured
        words = ("fits" if fits else "does not fit" for fits in (fit.predicted, fit.measured))
        shown.add_row(fit.model, f"{fit.batch_size:,}", *words, style="red" if wrong else "")
    return shown
