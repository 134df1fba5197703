"""What is sent to a lab to be kept: documents with a version and an id of their own."""

from __future__ import annotations

import platform
import socket
import uuid
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from engine.fingerprint import fingerprint
from engine.recording.record import TrainingRecord
from engine.request import AnalysisRequest, Assumptions
from engine.result import AnalysisResult

SCHEMA_VERSION = 1
"""Of the document of an analysis; the lab refuses one that it does not know."""

_ASSUMED = {field.name for field in fields(Assumptions)}
_PACKAGES = ("torch", "transformers", "peft")


def analysis_document(
    request: AnalysisRequest,
    result: AnalysisResult,
    *,
    started_at: datetime,
    finished_at: datetime,
    ran: str,
    assumed: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """An analysis that ran here, for the history of a lab.

    Args:
        request: What was asked.
        result: What came out; its trials are those of the analysis.
        started_at: When it began; with a zone.
        finished_at: When it ended.
        ran: What ran, such as ``python -m engine analyze``.
        assumed: Those of hours, runs and price that somebody really gave. The lab assumes the
            others as it does for its own analyses, and counts savings by them.

    Returns:
        Plain JSON values, with an id by which the lab keeps it once.
    """
    given = {name: value for name, value in (assumed or {}).items() if value not in (None, "")}
    asked = {name: value for name, value in request.to_dict().items() if name not in _ASSUMED}
    return {
        "schema_version": SCHEMA_VERSION,
        "id": str(uuid.uuid4()),
        "request": asked | {name: given[name] for name in _ASSUMED & given.keys()},
        "result": result.to_dict(),
        "started_at": started_at.astimezone(UTC).isoformat(),
        "finished_at": finished_at.astimezone(UTC).isoformat(),
        "origin": {"host": socket.gethostname(), "ran": ran},
        "environment": environment(),
    }


def training_document(record: TrainingRecord) -> dict[str, object]:
    """What a training here used, with an id by which the lab keeps it once."""
    return {"id": str(uuid.uuid4()), "host": socket.gethostname(), "record": record.to_dict()}


def environment() -> dict[str, str]:
    """The versions that an analysis ran with here, by name."""
    found = {"engine": fingerprint(), "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
