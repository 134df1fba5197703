"""Training runs: each report is stored once, and verifies its analysis if it ran as recommended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from pydantic import BaseModel, Field

from analyses.bodies import Id, IdTaken, JsonObject, Name, Stored
from analyses.models import OF_A_PROGRAM, Analysis, TrainingRun
from analyses.permissions import may_change
from analyses.results.stored import result_of
from analyses.savings.aggregation import recounting
from analyses.selectors import visible_to
from analyses.training_runs.matching import request_of, why_not_verified, why_without_its_changes
from analyses.training_runs.outcome import note_run
from engine.core.border import read_body
from engine.core.errors import InvalidInput
from engine.recording import TrainingRecord
from engine.records import comparison

_MAX_RUNS_OF_PROGRAM = 100
"""The newest analyses of a script among which that of a run is looked for."""


class ReportBody(BaseModel):
    """The report of a training run."""

    id: Id
    host: Name
    record: Annotated[
        JsonObject,
        Stored((TrainingRecord,)),
        Field(description="With the id of an analysis of yours, if it belongs to one."),
    ]


def store_report(member: User, given: Mapping[str, Any]) -> tuple[TrainingRun, bool]:
    """Store the report of a member's training run: the untrusted fields of :class:`ReportBody`.

    Returns:
        The training run, and whether it is new: the same report twice is stored once.

    A run that was reported without an analysis may name one later.

    Raises:
        InvalidInput: With a message for each wrong field.
        IdTaken: If the id belongs to another report.
    """
    columns = _columns(member, read_body(ReportBody, given))
    try:
        with transaction.atomic():
            return _create(member, columns), True
    except IntegrityError:
        earlier = TrainingRun.objects.filter(document_id=columns["document_id"]).first()
        if earlier is None:
            raise
        if _names_analysis_now(earlier, member, columns):
            return _attach(earlier, columns), False
        if earlier.digest != columns["digest"] or earlier.owner_id != member.pk:
            raise IdTaken("this id belongs to another report; create a new one for each") from None
        return earlier, False


def _create(member: User, columns: dict[str, Any]) -> TrainingRun:
    """Store a report, and whether it verifies its analysis if that has ended."""
    with _held_against(columns) as known:
        run = TrainingRun.objects.create(owner=member, **columns | known)
        note_run(run)
    return run


def _names_analysis_now(earlier: TrainingRun, member: User, columns: Mapping[str, Any]) -> bool:
    """Whether a report is that of an earlier one, and names an analysis as that did not."""
    if earlier.owner_id != member.pk or earlier.analysis_id or not columns["analysis"]:
        return False
    without = {"analysis_id": None}
    return bool(earlier.record | without == columns["record"] | without)


def _attach(earlier: TrainingRun, columns: dict[str, Any]) -> TrainingRun:
    """Give a stored run the analysis that its report names now."""
    with _held_against(columns) as known:
        changed = {name: columns[name] for name in ("record", "digest")} | known
        TrainingRun.objects.filter(pk=earlier.pk).update(**changed)
        attached = TrainingRun.objects.get(pk=earlier.pk)
        note_run(attached)
    return attached


def attach_earlier(analysis: Analysis) -> None:
    """Give a script's analysis the runs of it that its owner had reported before it was stored.

    Call it in the transaction that stores it.
    """
    earlier = TrainingRun.objects.filter(
        owner=analysis.owner_id,
        analysis=None,
        record__program=analysis.model,
        record__program_hash=analysis.program_hash,
    )
    runs = [
        run
        for run in earlier
        if comparison.is_that_gpu(analysis.gpu, analysis.measured_gpu, run.device_name)
    ]
    with recounting(Analysis.objects.filter(pk=analysis.pk)):
        for run in runs:
            verifies = _verifies(analysis, TrainingRecord.parse(run.record))
            run.analysis, run.verifies = analysis, verifies
            run.save(update_fields=["analysis", "verifies"])
            note_run(run)


@contextmanager
def _held_against(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The analysis of a report, and whether it verifies that, while both are stored.

    The lock makes a result that arrives now wait, and then find this report. What the run saved is
    counted in the same transaction.
    """
    named = columns["analysis"]
    with recounting(Analysis.objects.filter(pk__in=[named.pk] if named else [])):
        locked = Analysis.objects.select_for_update(no_key=True)
        analysis = locked.filter(pk=named.pk).first() if named else None
        record = TrainingRecord.parse(columns["record"])
        verifies = analysis is not None and _verifies(analysis, record)
        yield {"analysis": analysis, "verifies": verifies}


