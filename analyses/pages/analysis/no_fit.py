"""The first screen of an answer that nothing makes fit: what it needs, and which GPU has that."""

from __future__ import annotations

from dataclasses import dataclass, field

from analyses.charts.breakdown import used_bytes
from analyses.formatting import gpu_name
from analyses.models import Analysis
from analyses.pages.analysis.first_screen import UseBar, use_bar
from analyses.pages.analysis.gpu_rows import GpuComparison
from analyses.results.stored import tried_batch
from engine.core.numbers import whole
from engine.gpus import GPUS


@dataclass(frozen=True)
class NoFit:
    """Facts about a workload whose smallest batch does not fit.

    Attributes:
        bars: The memory of the smallest batch, on the scale of the GPU's; empty if unknown.
        elsewhere: Which GPUs of the catalogue would hold it, in sentences; empty if unknown.
    """

    bars: list[UseBar] = field(default_factory=list)
    elsewhere: str = ""


def no_fit_of(analysis: Analysis, gpus: GpuComparison | None) -> NoFit:
    """The first screen of an analysis that does not fit.

    Args:
        analysis: The analysis.
        gpus: The same workload on the GPUs of the catalogue, if its plan knows.
    """
    return NoFit(_bars(analysis), _elsewhere(gpus) if gpus else "")


def _bars(analysis: Analysis) -> list[UseBar]:
    """One bar, of the smallest batch that was tried; none if its or the GPU's memory is unknown."""
    smallest = analysis.trials.order_by("batch_size", "-id").first()
    total = _total_bytes(analysis)
    if smallest is None or total is None:
        return []
    trial = tried_batch(smallest)
    used = used_bytes(trial)
    if used is None:
        return []
    title = f"The smallest batch, {whole(trial.batch_size)}, on {gpu_name(analysis.gpu)}"
    limit = min(100.0, round(100 * total / used, 3))  # true to scale, however much it needs
    return [use_bar("current", title, trial, total, limit)]


def _total_bytes(analysis: Analysis) -> int | None:
    """The GPU's memory or the lower limit; ``None`` of a GPU that is measured without a limit."""
    limit = analysis.request.get("memory_limit_bytes")
    known = [GPUS[analysis.gpu].total_bytes] if analysis.gpu in GPUS else []
    return min([*known, int(limit)] if limit else known, default=None)


def _elsewhere(gpus: GpuComparison) -> str:
    if not any(row.fits for row in gpus.rows):
        return "Nor does it fit on any other catalogue GPU."
    return gpus.best
