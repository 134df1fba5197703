"""Stores the reports of trainings, each once."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from analyses.engine_events import storable
from analyses.models import Analysis, Training
from analyses.permissions import may_change
from analyses.selectors import visible_to
from analyses.stored_result import result_of
from analyses.trainings.verification import why_not_verified
from engine.errors import InvalidInput
from engine.parsing import plain_text, shown, unknown_fields
from engine.recording import TrainingRecord
from engine.request import AnalysisRequest

logger = logging.getLogger(__name__)

LONGEST_HOST = 200
_FIELDS = {"id", "host", "record"}


class IdTaken(Exception):
    """Another training has been reported with this id; the message says what to do."""


def store_training(member: User, given: Mapping[str, Any]) -> tuple[Training, bool]:
    """Store what a training of the member's has reported.

    Args:
        member: Who trains.
        given: Untrusted: the ``id`` of the report, a UUID; the ``host`` it ran on; the ``record``.

    Returns:
        The training, and whether it is new: the same report twice is stored once.

    Raises:
        InvalidInput: With a message for each wrong field.
        IdTaken: If the id is that of another report.
    """
    columns = _columns(member, given)
    try:
        with transaction.atomic():
            return Training.objects.create(owner=member, **columns), True
    except IntegrityError:
        earlier = Training.objects.filter(document_id=columns["document_id"]).first()
        if earlier is None:
            raise
        if earlier.digest != columns["digest"] or earlier.owner_id != member.pk:
            raise IdTaken("this id is that of another report; give each a new one") from None
        return earlier, False


def _columns(member: User, given: Mapping[str, Any]) -> dict[str, Any]:
    wrong = unknown_fields(given, _FIELDS)
    wrong |= dict.fromkeys(_FIELDS - given.keys(), "is missing")
    if wrong:
        raise InvalidInput(wrong)
    host = given["host"]
    plain_text("host", host, wrong)
    if isinstance(host, str) and len(host) > LONGEST_HOST:
        wrong["host"] = f"give at most {LONGEST_HOST} characters"
    document_id = _uuid(given["id"], wrong)
    record = _record(given["record"], wrong)
    analysis = _analysis(member, record, wrong)
    if wrong or record is None:
        raise InvalidInput(wrong)
    report = json.dumps({"host": host, "record": record.to_dict()}, sort_keys=True)
    return {
        "document_id": document_id,
        "digest": hashlib.sha256(report.encode()).hexdigest(),
        "host": host,
        "analysis": analysis,
        "record": record.to_dict(),
        "batch_size": record.batch_size,
        "samples_per_second": record.samples_per_second,
        "peak_allocated_bytes": record.peak_allocated_bytes,
        "peak_reserved_bytes": record.peak_reserved_bytes,
        "device_name": record.device_name,
        "recorded_at": datetime.fromisoformat(record.ended_at),
        "verifies": analysis is not None and verifies(analysis, record),
    }


def verifies(analysis: Analysis, record: TrainingRecord) -> bool:
    """Whether a training was what this analysis recommends; false while it has no answer."""
    result = result_of(analysis)
    if result is None:
        return False
    try:
        request = AnalysisRequest.parse(analysis.request)
    except InvalidInput:
        logger.warning("the request of analysis %s cannot be read", analysis.pk, exc_info=True)
        return False
    return not why_not_verified(request, analysis.measured_gpu, result, record)


def _uuid(value: object, wrong: dict[str, str]) -> UUID | None:
    try:
        return UUID(value if isinstance(value, str) else "")
    except ValueError:
        wrong["id"] = f"{shown(value)} is no UUID; make one for each training"
        return None


def _record(value: object, wrong: dict[str, str]) -> TrainingRecord | None:
    if not isinstance(value, Mapping):
        wrong["record"] = "give a JSON object"
        return None
    if storable(json.dumps(value, ensure_ascii=False)) != json.dumps(value, ensure_ascii=False):
        wrong["record"] = "it has half a surrogate pair in a text; remove it"
        return None
    try:
        return TrainingRecord.parse(value)
    except InvalidInput as error:
        wrong |= {f"record.{name}": message for name, message in error.fields.items()}
        return None


def _analysis(
    member: User, record: TrainingRecord | None, wrong: dict[str, str]
) -> Analysis | None:
    """The analysis that a training says it belongs to; one of the member's own, unless an admin."""
    if record is None or record.analysis_id is None:
        return None
    analysis = visible_to(member).filter(pk=record.analysis_id).first()
    if analysis is None or not may_change(member, analysis):
        wrong["record.analysis_id"] = f"you have no analysis {record.analysis_id}"
        return None
    return analysis
