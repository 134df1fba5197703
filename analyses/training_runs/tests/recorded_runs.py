"""Training runs as a recorder writes them and a client reports them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from uuid import uuid4

from engine.recording import Loop, TrainingRecord


def recorded_run(**changes: Any) -> TrainingRecord:
    """A run on an A10 as :func:`~analyses.tests.factories.make_result` recommends."""
    return replace(
        TrainingRecord(
            batch_size=128,
            steps=100,
            samples=12_800,
            warm_up_steps=5,
            timed_steps=95,
            device="cuda",
            device_name="NVIDIA A10",
            device_total_bytes=23_696_375_808,
            started_at="2026-03-01T12:00:00+00:00",
            ended_at="2026-03-01T12:30:00+00:00",
            loop=Loop.TRAINER,
            step_seconds=0.35,
            step_seconds_low=0.34,
            step_seconds_high=0.37,
            samples_per_second=365.0,
            peak_allocated_bytes=11_000_000_000,
            peak_reserved_bytes=11_500_000_000,
            precision="fp32",
        ),
        **changes,
    )


def report_of(record: TrainingRecord | None = None, **changes: Any) -> dict[str, Any]:
    """The report of a run over the API."""
    report = {"id": str(uuid4()), "host": "node-3", "record": (record or recorded_run()).to_dict()}
    return json.loads(json.dumps(report | changes))  # type: ignore[no-any-return]  # JSON is Any
