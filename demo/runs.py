"""Reports of invented training runs.

Their speed and peak memory are the predicted ones, off by as much as predictions were in the median
where others measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import uuid4

from analyses.models import Analysis
from analyses.results.stored import result_of
from engine.answer.amounts import trial_at
from engine.interface.result import AnalysisResult
from engine.interface.trial import Trial
from engine.prediction.timing.past_errors import PredictedQuantity, groups_like
from engine.recording import Loop, TrainingRecord

NODE = "demo"
_RUNS, _DAYS_BETWEEN_RUNS = 6, 9
_MEDIAN_OF_NORMAL = 0.6745
"""Half of all values are closer to the mean than this many standard deviations."""


def reports_of(analysis: Analysis) -> Iterator[dict[str, object]]:
    """Yield reports of runs of every other adopted recommendation."""
    result = result_of(analysis)
    if result is None or analysis.adopted_at is None or analysis.pk % 2:
        return
    trial = trial_at(result, result.recommended_batch_size)
    took = timedelta(hours=analysis.request["hours_per_run"] / (analysis.speedup or 1))
    chance = Random(analysis.pk)  # noqa: S311  # no secret
    for number in range(_RUNS):
        started = analysis.adopted_at + timedelta(days=7 + _DAYS_BETWEEN_RUNS * number)
        report = _report(analysis, result, trial, started, took, chance)
        if report and started + took < datetime.now(UTC):
            yield report


def report_of_today(analysis: Analysis, ended: datetime) -> dict[str, object] | None:
    """The report of a run that still trained with the batch of before; ``None`` without one."""
    result = result_of(analysis)
    if result is None or result.current_batch_size is None:
        return None
    took = timedelta(hours=analysis.request["hours_per_run"])
    trial = trial_at(result, result.current_batch_size)
    chance = Random(analysis.pk)  # noqa: S311  # no secret
    return _report(analysis, result, trial, ended - took, took, chance)


def _report(
    analysis: Analysis,
    result: AnalysisResult,
    trial: Trial | None,
    started: datetime,
    took: timedelta,
    chance: Random,
) -> dict[str, object] | None:
    """A report of a run at a trial's batch; ``None`` where its speed is not known."""
    if trial is None or not trial.step_seconds or not trial.samples_per_second:
        return None
    step_seconds = trial.step_seconds * chance.gauss(1, _usual_error(PredictedQuantity.STEP_TIME))
    of_memory = chance.gauss(1, _usual_error(PredictedQuantity.MEMORY))
    steps = round(took.total_seconds() / step_seconds)
    record = TrainingRecord(
        batch_size=trial.batch_size,
        steps=steps,
        samples=steps * trial.batch_size,
        warm_up_steps=steps - 1,
        timed_steps=1,
        step_seconds=step_seconds,
        samples_per_second=trial.samples_per_second * trial.step_seconds / step_seconds,
        peak_allocated_bytes=_scaled(trial.peak_allocated_bytes, of_memory),
        peak_reserved_bytes=_scaled(trial.peak_reserved_bytes, of_memory),
        device="cuda",
        device_name=result.gpu.name,
        device_total_bytes=result.gpu.total_bytes,
        precision=analysis.precision,
        model_name=analysis.model,
        versions=result.software,
        started_at=started.isoformat(),
        ended_at=(started + took).isoformat(),
        loop=Loop.TRAINER,
        analysis_id=analysis.pk,
    )
    return {"id": str(uuid4()), "host": NODE, "record": record.to_dict()}


def _usual_error(of: PredictedQuantity) -> float:
    """The standard deviation of predictions' errors, from published measurements of all models."""
    (group,) = groups_like(of, "", "")
    return group.errors.median / _MEDIAN_OF_NORMAL


def _scaled(size: int | None, factor: float) -> int | None:
    return None if size is None else round(size * factor)
