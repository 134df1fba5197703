"""Runs that trackers report, matched with the scheduler's jobs that they ran in.

Slurm and Kubernetes know the hours of a job and W&B and MLflow the memory and config of the same
hours. A run counts with its job, which takes over what it does not know itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any

from django.db.models import Q, QuerySet

from analyses.models import TrainingJob
from engine.jobs.record import Reporter

SCHEDULERS = [one for one in Reporter if one.is_scheduler]
CLOCKS_APART = timedelta(minutes=2)
"""Two machines' clocks may differ by this, and a tracker may end its run after the job."""

_UNKNOWN: Mapping[str, Any] = {
    "gpu": "",
    "total_bytes": None,
    "used_bytes": None,
    "samples_per_second": None,
    "model": "",
    "request": {},
}
"""Fields that a job takes over from its runs, and their values while unknown."""

_LARGEST = ("total_bytes", "used_bytes")


def byte_hours(gpu_hours: float, used: int | None, total: int | None) -> dict[str, float | None]:
    """The columns of used and unused memory times hours; ``None`` where either is unknown."""
    if used is None or total is None:
        return {"used_byte_hours": None, "unused_byte_hours": None}
    # A driver's reserve may make more used than the catalogue says it has.
    unused = max(0, total - used)
    return {"used_byte_hours": used * gpu_hours, "unused_byte_hours": unused * gpu_hours}


def is_unknown(name: str, value: Any) -> bool:
    """Whether a reporter has left a column of a job out that runs may tell."""
    return name in _UNKNOWN and value == _UNKNOWN[name]


def match(changed: Collection[TrainingJob]) -> None:
    """Match what an import has stored with what the lab has, both ways."""
    runs = _runs_of(changed)
    jobs = _jobs_of(runs)
    affected = {job.pk for job in changed if _is_scheduled(job)}
    affected |= {run.scheduler_job_id for run in runs if run.scheduler_job_id}
    moved = []
    for run in runs:
        job = jobs.of(run)
        if job is not None and run.scheduler_job_id != job.pk:
            run.scheduler_job = job
            moved.append(run)
            affected.add(job.pk)
    TrainingJob.objects.bulk_update(moved, ["scheduler_job"])
    for job in TrainingJob.objects.filter(pk__in=affected).prefetch_related("runs"):
        if take_over(job, list(job.runs.all())):
            job.save()


def take_over(job: TrainingJob, runs: Collection[TrainingJob]) -> bool:
    """Fill in what a job does not know from its runs; false if it has all that already.

    The longest run stands for all, but for memory: that is the most of any.
    """
    before = {name: getattr(job, name) for name in (*_UNKNOWN, "from_runs", "unused_byte_hours")}
    for name in job.from_runs:
        setattr(job, name, _UNKNOWN[name])
    found: dict[str, Any] = {}
    if runs:
        longest = max(runs, key=lambda run: (run.gpu_hours, -run.pk))
        found = {name: getattr(longest, name) for name in _UNKNOWN}
        for name in _LARGEST:
            known = [value for run in runs if (value := getattr(run, name)) is not None]
            found[name] = max(known, default=None)
    job.from_runs = sorted(
        name
        for name, value in found.items()
        if is_unknown(name, getattr(job, name)) and not is_unknown(name, value)
    )
    for name in job.from_runs:
        setattr(job, name, found[name])
    for name, value in byte_hours(job.gpu_hours, job.used_bytes, job.total_bytes).items():
        setattr(job, name, value)
    return any(getattr(job, name) != value for name, value in before.items())


class Jobs:
    """A scheduler's jobs, found by the number or the machine that a run names."""

    def __init__(self, jobs: Iterable[TrainingJob]) -> None:
        self._by_number: dict[str, list[TrainingJob]] = defaultdict(list)
        self._by_host: dict[str, list[TrainingJob]] = defaultdict(list)
        for job in jobs:
            if job.slurm_job_id:
                self._by_number[job.slurm_job_id].append(job)
            for host in job.hosts:
                self._by_host[_short(host)].append(job)

    def of(self, run: TrainingJob) -> TrainingJob | None:
        """The job that a run is part of; ``None`` where none or several may be.

        A run that names its Slurm job is part of that one. For others it takes the same machine,
        time and member; a pod is a machine of its own, whose namespace need not be a member.
        """
        if run.slurm_job_id:
            named = self._by_number[run.slurm_job_id]
            found = [job for job in named if _overlap(run, job)]
            if len(found) > 1:  # clusters count by themselves
                found = [job for job in found if _same_user(run, job)]
        else:
            near = {job.pk: job for host in run.hosts for job in self._by_host[_short(host)]}
            found = [
                job
                for job in near.values()
                if _is_within(run, job)
                and run.gpus <= job.gpus
                and (job.reporter == Reporter.KUBERNETES or _same_user(run, job))
            ]
        return found[0] if len(found) == 1 else None


def _runs_of(changed: Collection[TrainingJob]) -> list[TrainingJob]:
    """The runs among these, and others without a job that may belong to one of these."""
    own = [run for run in changed if not _is_scheduled(run)]
    jobs = [job for job in changed if _is_scheduled(job)]
    if not jobs:
        return own
    numbers = {job.slurm_job_id for job in jobs} - {""}
    begin, end = min(job.started_at for job in jobs), max(job.ended_at for job in jobs)
    others = TrainingJob.objects.filter(
        Q(slurm_job_id__in=numbers)
        | Q(slurm_job_id="", started_at__gte=begin - CLOCKS_APART, started_at__lte=end),
        scheduler_job=None,
    ).exclude(reporter__in=SCHEDULERS)
    return [*own, *others.exclude(pk__in=[run.pk for run in own])]


def _jobs_of(runs: Collection[TrainingJob]) -> Jobs:
    """The scheduler's jobs that these runs may be part of."""
    scheduled = TrainingJob.objects.filter(reporter__in=SCHEDULERS).defer("request")
    numbers = {run.slurm_job_id for run in runs} - {""}
    placed = [run for run in runs if not run.slurm_job_id and run.hosts]
    wanted = Q(slurm_job_id__in=numbers)
    if placed:
        begin, end = min(run.started_at for run in placed), max(run.ended_at for run in placed)
        wanted |= Q(started_at__lte=end, ended_at__gte=begin) | Q(is_running=True)
    return Jobs(scheduled.filter(wanted) if numbers or placed else ())


def counted(jobs: QuerySet[TrainingJob]) -> QuerySet[TrainingJob]:
    """Jobs whose hours count: all but the runs that are part of another one."""
    return jobs.filter(scheduler_job=None)


def _is_scheduled(job: TrainingJob) -> bool:
    return Reporter(job.reporter).is_scheduler


def _overlap(run: TrainingJob, job: TrainingJob) -> bool:
    begun = run.ended_at >= job.started_at - CLOCKS_APART
    return begun and (job.is_running or run.started_at <= job.ended_at + CLOCKS_APART)


def _is_within(run: TrainingJob, job: TrainingJob) -> bool:
    begun = run.started_at >= job.started_at - CLOCKS_APART
    return begun and (job.is_running or run.ended_at <= job.ended_at + CLOCKS_APART)


def _same_user(run: TrainingJob, job: TrainingJob) -> bool:
    if run.owner_id and job.owner_id:
        return run.owner_id == job.owner_id
    return bool(run.user) and run.user.casefold() == job.user.casefold()


def _short(host: str) -> str:
    """A machine's name without its domain."""
    return host.partition(".")[0].casefold()
