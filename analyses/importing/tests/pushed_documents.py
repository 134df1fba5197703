"""Documents of analyses as other machines push them."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

from analyses.tests.factories import make_result
from analyses.tests.text_answers import make_text_result
from engine.core.choices import Goal
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.result import AnalysisResult, Comparison, MeasuredOn
from engine.interface.trial import GpuFacts, Source

HOUR, LATER = "2026-03-01T12:00:00+00:00", "2026-03-01T12:01:30+00:00"


def pushed_document(result: AnalysisResult | None = None, **request: object) -> dict[str, Any]:
    result = result or make_result()
    asked = AnalysisRequest.parse({"model": "bert", "gpu": "a10"} | request).to_dict()
    for name in ("hours_per_run", "runs_per_year", "price_per_hour_usd"):
        if name not in request:
            del asked[name]
    document = {
        "schema_version": 1,
        "id": "5f0f0f6e-0d1c-4f0e-8f5e-0a4a4c1e6b01",
        "request": asked,
        "result": result.to_dict(),
        "started_at": HOUR,
        "finished_at": LATER,
        "origin": {"host": "laptop-7", "ran": "memorymark analyze"},
        "environment": {"torch": "2.13.0", "python": "3.11.7"},
    }
    return copy.deepcopy(json.loads(json.dumps(document)))


def pushed_measurement() -> dict[str, Any]:
    """A document as a machine with its own A10 pushes it."""
    result = make_result(source=Source.MEASURED)
    speeds: dict[int | None, float | None] = {
        trial.batch_size: trial.samples_per_second for trial in result.trials
    }
    now, then = speeds[result.current_batch_size], speeds[result.recommended_batch_size]
    assert now is not None
    assert then is not None
    result = replace(
        result,
        safe_batch_size=None,
        comparison=Comparison([now] * 3, [then] * 3, 0.75),
        speedup=then / now,
        speedup_low=then / now,
        speedup_high=then / now,
        measured_on=MeasuredOn("NVIDIA A10", "2.13.0", "5.0.0", 8),
        gpu=GpuFacts("NVIDIA A10", GPUS["a10"].total_bytes, GPUS["a10"].usable_bytes),
    )
    return pushed_document(result, gpu="local")


def pushed_texts(goal: Goal) -> dict[str, Any]:
    """A document as ``memorymark generate`` or ``memorymark longest`` pushes it."""
    lengths: dict[str, Any] = {"prompt_length": 512} if goal is Goal.GENERATION else {}
    document = pushed_document(model="gpt2", goal=str(goal), current_batch_size=8, **lengths)
    document["result"] = json.loads(json.dumps(make_text_result(goal).to_dict()))
    return document
