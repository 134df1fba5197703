"""Training runs: each report is stored once, and verifies its analysis if it ran as recommended."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from pydantic import BaseModel, Field

from analyses.bodies import Id, IdTaken, JsonObject, Name, Stored
from analyses.models import Analysis, Training
from analyses.permissions import may_change
from analyses.savings.aggregation import recounting
from analyses.selectors import visible_to
from analyses.stored_result import result_of
from engine.core.border import read_body
from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult
from engine.recording import TrainingRecord
from engine.records import comparison

logger = logging.getLogger(__name__)


class ReportBody(BaseModel):
    """The report of a training run."""

    id: Id
    host: Name
    record: Annotated[
        JsonObject,
        Stored((TrainingRecord,)),
        Field(description="With the id of an analysis of yours, if it belongs to one."),
    ]


def store_report(member: User, given: Mapping[str, Any]) -> tuple[Training, bool]:
    """Store the report of a member's training run: the untrusted fields of :class:`ReportBody`.

    Returns:
        The training run, and whether it is new: the same report twice is stored once.

    Raises:
        InvalidInput: With a message for each wrong field.
        IdTaken: If the id belongs to another report.
    """
    columns = _columns(member, read_body(ReportBody, given))
    try:
        with transaction.atomic():
            return _create(member, columns), True
    except IntegrityError:
        earlier = Training.objects.filter(document_id=columns["document_id"]).first()
        if earlier is None:
            raise
        if earlier.digest != columns["digest"] or earlier.owner_id != member.pk:
            raise IdTaken("this id belongs to another report; create a new one for each") from None
        return earlier, False


def _create(member: User, columns: dict[str, Any]) -> Training:
    """Store a report, and whether it verifies its analysis if that has ended.

    The lock makes a result that arrives now wait, and then find this report. What the run saved is
    counted in the same transaction.
    """
    named = columns["analysis"]
    with recounting(Analysis.objects.filter(pk__in=[named.pk] if named else [])):
        locked = Analysis.objects.select_for_update(no_key=True)
        analysis = locked.filter(pk=named.pk).first() if named else None
        record = TrainingRecord.parse(columns["record"])
        verifies = analysis is not None and _verifies(analysis, record)
        return Training.objects.create(
            owner=member, **columns | {"analysis": analysis, "verifies": verifies}
        )


def verify_reported(analyses: Collection[int]) -> None:
    """Verify analyses with a new result or decision by the training runs reported before.

    Call it in the transaction that stores these, with the analyses locked.
    """
    for run in Training.objects.filter(analysis__in=analyses).select_related("analysis"):
        analysis = run.analysis
        verifies = analysis is not None and _verifies(analysis, TrainingRecord.parse(run.record))
        if verifies != run.verifies:
            Training.objects.filter(pk=run.pk).update(verifies=verifies)


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
    """The analysis named in a report, which the member must be allowed to change."""
    if record.analysis_id is None:
        return None
    analysis = visible_to(member).filter(pk=record.analysis_id).first()
    if analysis is None or not may_change(member, analysis):
        raise InvalidInput({"analysis_id": f"you have no analysis {record.analysis_id}"})
    return analysis


def _verifies(analysis: Analysis, record: TrainingRecord) -> bool:
    """Whether a training run did what this analysis recommends; false while it has no result."""
    result = result_of(analysis)
    if result is None:
        return False
    try:
        request = AnalysisRequest.parse(analysis.request)
    except InvalidInput:
        logger.warning("the request of analysis %s cannot be read", analysis.pk, exc_info=True)
        return False
    return not why_not_verified(request, analysis.measured_gpu, result, record)


def why_not_verified(
    request: AnalysisRequest, measured_gpu: str, result: AnalysisResult, record: TrainingRecord
) -> str:
    """The reason why a training run does not verify the recommendation; empty if it does.

    It must have trained with the recommended batch per device, with the gradient accumulation that
    keeps the global batch (if one is kept), and as :func:`why_not_comparable` says.

    ``request``, ``measured_gpu`` (empty for a prediction) and ``result`` are the analysis's.
    """
    recommended, kept = result.recommended_batch_size, result.global_batch
    if record.timed_steps and record.batch_size != recommended:
        return f"it trained with batch {record.batch_size:,}, not {recommended:,}"
    if kept and record.gradient_accumulation != kept.gradient_accumulation:
        return (
            f"it accumulated {record.gradient_accumulation:,} micro-batches, where "
            f"{kept.gradient_accumulation:,} keep the global batch"
        )
    decided = replace(request, workload=result.workload or request.workload)
    return why_not_comparable(decided, measured_gpu, record)


def why_not_comparable(request: AnalysisRequest, measured_gpu: str, record: TrainingRecord) -> str:
    """The first difference of a training run from the request, batch apart; empty if none."""
    precision = request.workload.precision
    return comparison.why_not_comparable(
        record, request.gpu, request.world_size, precision, measured_gpu
    )
