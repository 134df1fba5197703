"""The checks that measure, as rich tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from engine.cli.tables import section, table
from engine.gpus import GIB
from engine.prediction.intervals import Counted

if TYPE_CHECKING:
    from engine.validation.compile import CompileCheck  # load torch
    from engine.validation.prediction import Comparison, PredictionCheck


def render_compile(check: CompileCheck) -> RenderableType:
    """Eager steps against compiled ones."""
    figures = table()
    figures.add_column("", style="cyan", no_wrap=True)
    for heading in ("eager", "compiled", "compiled\nover eager"):
        figures.add_column(heading, justify="right", no_wrap=True)
    figures.add_column("source", style="dim")
    rows: list[tuple[str, float | None, float | None, float, int, str]] = [
        ("First step", check.eager_first_seconds, check.compiled_first_seconds, 1, 2, "s"),
        (
            "First, compiled before",
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
    """Predicted against measured figures, then which batches fitted."""
    parts: list[RenderableType] = [
        Text(check.verdict, style="bold green" if not check.false_safe_rate else "bold red"),
        section("Predicted against measured", _figures(check)),
    ]
    if check.fits:
        parts.append(section("Does it fit?", _fits(check)))
    return Group(*parts)


def _figures(check: PredictionCheck) -> Table:
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
        f"{100 * compared.error:+.2f} %",
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
