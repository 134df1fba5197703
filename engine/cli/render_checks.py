"""The engine's checks of itself as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..answer.figures import PEAK_ALLOCATED
from ..core.numbers import UNKNOWN, ms, times
from ..core.sizes import GIB, gib
from ..interface.workload import Workload
from ..prediction.timing.intervals import Counted
from .render import describe, figures_table
from .terminal import section, table

if TYPE_CHECKING:
    from ..measurement.checks import BackwardCheck, Comparison, PredictionCheck
    from ..measurement.compilation import CompileCheck  # load torch


def render_backward(check: BackwardCheck, workload: Workload, where: str) -> RenderableType:
    """Memory of the forward pass alone vs. the whole training step.

    Args:
        check: The result.
        workload: The workload that was trained.
        where: The display name of the device.
    """
    figures = figures_table()
    figures.add_row("Forward pass alone", gib(check.forward_bytes), check.source)
    figures.add_row("Whole training step", gib(check.training_bytes), check.source)
    figures.add_row("Ratio", times(check.ratio), check.source)
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
        (PEAK_ALLOCATED.label, check.eager_peak_bytes, check.compiled_peak_bytes, GIB, 3, "GiB"),
    ]
    for name, eager, compiled, one, digits, unit in rows:
        if eager and compiled is not None:
            shown = (f"{figure / one:,.{digits}f} {unit}" for figure in (eager, compiled))
            figures.add_row(name, *shown, times(compiled / eager), check.source)
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


def _shown(figure: float | None, counted: Counted) -> str:
    if figure is None:
        return UNKNOWN
    if counted is Counted.STEP_SECONDS:
        return ms(figure)
    return gib(figure, 3)


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
