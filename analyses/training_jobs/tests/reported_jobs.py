"""Training jobs for tests, as ``memorymark import`` sends them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from analyses.models import TrainingJob
from analyses.training_jobs.services import import_jobs
from engine.core.sizes import GIB

USED_BYTES, TOTAL_BYTES = 26 * GIB, 80 * GIB


def job_body(**changes: Any) -> dict[str, Any]:
    """A job of two hours on two GPUs that ended today."""
    ended = min(timezone.now(), datetime.now(UTC))
    return {
        "reporter": "slurm",
        "id": "della/1",
        "user": "grace",
        "device_name": "NVIDIA A100-SXM4-80GB",
        "gpus": 2,
        "started_at": (ended - timedelta(hours=2)).isoformat(),
        "ended_at": ended.isoformat(),
        "is_running": False,
        "device_total_bytes": TOTAL_BYTES,
        "used_bytes": USED_BYTES,
        "samples_per_second": 120.5,
        "name": "finetune",
        "request": {
            "model": "bert",
            "current_batch_size": 16,
            "precision": "bf16-mixed",
            "sequence_length": 512,
        },
    } | changes


def make_training_job(member: User, **changes: Any) -> TrainingJob:
    """Store a job as an import of the member does."""
    body = job_body(user=member.get_username(), **changes)
    imported = import_jobs(member, {"jobs": [body]})
    assert not imported.refused, imported.refused
    return TrainingJob.objects.get(reporter=body["reporter"], external_id=body["id"])
