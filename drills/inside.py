"""Functions that drills call inside a lab, in a process with the lab's settings."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from time import monotonic, sleep
from typing import Any

from django.contrib.auth.models import User

from analyses import queries, services
from analyses.jobs import lab_state, queue, worker
from analyses.jobs.keys import has_our_key
from analyses.models import (
    AT_WORK,
    FINAL_STATUSES,
    Analysis,
    Job,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from engine.interface.request import AnalysisRequest

_POLL_SECONDS = 0.01
MAX_BATCH_SIZE = 2_000_000
"""Each analysis has a different batch size, so that no stored result is reused."""


def submit(count: int = 1, gpu: str = "a10", member: str = "ada") -> list[int]:
    """Submit ``count`` analyses of a member; returns their ids."""
    owner, _ = User.objects.get_or_create(username=member)
    done = Analysis.objects.count()
    fields = {"model": "bert", "gpu": gpu}
    return [
        services.submit(owner, {**fields, "current_batch_size": 1 + number % MAX_BATCH_SIZE}).pk
        for number in range(done, done + count)
    ]


def members_in_turn() -> list[str]:
    """The owners of the analyses that were started, in that order."""
    started = Analysis.objects.exclude(started_at=None).order_by("started_at")
    return list(started.values_list("owner__username", flat=True))


def submit_query(batch_size: int) -> int:
    """Submit a query to predict one batch size, as a script does; returns its id."""
    member, _ = User.objects.get_or_create(username="ada")
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": batch_size}
    return queries.submit(member, QueryKind.PREDICT, AnalysisRequest.parse(fields)).pk


def seconds_to_predict(batch_size: int) -> float:
    """Query one batch size as the form of a new analysis does while you type.

    Returns:
        Seconds until the answer is there.
    """
    member, _ = User.objects.get_or_create(username="ada")
    fields = {"model": "bert", "gpu": "a10", "current_batch_size": batch_size}
    begun = monotonic()
    request = AnalysisRequest.parse(fields)
    query = queries.submit(member, QueryKind.PREDICT, request, for_page=True)
    while not query.is_final:
        sleep(_POLL_SECONDS)
        query.refresh_from_db()
    if query.status != QueryStatus.ANSWERED:
        raise RuntimeError(f"query {query.pk} {query.status}: {query.failure}")
    return monotonic() - begun


def query_status(pk: int, *wanted: str) -> str:
    """The status of a query if it is one of those wanted, else an empty string."""
    now = Query.objects.values_list("status", flat=True).get(pk=pk)
    return now if now in wanted else ""


def cancel(pk: int) -> bool:
    """Cancel an analysis."""
    owner = User.objects.get(username="ada")
    return services.cancel(Analysis.objects.get(pk=pk), owner)


def seconds_to_cancel(pk: int) -> float:
    """Cancel an analysis; returns the seconds until it is cancelled."""
    begun = monotonic()
    cancel(pk)
    while not is_final(pk):
        sleep(_POLL_SECONDS)
    return monotonic() - begun


def status(pk: int) -> str:
    """The status of an analysis."""
    return Analysis.objects.values_list("status", flat=True).get(pk=pk)


def is_at_work(pk: int, trials: int = 1) -> bool:
    """Whether a worker has the analysis and has stored at least ``trials`` trials."""
    analysis = Analysis.objects.get(pk=pk)
    return analysis.status in AT_WORK and analysis.trials.count() >= trials


def is_attempt(pk: int, attempt: int) -> bool:
    """Whether this attempt at the analysis is running."""
    return Analysis.objects.filter(pk=pk, attempt=attempt, status__in=AT_WORK).exists()


def is_final(pk: int) -> str:
    """The status of the analysis if it is final, else an empty string."""
    now = status(pk)
    return now if now in FINAL_STATUSES else ""


def facts(pk: int) -> dict[str, Any]:
    """The end of an analysis, and how it got there."""
    analysis = Analysis.objects.get(pk=pk)
    started, queued, finished = analysis.started_at, analysis.queued_at, analysis.finished_at
    return {
        "status": analysis.status,
        "code": analysis.failure_code,
        "reason": analysis.failure_reason,
        "attempt": analysis.attempt,
        "losses": analysis.job.losses,
        "node": analysis.node,
        "device": analysis.job.device,
        "trials": list(analysis.trials.values_list("batch_size", flat=True)),
        "attempts_of_trials": list(analysis.trials.values_list("attempt", flat=True)),
        "waited_seconds": (started - queued).total_seconds() if started else None,
        "seconds": (finished - started).total_seconds() if started and finished else None,
    }


def nodes_online() -> list[str]:
    """The names of the nodes with a current heartbeat and the lab's key."""
    return [node.name for node in lab_state.nodes_online()]


