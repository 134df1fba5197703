"""The CSV files of the overview's charts: exactly what they show, unrounded."""

from __future__ import annotations

from collections.abc import Iterable

from django.http import StreamingHttpResponse

from analyses.models import StatusGroup
from analyses.overview.accuracy import Accuracy
from analyses.overview.fullness import GpuUse
from analyses.overview.weeks import Week
from analyses.training_runs.prediction_errors import Compared
from engine.prediction.timing.past_errors import PredictedQuantity
from memorymark_site.operations.csv_text import Cell, csv_file

_UNITS = {PredictedQuantity.MEMORY: "bytes", PredictedQuantity.STEP_TIME: "seconds"}


def weeks_csv(weeks: Iterable[Week]) -> StreamingHttpResponse:
    head = ["week_from", *StatusGroup]
    return csv_file("analyses-by-week.csv", head, map(_week_cells, weeks))


def _week_cells(week: Week) -> list[Cell]:
    return [week.monday.isoformat(), *week.counts.values()]


def gpus_csv(kinds: Iterable[GpuUse]) -> StreamingHttpResponse:
    head = (
        "gpu", "memory_bytes", "workloads", "median_share_in_use", "median_share_if_recommended",
        "sources",
    )  # fmt: skip
    return csv_file("gpu-memory-in-use.csv", head, map(_gpu_cells, kinds))


def _gpu_cells(kind: GpuUse) -> list[Cell]:
    return [
        kind.name, kind.total_bytes, kind.workloads, kind.now, kind.recommended,
        " and ".join(kind.sources),
    ]  # fmt: skip


def predictions_csv(accuracies: Iterable[Accuracy]) -> StreamingHttpResponse:
    head = (
        "predicted", "unit", "analysis", "model", "gpu", "batch_size", "prediction",
        "measurement", "error",
    )  # fmt: skip
    compared = (one for accuracy in accuracies for one in accuracy.compared)
    return csv_file("predictions-vs-measurements.csv", head, map(_compared_cells, compared))


def _compared_cells(one: Compared) -> list[Cell]:
    return [
        one.of, _UNITS[one.of], one.analysis_id, one.model, one.gpu, one.batch_size,
        one.predicted, one.measured, one.error,
    ]  # fmt: skip
