"""Realistic answers to queries, and functions that store them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from analyses.jobs import lease
from analyses.jobs.lease import Lease
from analyses.models import Query, QueryKind, QueryStatus
from analyses.tests.factories import lease_on, make_trial
from engine.events import Answer
from engine.gpus import GPUS
from engine.result import GpuFacts


def make_prediction(batch_size: int, gpu: str = "a10") -> dict[str, Any]:
    """The engine's answer to ``predict``."""
    kind = GPUS[gpu]
    facts = GpuFacts(kind.display_name, kind.total_bytes, kind.usable_bytes)
    return {"gpu": asdict(facts), "trial": asdict(make_trial(batch_size, gpu))}


def make_plan(**changes: Any) -> dict[str, Any]:
    """The engine's answer to ``plan``, with three GPUs and three changes."""
    return {
        "current_gpu": "a10",
        "current_batch_size": 16,
        "changes": [
            _change("as it is", {}, 1.0) | {"speedup": None, "saved_bytes": None},
            _change("gradient checkpointing", {"gradient_checkpointing": True}, 0.75),
            _change("bf16-mixed", {"precision": "bf16-mixed"}, 2.5),
            _change("LoRA, rank 8", {"lora_rank": 8}, 0)
            | {"applies": False, "why_not": "it has no linear layers", "speedup": None},
        ],
        "options": [
            _option("a10", 200.0),
            _option("t4", 60.0),
            _option("rtx-4090", 500.0),
            _option("h100", 800.0),
            _option("v100-16gb", 0.0) | {"fits": False, "why_not": "batch 8 needs 30.0 GiB"},
        ],
        "caveats": ["Nothing was run."],
    } | changes


def _change(name: str, fields: dict[str, Any], speedup: float) -> dict[str, Any]:
    return {
        "name": name,
        "fields": fields,
        "applies": True,
        "why_not": "",
        "largest_batch_size": 264,
        "recommended_batch_size": 48,
        "samples_per_second": 200.0 * speedup,
        "speedup": speedup,
        "current_used_bytes": 3 * 2**30,
        "saved_bytes": -(2**29),
    }


def _option(gpu: str, speed: float) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "total_bytes": GPUS[gpu].total_bytes,
        "fits": True,
        "why_not": "",
        "largest_batch_size": 264,
        "recommended_batch_size": 48,
        "samples_per_second": speed,
        "samples_per_second_low": speed * 0.7,
        "samples_per_second_high": speed * 1.5,
        "hours_per_run": 8.0 * 200 / speed if speed else None,
    }


def take_next(kind: QueryKind = QueryKind.PREDICT, node: str = "lab-1") -> Lease:
    """Claim the waiting query, as a worker does."""
    query = Query.objects.filter(kind=kind, status=QueryStatus.WAITING).earliest("pk")
    return lease_on(query, node)


def answer_next(kind: QueryKind, body: dict[str, Any]) -> Query:
    """Answer the waiting query, as a worker does."""
    taken = take_next(kind)
    lease.finish(taken, Answer(body))
    return Query.objects.get(pk=taken.subject_id)