def verify_reported(analyses: Collection[int]) -> None:
    """Verify analyses with a new result or decision by the training runs reported before.

    Call it in the transaction that stores these, with the analyses locked.
    """
    for run in TrainingRun.objects.filter(analysis__in=analyses).select_related("analysis"):
        analysis = run.analysis
        verifies = analysis is not None and _verifies(analysis, TrainingRecord.parse(run.record))
        if verifies != run.verifies:
            run.verifies = verifies
            run.save(update_fields=["verifies"])
            note_run(run)


def _columns(member: User, body: ReportBody) -> dict[str, Any]:
    try:
        record = TrainingRecord.parse(body.record)
        analysis = _analysis(member, record)
    except InvalidInput as error:
        raise InvalidInput(
            {f"record.{name}": text for name, text in error.fields.items()}
        ) from error
    report = json.dumps({"host": body.host, "record": record.to_dict()}, sort_keys=True)
    return {
        "document_id": body.id,
        "digest": hashlib.sha256(report.encode()).hexdigest(),
        "host": body.host,
        "analysis": analysis,
        "record": record.to_dict(),
        "batch_size": record.batch_size,
        "samples_per_second": record.samples_per_second,
        "peak_allocated_bytes": record.peak_allocated_bytes,
        "peak_reserved_bytes": record.peak_reserved_bytes,
        "device_name": record.device_name,
        "gpu_hours": step_gpu_hours(record),
        "recorded_at": datetime.fromisoformat(record.ended_at),
    }


def step_gpu_hours(record: TrainingRecord) -> float:
    """GPU-hours that a training run spent in training steps, measured; 0 if no step was timed.

    Its samples at its median speed, on all its devices, but no more than from its start to its end.
    So evaluations and checkpoints, which no batch size speeds up, are left out.
    """
    if not record.samples_per_second:
        return 0.0
    started, ended = map(datetime.fromisoformat, (record.started_at, record.ended_at))
    seconds = min(record.samples / record.samples_per_second, (ended - started).total_seconds())
    return seconds / 3600 * record.world_size


def _analysis(member: User, record: TrainingRecord) -> Analysis | None:
    """The analysis named in a report, which the member must be allowed to change.

    A run that names a script instead belongs to the member's newest analysis of it on that GPU.
    """
    if record.analysis_id is None:
        return _newest_of_program(member, record) if record.program_hash else None
    analysis = visible_to(member).filter(pk=record.analysis_id).first()
    if analysis is None or not may_change(member, analysis):
        raise InvalidInput({"analysis_id": f"you have no analysis {record.analysis_id}"})
    return analysis


def _newest_of_program(member: User, record: TrainingRecord) -> Analysis | None:
    """The member's newest analysis of the script of a run, on the run's GPU, by name and hash."""
    same = {"owner": member, "model": record.program, "program_hash": record.program_hash}
    found = Analysis.objects.filter(OF_A_PROGRAM, **same).defer("result")
    return next(
        (
            one
            for one in found[:_MAX_RUNS_OF_PROGRAM]
            if comparison.is_that_gpu(one.gpu, one.measured_gpu, record.device_name)
        ),
        None,
    )


def _verifies(analysis: Analysis, record: TrainingRecord) -> bool:
    """Whether a training run did what this analysis recommends; false while it has no result."""
    result, request = result_of(analysis), request_of(analysis)
    if result is None or request is None:
        return False
    differs = why_without_its_changes(analysis, record)
    return not (differs or why_not_verified(request, analysis.measured_gpu, result, record))