def are_alive(count: int) -> bool:
    """Whether at least ``count`` nodes have a current heartbeat, whatever their key."""
    return lab_state.nodes_alive().count() >= count


def are_online(count: int) -> bool:
    """Whether at least ``count`` nodes are online."""
    return len(nodes_online()) >= count


def node_with_wrong_key() -> str:
    """The name of a live node whose key is not the lab's; empty if there is none."""
    wrong = lab_state.nodes_alive().exclude(has_our_key())
    return ", ".join(wrong.values_list("name", flat=True))


def in_hand(name: str) -> int:
    """The analysis that a node is working on, by its id; 0 if there is none."""
    found = Analysis.objects.filter(job__in=queue.at_work_on(name)).order_by("pk").first()
    return found.pk if found else 0


def has_gone_on(pk: int, trials: int) -> bool:
    """Whether more than ``trials`` trials of an analysis are stored, or it has ended."""
    return Analysis.objects.get(pk=pk).trials.count() > trials or bool(is_final(pk))


def at_work_on(name: str) -> bool:
    """Whether a node is working on something."""
    return queue.at_work_on(name).exists()


def deliver_again(pk: int, times: int) -> int:
    """Deliver the job of an analysis ``times`` more times, to a worker outside the nodes."""
    job = Analysis.objects.get(pk=pk).job
    for _ in range(times):
        worker.run(job.pk)
    worker.engines.close()
    return times


def delete_jobs() -> int:
    """Delete every row of the queue, as someone with access to the database might."""
    return Job.objects.all().delete()[0]


def queue_is_empty() -> bool:
    """Whether no job is waiting or running."""
    return not Job.objects.exclude(state__in=FINAL_STATUSES).exists()


def all_final() -> bool:
    """Whether every analysis is in a final state."""
    return unfinished() == 0


def unfinished() -> int:
    """The number of analyses that are not in a final state."""
    return Analysis.objects.exclude(status__in=FINAL_STATUSES).count()


def overlapping() -> list[list[int]]:
    """Pairs of analyses that held the same GPU at the same time."""
    held = list(
        Analysis.objects.exclude(job__device="")
        .filter(status=Status.SUCCEEDED)
        .order_by("job__device", "started_at")
        .values_list("pk", "job__device", "started_at", "finished_at")
    )
    return [
        [one[0], other[0]]
        for one, other in pairwise(held)
        if one[1] == other[1] and one[3] and other[2] and other[2] < one[3]
    ]


def tally(trials: int, first: int = 0) -> dict[str, int]:
    """Count how analyses ended.

    Args:
        trials: Number of trials of a complete analysis.
        first: Id of the first analysis that counts.
    """
    whole = list(range(1, trials + 1))
    counts: Counter[str] = Counter()
    since = Analysis.objects.filter(pk__gte=first)
    for analysis in since.select_related("job").prefetch_related("trials"):
        sizes = [trial.batch_size for trial in analysis.trials.all()]
        counts["sent"] += 1
        counts[analysis.status] += 1
        counts["retried"] += analysis.job.losses > 0 and analysis.status != Status.LOST
        counts["duplicated"] += len(sizes) != len(set(sizes))
        counts["stuck"] += analysis.status not in FINAL_STATUSES
        counts["incomplete"] += analysis.status == Status.SUCCEEDED and sorted(sizes) != whole
    return dict(counts)
