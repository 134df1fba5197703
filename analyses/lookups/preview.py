"""What the page of a new analysis says of the settings as they are typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analyses.charts.memory_bars import MemoryBar, memory_bar
from analyses.formatting import gib, gib_with_unit, milliseconds, significant, whole
from analyses.models import Lookup, LookupStatus
from analyses.question import input_size
from analyses.stored_result import UNREADABLE, read_trial
from engine.result import Trial

OLD_VERSION = "Another version of MemoryMark stored this answer; change a field to ask again."
NOT_WANTED = "This was not asked for any more. Change a field to ask again."


@dataclass(frozen=True)
class Preview:
    """What the panel shows.

    Attributes:
        headline: The answer in a few words, or why there is none.
        fits: Whether the batch fits; ``None`` where that is not known.
        memory: Of the batch on the GPU, with its range.
        speed: Of a step, with its range; empty where the batch does not fit.
        notes: What else is to be known.
        bar: Of the memory.
        problems: What is wrong with the settings: the field's label and what to do.
    """

    headline: str = ""
    fits: bool | None = None
    memory: str = ""
    speed: str = ""
    notes: list[str] = field(default_factory=list)
    bar: MemoryBar | None = None
    problems: list[tuple[str, str]] = field(default_factory=list)


def preview_of(lookup: Lookup, measured_gpu: str = "") -> Preview:
    """A final lookup in words.

    Args:
        lookup: Of one batch size.
        measured_gpu: The lab's own GPU that an analysis would measure on; empty for none.
    """
    if lookup.status == LookupStatus.DROPPED:
        return Preview(headline=NOT_WANTED)
    if lookup.status == LookupStatus.FAILED:
        return _failed(lookup.failure or {})
    try:
        answer: Mapping[str, Any] = lookup.answer or {}
        name, total = str(answer["gpu"]["name"]), int(answer["gpu"]["total_bytes"])
        trial = read_trial(answer["trial"])
    except UNREADABLE:
        return Preview(headline=OLD_VERSION)
    return _answered(trial, input_size(lookup.request), name, total, measured_gpu)


def _failed(failure: Mapping[str, Any]) -> Preview:
    fields = failure.get("fields") or {}
    reason = "; ".join(fields.values()) or str(failure.get("reason", ""))
    return Preview(headline=f"Not predicted: {reason}")


def _answered(trial: Trial, size: str, gpu: str, total: int, measured_gpu: str) -> Preview:
    used, high = trial.device_used_bytes or 0, trial.device_used_high_bytes
    batch, needs = f"Batch {whole(trial.batch_size)}", gib_with_unit(used)
    if size:  # often the model's default, which the form's empty field does not tell
        batch += f" at {size}"
    if trial.device_used_low_bytes is not None and high is not None:
        needs += f" ({gib(trial.device_used_low_bytes)} to {gib(high)})"
    if trial.fits:
        headline = f"It fits, {gib_with_unit(total - used)} unused"
        memory = f"{batch} uses {needs} of the {gib_with_unit(total)} of {gpu}."
    else:
        headline = f"It does not fit: {gib_with_unit(used - total)} too much"
        memory = f"{batch} needs {needs}; {gpu} has {gib_with_unit(total)}."
    notes = []
    if trial.fits and (high or 0) > total:
        notes.append("At the high end of the prediction it does not fit.")
    if measured_gpu:
        notes.append(f"Predicted for the catalogue's {gpu}; Analyze measures on the lab's own.")
    return Preview(
        headline=headline,
        fits=trial.fits,
        memory=memory,
        speed=_speed(trial),
        notes=notes,
        bar=memory_bar("recommended" if trial.fits else "current", "Batch", trial, total),
    )


def _speed(trial: Trial) -> str:
    if trial.step_seconds is None or trial.samples_per_second is None:
        return ""
    speed = f"A step takes {milliseconds(trial.step_seconds)} ms"
    if trial.step_seconds_low is not None and trial.step_seconds_high is not None:
        low, high = milliseconds(trial.step_seconds_low), milliseconds(trial.step_seconds_high)
        speed += f" ({low} to {high})"
    return f"{speed}: {significant(trial.samples_per_second)} samples per second."
