"""GPU-hours of training jobs: totals by GPU, member or model, and where most memory is unused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, time, timedelta
from urllib.parse import urlencode

from django.db.models import CharField, Count, F, Q, QuerySet, Sum, Value
from django.db.models.functions import Cast, Coalesce, NullIf

from analyses.models import TrainingJob
from analyses.savings.period import Period, period_of
from analyses.savings.selection import today_utc
from analyses.training_jobs.matching import counted
from engine.core.errors import InvalidInput

MAX_LISTED_JOBS = 10
"""Jobs that the page lists."""


def _text(column: str) -> Cast:
    """A column of text; SQLite and PostgreSQL agree on the type of a mixed one then."""
    return Cast(F(column), CharField())


DIMENSIONS = {
    "gpu": Coalesce(NullIf(_text("gpu"), Value("")), _text("device_name")),
    "member": Coalesce(_text("owner__username"), _text("user")),
    "model": _text("model"),
}
"""The value of a job that its hours are added up by."""


@dataclass(frozen=True)
class Selection:
    """The period and the dimension of the page; in addresses, ``from_`` is ``from``.

    Attributes:
        period: ``month``, ``quarter``, ``year`` (the default) or ``all``.
        from_, to: The first and the last day instead, such as ``2026-01-31``.
        by: ``gpu``, ``member`` or ``model``.

    Raises:
        InvalidInput: On construction, with a message for each wrong field.
    """

    period: str = ""
    from_: str = ""
    to: str = ""
    by: str = "gpu"

    def __post_init__(self) -> None:
        wrong: dict[str, str] = {}
        if self.by not in DIMENSIONS:
            wrong["by"] = f"choose one of {', '.join(DIMENSIONS)}"
        try:
            period_of(self.period, self.from_, self.to, today_utc())
        except InvalidInput as error:
            wrong |= error.fields
        if wrong:
            raise InvalidInput(wrong)

    @classmethod
    def parse(cls, query: Mapping[str, str]) -> Selection:
        """Read the query of an address; unknown fields are ignored."""
        names = {name: name.rstrip("_") for name in cls.__dataclass_fields__}
        return cls(**{name: query[given] for name, given in names.items() if query.get(given)})

    @property
    def days(self) -> Period:
        return period_of(self.period, self.from_, self.to, today_utc())

    def query(self, **changes: str) -> str:
        """The query string of this selection, with changes."""
        given = asdict(replace(self, **changes)).items()
        return "?" + urlencode([(name.rstrip("_"), text) for name, text in given if text])

    def of(self, jobs: QuerySet[TrainingJob]) -> QuerySet[TrainingJob]:
        """The counted jobs that ended in the period (UTC), or were last seen running in it."""
        return counted(self._in_period(jobs))

    def matched(self, jobs: QuerySet[TrainingJob]) -> QuerySet[TrainingJob]:
        """The runs of the period that count with the scheduler's job that they are part of."""
        return self._in_period(jobs).exclude(scheduler_job=None)

    def _in_period(self, jobs: QuerySet[TrainingJob]) -> QuerySet[TrainingJob]:
        first, last = (
            datetime.combine(day, time(), UTC)
            for day in (self.days.first, self.days.last + timedelta(days=1))
        )
        return jobs.filter(ended_at__gte=first, ended_at__lt=last)


@dataclass(frozen=True)
class Hours:
    """GPU-hours of some jobs, and the memory that they used in those where it is known.

    Attributes:
        jobs: Number of jobs.
        gpu_hours: Hours times GPUs, of all jobs.
        known_gpu_hours: The same, of jobs whose memory is known.
        used_byte_hours: Used memory of a GPU times ``known_gpu_hours``.
        unused_byte_hours: The rest of its memory times ``known_gpu_hours``.
    """

    jobs: int = 0
    gpu_hours: float = 0.0
    known_gpu_hours: float = 0.0
    used_byte_hours: float = 0.0
    unused_byte_hours: float = 0.0

    def __add__(self, other: Hours) -> Hours:
        return Hours(
            self.jobs + other.jobs,
            self.gpu_hours + other.gpu_hours,
            self.known_gpu_hours + other.known_gpu_hours,
            self.used_byte_hours + other.used_byte_hours,
            self.unused_byte_hours + other.unused_byte_hours,
        )

    @property
    def used_bytes(self) -> float | None:
        """Used memory of a GPU, the mean by hours; ``None`` if no job's is known."""
        return self.used_byte_hours / self.known_gpu_hours if self.known_gpu_hours else None

    @property
    def total_bytes(self) -> float | None:
        """Memory of a GPU, the mean by hours; ``None`` if no job's is known."""
        whole = self.used_byte_hours + self.unused_byte_hours
        return whole / self.known_gpu_hours if self.known_gpu_hours else None


@dataclass(frozen=True)
class GpuHoursRow:
    """The hours of one GPU, member or model; ``key`` is empty where jobs do not name one."""

    key: str
    hours: Hours


def rows_by(jobs: QuerySet[TrainingJob], dimension: str) -> list[GpuHoursRow]:
    """The hours by a dimension, the most first."""
    known = Q(unused_byte_hours__isnull=False)
    found = (
        jobs.order_by()
        .annotate(key=DIMENSIONS[dimension])
        .values("key")
        .annotate(
            jobs=Count("pk"),
            hours=Sum("gpu_hours"),
            known=Sum("gpu_hours", filter=known, default=0.0),
            used=Sum("used_byte_hours", default=0.0),
            unused=Sum("unused_byte_hours", default=0.0),
        )
        .values_list("key", "jobs", "hours", "known", "used", "unused")
    )
    rows = [GpuHoursRow(key, Hours(*sums)) for key, *sums in found]
    return sorted(rows, key=lambda row: (-row.hours.gpu_hours, row.key))


def sum_of(rows: Iterable[GpuHoursRow]) -> Hours:
    return sum((row.hours for row in rows), Hours())


def most_unused(jobs: QuerySet[TrainingJob]) -> QuerySet[TrainingJob]:
    """The jobs with the most unused memory times hours."""
    found = jobs.filter(unused_byte_hours__gt=0).select_related("owner").prefetch_related("runs")
    return found.order_by("-unused_byte_hours", "pk")[:MAX_LISTED_JOBS]
