"""Helpers for the tests of the queue: queries to submit, the next job, and a clock."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.models import User
from django_q.signing import SignedPackage

from analyses import queries
from analyses.jobs.engine_output import Failure
from analyses.jobs.queue import LabBroker
from analyses.models import Analysis, Job, Query, QueryKind
from engine.interface.request import AnalysisRequest

Enqueue = Callable[..., Analysis]

CRASHED = Failure("crashed", "it crashed")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def submit_query(
    member: User, kind: QueryKind, batch_size: int = 16, *, page: bool = False
) -> Query:
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": batch_size}
    return queries.submit(member, kind, AnalysisRequest.parse(fields), for_page=page)


def next_job(broker: LabBroker) -> Job | None:
    packages = broker.dequeue()
    return Job.objects.get(pk=SignedPackage.loads(packages[0][1])["args"][0]) if packages else None
