"""The training jobs of the demo's year, as reporters would have sent them.

Users, times and memory are invented, and the same for a given last day.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from random import Random
from typing import Any

from django.contrib.auth.models import User

from analyses.models import TrainingJob
from analyses.training_jobs.services import MAX_JOBS, import_jobs
from demo.filling import member
from demo.plan import DAYS, PROJECTS
from engine.core.sizes import GIB
from engine.gpus import GPUS
from engine.jobs.record import JobRecord, Reporter

JOBS = 5_000
_NAMES = (
    "amara bjorn chen dalia emil fumiko gustavo hana ines jonas kavita lars mei nadia oskar "
    "priya quentin rosa selim tanvi ulrike vera wanjiru xavier yara zofia akira beatriz cyrus "
    "dilnoza ebba farid greta hugo imani jana kofi leila mateo nils olga pedro rania sven tara "
    "umar viktor wei yusuf zara"
)
MEMBERS = tuple(_NAMES.split())
"""Those of the plan, and 44 whose jobs are all that is known of them."""

_SEED = 21
_REPORTERS = (Reporter.SLURM, Reporter.WANDB, Reporter.MLFLOW)
_SHARES = (80, 14, 6)
_GPU_COUNTS = (1, 1, 1, 1, 2, 4, 8)
_CONTEXT_BYTES = GIB // 2
_KNOWN = 0.85
"""Share of the jobs whose memory is reported."""

_MATCHED = 0.97
"""Share of the jobs whose user name is a member's."""


def add_jobs(admin: User, last_day: date) -> None:
    """Add the members and their jobs, unless they are there.

    Args:
        admin: Imports them.
        last_day: Last day of the demo's year.
    """
    if TrainingJob.objects.count() >= JOBS:
        return
    for name in MEMBERS:
        member(name)
    jobs = [job.to_dict() for job in jobs_until(last_day, MEMBERS, JOBS)]
    for first in range(0, JOBS, MAX_JOBS):
        imported = import_jobs(admin, {"jobs": jobs[first : first + MAX_JOBS]})
        if imported.refused:
            raise ValueError(f"the lab refuses a job of the demo: {imported.refused[0]}")


def jobs_until(end: date, members: Sequence[str], count: int) -> Iterator[JobRecord]:
    """``count`` jobs of some members in the year ending on this day."""
    random = Random(_SEED)  # noqa: S311  # a plan, not a secret
    for number in range(count):
        yield _job(random, number, end, members)


def _job(random: Random, number: int, end: date, members: Sequence[str]) -> JobRecord:
    project = random.choice(PROJECTS)
    gpu = GPUS[random.choice(project.gpus)]
    reporter = random.choices(_REPORTERS, _SHARES)[0]
    hours = project.hours_per_run * random.uniform(0.2, 1.2)
    ended = datetime.combine(
        end - timedelta(days=random.randrange(DAYS)), time(random.randrange(24)), UTC
    )
    used = _CONTEXT_BYTES + random.betavariate(1.6, 2.8) * (gpu.total_bytes - _CONTEXT_BYTES)
    is_known = random.random() < _KNOWN
    user = random.choice(members) if random.random() < _MATCHED else f"guest{random.randrange(4)}"
    return JobRecord(
        reporter=reporter,
        id=f"demo/{number}",
        user=user,
        device_name=gpu.name,
        gpus=random.choice(_GPU_COUNTS),
        started_at=ended - timedelta(hours=hours),
        ended_at=ended,
        used_bytes=int(used) if is_known else None,
        name=f"{project.workload['model']}-{number}",
        request=_logged(random, reporter, project.workload, project.batches),
    )


def _logged(
    random: Random, reporter: Reporter, workload: dict[str, Any], batches: tuple[int, ...]
) -> dict[str, Any]:
    """The config of a job; Slurm knows none."""
    if reporter is Reporter.SLURM:
        return {}
    return workload | {"current_batch_size": random.choice(batches)}
