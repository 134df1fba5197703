"""The page of GPU-hours seen, with its CSV files: training jobs that reported themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from analyses.formatting import gpu_name, model_name
from analyses.models import TrainingJob
from analyses.pages.access import MemberRequest
from analyses.pages.long_tables import long_table
from analyses.pages.new.form import NO_BATCH
from analyses.pages.new.values import typed_values
from analyses.savings.period import Named
from analyses.selectors import training_jobs_visible_to
from analyses.training_jobs.gpu_hours import (
    DIMENSIONS,
    GpuHoursRow,
    Selection,
    most_unused,
    rows_by,
    sum_of,
)
from engine.core.errors import InvalidInput
from engine.jobs.record import Reporter
from memorymark_site.operations.csv_text import Cell, csv_file

_UNKNOWN = {"gpu": "not reported", "member": "not reported", "model": "not logged"}
_TOTAL_COLUMNS = (
    "jobs", "gpu_hours", "gpu_hours_with_known_memory", "mean_used_bytes", "mean_total_bytes",
    "unused_byte_hours",
)  # fmt: skip
_JOB_COLUMNS = (
    "reporter", "id", "name", "member", "user", "model", "gpu", "gpus", "started_at", "ended_at",
    "running", "gpu_hours", "used_bytes", "total_bytes", "unused_byte_hours",
    "samples_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class UnusedMemory:
    """A job with much unused memory.

    Attributes:
        about: What is known of its settings, for people to read.
        runs: Reporters of the runs that are part of it; empty where there are none.
        question: Address of the form of an analysis, filled in as far as they are known.
    """

    job: TrainingJob
    about: str
    runs: str
    question: str


@require_safe
def gpu_hours(request: MemberRequest) -> HttpResponse:
    """Render where memory and hours went, and the jobs with the most unused memory."""
    selection, rows = _rows(request)
    jobs = training_jobs_visible_to(request.user)
    shown = most_unused(selection.of(jobs))
    table = long_table(rows, request.GET.dict(), selection.query())
    context = {
        "nav": "gpu-hours",
        "selection": selection,
        "period": selection.days,
        "period_name": "in all" if selection.days.is_all else selection.days.name,
        "chosen_period": "" if selection.from_ or selection.to else selection.period or Named.YEAR,
        "periods": [(named, selection.query(period=named, from_="", to="")) for named in Named],
        "dimensions": [(name, selection.query(by=name)) for name in DIMENSIONS],
        "query": selection.query(),
        "total": sum_of(rows),
        "matched": selection.matched(jobs).count(),
        "table": table,
        "rows": [(label_of(selection.by, row), row.hours) for row in table.rows],
        "largest": [_unused(job) for job in shown],
        "is_empty": not rows and not jobs.exists(),
        "reporters": [reporter.label for reporter in Reporter],
    }
    return render(request, "gpu_hours/gpu_hours.html", context)


@require_safe
def totals_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Every row of the table of totals."""
    selection, rows = _rows(request)
    lines = ([label_of(selection.by, row), *_total_cells(row)] for row in rows)
    name = f"gpu-hours-by-{selection.by}.csv"
    return csv_file(name, [selection.by, *_TOTAL_COLUMNS], lines)


@require_safe
def largest_as_csv(request: MemberRequest) -> HttpResponseBase:
    """Export the jobs with the most unused memory, as the page lists them."""
    selection = _selection(request)
    jobs = most_unused(selection.of(training_jobs_visible_to(request.user)))
    return csv_file("gpu-hours-most-unused.csv", _JOB_COLUMNS, map(_job_cells, jobs))


def _selection(request: MemberRequest) -> Selection:
    try:
        return Selection.parse(request.GET.dict())
    except InvalidInput as error:
        raise Http404(f"These GPU-hours cannot be shown: {error}.") from error


def _rows(request: MemberRequest) -> tuple[Selection, list[GpuHoursRow]]:
    selection = _selection(request)
    return selection, rows_by(selection.of(training_jobs_visible_to(request.user)), selection.by)


def label_of(dimension: str, row: GpuHoursRow) -> str:
    """The name of a row as people read it."""
    if not row.key:
        return _UNKNOWN[dimension]
    if dimension == "member":
        return row.key
    return gpu_name(row.key) if dimension == "gpu" else model_name(row.key)


def _unused(job: TrainingJob) -> UnusedMemory:
    runs = {run.reporter_name for run in job.runs.all()}
    return UnusedMemory(job, about(job), " and ".join(sorted(runs)), question(job))


def about(job: TrainingJob) -> str:
    """The settings that a job has logged, in short."""
    known = job.request
    parts = [
        f"batch {known['current_batch_size']:,}" if "current_batch_size" in known else "",
        str(known.get("precision", "")),
        f"{known['sequence_length']:,} tokens" if "sequence_length" in known else "",
        str(known.get("optimizer", "")),
    ]
    return ", ".join(filter(None, parts))


def question(job: TrainingJob) -> str:
    """The address of the form that asks what to change about a job.

    A model or batch that is not known is left for the member to enter.
    """
    fields: dict[str, Any] = dict(job.request)
    if job.gpu:
        fields["gpu"] = job.gpu
    typed = typed_values(fields)
    if "current_batch_size" not in fields:
        typed[NO_BATCH] = "on"
    return f"{reverse('analyses:new')}?{urlencode(typed)}"


def _total_cells(row: GpuHoursRow) -> list[Cell]:
    hours = row.hours
    return [
        hours.jobs, hours.gpu_hours, hours.known_gpu_hours, hours.used_bytes, hours.total_bytes,
        hours.unused_byte_hours,
    ]  # fmt: skip


def _job_cells(job: TrainingJob) -> list[Cell]:
    return [
        job.reporter, job.external_id, job.name, job.owner.get_username() if job.owner else "",
        job.user, model_name(job.model), gpu_name(job.gpu) or job.device_name, job.gpus,
        job.started_at.isoformat(), job.ended_at.isoformat(), "yes" if job.is_running else "no",
        job.gpu_hours, job.used_bytes, job.total_bytes, job.unused_byte_hours,
        job.samples_per_second,
    ]  # fmt: skip
