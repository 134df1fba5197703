"""The analyses of the demo's year: whose, when, and which settings.

Members, times and hours are invented, and the same for a given last day. The engine computes the
results.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

LOGIN = "demo"
"""The only account of the demo that can sign in."""

DAYS = 365
ANALYSES = 150

_SEED = 20
_WORKING_HOURS = (8, 19)
_FOLLOWS_WITHIN = 12
"""Days between a project's first analysis and its last, apart from repetitions."""


@dataclass(frozen=True)
class Project:
    """A member's project; each of its batch sizes is analyzed on each of its GPUs.

    ``name`` is that of the lab's project which the analyses belong to; empty for none.
    """

    member: str
    workload: dict[str, Any]
    gpus: tuple[str, ...]
    batches: tuple[int, ...]
    hours_per_run: float
    runs_per_year: float
    more: dict[str, Any] = field(default_factory=dict)
    name: str = ""


@dataclass(frozen=True)
class Planned:
    """One analysis of the demo; ``fields`` are those of an ``AnalysisRequest``.

    ``project`` is the name of its project; empty for none.
    """

    pk: int
    member: str
    queued_at: datetime
    fields: dict[str, Any]
    project: str = ""


PROJECTS = (
    Project("amara", {"model": "bert"}, ("a10", "a100-80gb", "h100", "t4"), (8, 16), 6, 220,
            name="clinical notes"),
    Project("amara", {"model": "bert", "precision": "bf16-mixed"}, ("a10", "a100-80gb", "h100"),
            (16, 32), 4, 180, name="clinical notes"),
    Project("amara", {"model": "roberta", "precision": "bf16-mixed", "sequence_length": 256},
            ("a10", "l4", "a100-40gb"), (16,), 9, 60),
    Project("bjorn", {"model": "resnet"}, ("v100-16gb", "a10", "a100-40gb", "rtx-3090"),
            (32, 64), 14, 45, name="herbarium"),
    Project("bjorn", {"model": "resnet", "precision": "bf16-mixed"}, ("a10", "a100-40gb", "h100"),
            (64,), 10, 45, name="herbarium"),
    Project("bjorn", {"model": "convnext-t", "precision": "bf16-mixed"}, ("rtx-4090", "a100-40gb"),
            (16, 32), 30, 20, name="herbarium"),
    Project("bjorn", {"model": "resnet-18", "image_size": 128}, ("t4", "rtx-3090"), (32, 64),
            2, 300),
    Project("chen", {"model": "gpt2", "precision": "bf16-mixed"},
            ("a100-40gb", "a100-80gb", "h100"), (4, 8), 48, 16),
    Project("chen", {"model": "llama-3.2-1b", "precision": "bf16-true", "sequence_length": 1024},
            ("a100-80gb", "h100", "l40s"), (1, 2), 40, 12, name="small language models"),
    Project("chen", {"model": "qwen3-0.6b", "precision": "bf16-true", "sequence_length": 1024},
            ("l40s", "a100-80gb", "h100"), (2, 4), 36, 14, name="small language models"),
    Project("chen", {"model": "llama-3.2-1b", "sequence_length": 1024}, ("a10",), (1,), 40, 12,
            name="small language models"),
    Project("dalia", {"model": "vit-b", "precision": "bf16-mixed"}, ("a10", "a6000", "a100-80gb"),
            (16, 32, 64), 20, 40, name="herbarium"),
    Project("dalia", {"model": "swin-t", "precision": "fp16-mixed"}, ("t4", "a10", "a6000"),
            (16, 32), 18, 25),
    Project("dalia", {"model": "vit-b"}, ("a10", "v100-32gb"), (16, 32), 26, 12),
    Project("emil", {"model": "t5-small"}, ("a10", "l4", "t4"), (8, 16), 5, 120),
    Project("emil", {"model": "t5-small", "precision": "bf16-mixed"}, ("a10", "l4", "a100-40gb"),
            (16,), 5, 90, name="clinical notes"),
    Project(LOGIN, {"model": "distilbert", "precision": "fp16-mixed"}, ("t4", "l4"), (16, 32),
            1.5, 500),
    Project("emil", {"model": "distilbert"}, ("t4", "rtx-3090", "a10"), (8, 32), 2, 400),
    Project("fumiko", {"model": "whisper", "precision": "fp16-mixed"}, ("a10", "a6000", "l40s"),
            (4, 8), 32, 18, name="call transcripts"),
    Project(LOGIN, {"model": "gemma-3-1b", "precision": "bf16-true", "sequence_length": 512},
            ("l40s", "h100"), (2, 4), 24, 20, name="small language models"),
    Project("fumiko", {"model": "bert", "sequence_length": 512, "gradient_checkpointing": True},
            ("v100-32gb", "a100-40gb"), (8, 16), 16, 30, {"batch_multiple": 8}),
)  # fmt: skip


def year_until(end: date) -> list[Planned]:
    """The analyses of the year ending on this day, oldest first, numbered from 1.

    Every request occurs once; random members repeat some later, up to :data:`ANALYSES` in all.
    """
    random = Random(_SEED)  # noqa: S311  # a plan, not a secret
    first_day = end - timedelta(days=DAYS - 1)
    planned: list[tuple[datetime, str, dict[str, Any], str]] = []
    for number, project in enumerate(random.sample(PROJECTS, len(PROJECTS))):
        begun = number * (DAYS - _FOLLOWS_WITHIN) // len(PROJECTS)
        for fields in _requests(project):
            day = first_day + timedelta(days=begun + random.randrange(_FOLLOWS_WITHIN))
            planned.append((_moment(random, day), project.member, fields, project.name))
    members = sorted({project.member for project in PROJECTS} - {LOGIN})
    for when, _, fields, name in random.sample(planned, ANALYSES - len(planned)):
        days_left = (end - when.date()).days
        day = when.date() + timedelta(days=random.randint(1, days_left)) if days_left else end
        planned.append((_moment(random, day), random.choice(members), fields, name))
    planned.sort(key=lambda one: one[0])
    return [
        Planned(pk, member, when, fields, name)
        for pk, (when, member, fields, name) in enumerate(planned, start=1)
    ]


def _requests(project: Project) -> Iterator[dict[str, Any]]:
    for gpu in project.gpus:
        for batch in project.batches:
            yield {
                **project.workload,
                **project.more,
                "gpu": gpu,
                "current_batch_size": batch,
                "hours_per_run": project.hours_per_run,
                "runs_per_year": project.runs_per_year,
            }


def _moment(random: Random, day: date) -> datetime:
    hour = random.randrange(*_WORKING_HOURS)
    at = time(hour, random.randrange(60), random.randrange(60), random.randrange(1_000_000))
    return datetime.combine(day, at, tzinfo=UTC)
