"""The prediction for the settings of the form, as the panel beside it shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from analyses.charts.breakdown import MemoryBar, memory_bar
from analyses.charts.picture import Fit, fit_of
from analyses.figures.settings import input_size
from analyses.formatting import tokens_per_second
from analyses.models import Query, QueryStatus
from engine.answer.figures import SPEED, STEP_TIME
from engine.core.border import read_json
from engine.core.errors import InvalidInput
from engine.core.numbers import whole
from engine.core.sizes import gib, gib_number
from engine.interface.tokens import Tokens, tokens_of
from engine.interface.trial import Trial
from engine.run import Predicted

OLD_VERSION = "Another version of MemoryMark stored this prediction. Change a field to try again."
NOT_WANTED = "This prediction was cancelled. Change a field to try again."


@dataclass(frozen=True)
class Preview:
    """The contents of the panel.

    Attributes:
        headline: The prediction in short, or why there is none.
        fits: Whether the batch fits; ``None`` if that is not known.
        source: Source of the numbers: predicted or computed.
        speed: Empty if the batch does not fit.
        problems: The label of each wrong field, and what to do.
    """

    headline: str = ""
    fits: bool | None = None
    source: str = ""
    memory: str = ""
    speed: str = ""
    notes: list[str] = field(default_factory=list)
    bar: MemoryBar | None = None
    problems: list[tuple[str, str]] = field(default_factory=list)


def preview_of(query: Query, measured_gpu: str = "") -> Preview:
    """The panel that a final ``predict`` query fills.

    ``measured_gpu`` is the lab's GPU that an analysis would measure on, if any.
    """
    if query.status == QueryStatus.DROPPED:
        return Preview(headline=NOT_WANTED)
    if query.status == QueryStatus.FAILED:
        return _failed(query.failure or {})
    try:
        predicted = read_json(Predicted, query.answer)
    except InvalidInput:
        return Preview(headline=OLD_VERSION)
    shown = _answered(predicted, input_size(query.request), tokens_of(query.request), measured_gpu)
    if query.request.get("current_batch_size", 1) is None and predicted.trial.fits:
        start = f"Start with batch {whole(predicted.trial.batch_size)}"
        shown = replace(shown, headline=f"{start}. {shown.headline}")
    return shown


def _failed(failure: Mapping[str, Any]) -> Preview:
    fields = failure.get("fields") or {}
    reason = "; ".join(fields.values()) or str(failure.get("reason", ""))
    return Preview(headline=f"Can't predict: {reason}")


def _answered(predicted: Predicted, size: str, tokens: Tokens | None, measured_gpu: str) -> Preview:
    trial, gpu, total = predicted.trial, predicted.gpu.name, predicted.gpu.total_bytes
    used, high = trial.device_used_bytes or 0, trial.device_used_high_bytes
    batch, needs = f"Batch {whole(trial.batch_size)}", gib(used)
    if size:  # often the model's default, which an empty field does not show
        batch += f" at {size}"
    if trial.device_used_low_bytes is not None and high is not None:
        needs += f" ({gib_number(trial.device_used_low_bytes)} to {gib_number(high)})"
    memory = f"{batch} uses {needs} of the {gib(total)} of {gpu}."
    notes = []
    fit = fit_of(trial, total)
    if fit is Fit.FITS:
        headline = f"Yes, it fits, with {gib(total - used)} free"
    elif fit is Fit.UNCERTAIN:
        headline = f"Maybe: at most {gib((high or total) - total)} too much"
        notes.append("It would not fit at the high end of the prediction.")
    else:
        headline = f"No, it does not fit: {gib(used - total)} too much"
        memory = f"{batch} needs {needs}; {gpu} has {gib(total)}."
    if measured_gpu:
        notes.append(f"Predicted for the catalogue's {gpu}. Analyze measures on your lab's own.")
    return Preview(
        headline=headline,
        fits=trial.fits,
        source=trial.source,
        memory=memory,
        speed=_speed(trial, tokens),
        notes=notes,
        bar=memory_bar("recommended" if trial.fits else "current", "Batch", trial, total),
    )


def _speed(trial: Trial, tokens: Tokens | None) -> str:
    if trial.step_seconds is None or trial.samples_per_second is None:
        return ""
    speed = f"A step takes {STEP_TIME.text(trial.step_seconds)}"
    if trial.step_seconds_low is not None and trial.step_seconds_high is not None:
        speed += f" ({STEP_TIME.range(trial.step_seconds_low, trial.step_seconds_high)})"
    counted = tokens_per_second(trial.samples_per_second, tokens)
    speed += f": {SPEED.number(trial.samples_per_second)} samples per second"
    return f"{speed}, {counted}." if counted else f"{speed}."
