"""Files of recorded training runs that a member uploads on the page of an analysis."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from django.contrib.auth.models import User
from django.core.files.uploadedfile import UploadedFile

from analyses.bodies import IdTaken
from analyses.models import Analysis, TrainingRun
from analyses.training_runs.services import store_report
from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.records.reading import FIELD, parse_records

MAX_RUNS = 100
_MAX_BYTES = GIB // 1024
_HOST = "an uploaded file"
"""Stands for the host, which a file does not name."""


@dataclass(frozen=True)
class Stored:
    """The training runs of a file.

    Attributes:
        new: Those that the lab did not have, or had without an analysis.
        known: The number of others.
    """

    new: list[TrainingRun]
    known: int


def store_upload(member: User, analysis: Analysis, file: UploadedFile[bytes]) -> Stored:
    """Store the runs in a file as reports of the member; those that name no analysis as this one's.

    Raises:
        InvalidInput: If it is no such file; then none of it is stored.
    """
    name = (file.name or "the file")[:100]
    if (file.size or 0) > _MAX_BYTES:
        raise InvalidInput({FIELD: f"{name} is larger than 1 MiB; upload a part of it"})
    try:
        text = file.read().decode()
    except UnicodeDecodeError as error:
        raise InvalidInput({FIELD: f"{name} cannot be read: {error}"}) from error
    records = parse_records(name, text)
    if len(records) > MAX_RUNS:
        raise InvalidInput({FIELD: f"{name} has more than {MAX_RUNS} runs; upload a part of it"})
    shown = TrainingRun.objects.filter(
        document_id__in=[record.id for record in records], analysis__isnull=False
    )
    known = {str(number) for number in shown.values_list("document_id", flat=True)}
    new = []
    for record in records:
        if record.id in known:
            continue
        named = replace(record, analysis_id=record.analysis_id or analysis.pk)
        report = {"id": record.id, "host": _HOST, "record": named.to_dict()}
        with suppress(IdTaken):  # somebody else has reported it
            new.append(store_report(member, report)[0])
    return Stored(new, len(records) - len(new))
