"""Realistic answers to queries, and functions that store them."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from analyses.jobs import lease
from analyses.jobs.lease import Lease
from analyses.models import Query, QueryKind, QueryStatus
from analyses.tests.factories import lease_on, make_result, make_trial
from engine.answer.economics import Speedup, savings
from engine.answer.ladder import Learning, Rung
from engine.answer.plan import Room
from engine.core.numbers import times
from engine.events import Answer
from engine.gpus import GPUS
from engine.interface.assumptions import Assumptions
from engine.interface.result import AnalysisResult
from engine.interface.trial import GpuFacts, Source
from engine.interface.workload import Workload


def make_prediction(batch_size: int, gpu: str = "a10") -> dict[str, Any]:
    """The engine's answer to ``predict``."""
    kind = GPUS[gpu]
    facts = GpuFacts(kind.display_name, kind.total_bytes, kind.usable_bytes)
    return {"gpu": asdict(facts), "trial": asdict(make_trial(batch_size, gpu))}


def make_plan(**changes: Any) -> dict[str, Any]:
    """The engine's answer to ``plan``, with five GPUs and four rungs."""
    return {
        "current_gpu": "a10",
        "current_batch_size": 16,
        "ladder": [make_rung(**rung).to_dict() for rung in RUNGS],
        "room": asdict(Room(16, 20 * 2**30, sequence_length=512, runs=3)),
        "options": [
            _option("a10", 200.0),
            _option("t4", 60.0),
            _option("rtx-4090", 500.0),
            _option("h100", 800.0),
            _option("v100-16gb", 0.0) | {"fits": False, "why_not": "batch 8 needs 30.0 GiB"},
        ],
        "caveats": ["Nothing was run."],
    } | changes


RUNGS: list[dict[str, Any]] = [
    {},
    {"moves": ["gradient checkpointing"], "fields": {"gradient_checkpointing": True}},
    {
        "moves": ["bf16", "batch 48"],
        "fields": {"precision": "bf16-mixed"},
        "learning": Learning.NUMERICS,
        "samples_per_second": 500.0,
        "speedup": 2.5,
    },
    {"moves": ["LoRA"], "fields": {"lora_rank": 8}, "why_not": "it has no linear layers"},
]
"""As they are found: the unchanged workload first."""


def make_moved_result(speedup: float = 2.5, batch_size: int = 64) -> AnalysisResult:
    """The whole answer of the bf16 rung, whose numbers all follow from its speedup."""
    today = make_result()
    assert today.savings is not None
    low, high = speedup / 1.15, speedup * 1.15
    price = today.savings.price_per_hour_usd
    assumed = Assumptions(today.savings.hours_per_run, today.savings.runs_per_year, price)
    gained = Speedup(speedup, low, high)
    return replace(
        make_result(recommended=batch_size),
        workload=Workload.parse({"model": "bert", "precision": "bf16-mixed"}),
        decision=f"Switch to bf16 and batch {batch_size}: {times(speedup)} faster.",
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        savings=savings(assumed, price, gained, Source.PREDICTED, taken=True),
        today=make_trial(16),
    )


def plan_with_answers(**changes: Any) -> dict[str, Any]:
    """A plan whose bf16 rung has a whole answer."""
    rungs = [make_rung(**rung) for rung in RUNGS]
    moved = make_moved_result()
    assert moved.savings is not None
    ladder = [
        replace(
            rung,
            moves=["bf16", "batch 64"],
            batch_size=64,
            result=moved,
            usd_per_run=moved.savings.recommended_usd_per_run,
        )
        if "bf16" in rung.moves
        else rung
        for rung in rungs
    ]
    return make_plan(ladder=[rung.to_dict() for rung in ladder]) | changes


def plan_that_fits(**changes: Any) -> dict[str, Any]:
    """A plan of what does not fit with today's settings, and does with bf16."""
    unfit = replace(make_trial(16), fits=False, samples_per_second=None, step_seconds=None)
    none: dict[str, Any] = dict.fromkeys(("speedup", "speedup_low", "speedup_high", "savings"))
    moved = replace(
        make_moved_result(),
        decision="Switch to bf16: batch 64 fits.",
        verdict="Batch 64 fits with bf16.",
        today=unfit,
        **none,
    )
    refused = make_rung(why_not="even batch 1 needs 48.9 of 22.1 GiB", moves=[], fields={})
    fitting = replace(
        make_rung(moves=["bf16"], fields={"precision": "bf16-mixed"}, batch_size=64, result=moved),
        speedup=None,
        speedup_low=None,
        speedup_high=None,
        usd_per_run=None,
        usd_per_million_samples=1.23,
    )
    return make_plan(ladder=[refused.to_dict(), fitting.to_dict()]) | changes


def make_rung(**fields: Any) -> Rung:
    """A rung that fits, unless there is a reason against it."""
    if fields.get("why_not"):
        return Rung(**fields)
    fields = {"speedup": 1.0, "samples_per_second": 200.0} | fields
    return Rung(
        **{
            "moves": [],
            "fields": {},
            "decision": "Switch.",
            "fits": True,
            "batch_size": 48,
            "speedup_low": fields["speedup"] / 1.15,
            "speedup_high": fields["speedup"] * 1.15,
            "usd_per_run": 8 / fields["speedup"],
        }
        | fields
    )


def _option(gpu: str, speed: float) -> dict[str, Any]:
    return {
        "gpu": gpu,
        "total_bytes": GPUS[gpu].total_bytes,
        "price_per_hour_usd": GPUS[gpu].price_per_hour_usd,
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
