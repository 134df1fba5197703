"""Imports of training jobs: each is checked, given a member and a GPU, and stored once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Annotated, Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from pydantic import BaseModel, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from analyses.bodies import MAX_NAME_LENGTH, JsonObject, Moment, Name, storable
from analyses.models import TrainingJob
from analyses.permissions import may_administer
from analyses.training_jobs.advice import advise
from analyses.training_jobs.matching import byte_hours, is_unknown, match
from engine.core.border import read, read_body
from engine.core.errors import InvalidInput
from engine.gpus import GPUS, LOCAL, canonical_name, catalogue_name
from engine.interface.request import FIELDS
from engine.jobs.record import MAX_HOSTS, Reporter
from engine.models.presets import find_model
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

MAX_JOBS = 500
"""Jobs in one request."""

MAX_NAMED = 20
"""Deleted jobs that the audit log names."""

MAX_GPUS = 100_000
MAX_BYTES = 2**50
_MAX_SPAN = timedelta(days=366)

_Text = Annotated[str, Field(max_length=MAX_NAME_LENGTH)]
_Bytes = Annotated[int | None, Field(ge=0, le=MAX_BYTES)]


class JobBody(BaseModel):
    """A training job, as ``memorymark import`` reads it from its reporter."""

    reporter: Annotated[str, Field(json_schema_extra={"enum": list(Reporter)})]
    id: Annotated[Name, Field(description="Its name there: the lab stores it once.")]
    user: Annotated[_Text, Field(description="User name there; it is a member's where one has it.")]
    device_name: Annotated[_Text, Field(description="Name of its kind of GPU there.")]
    gpus: Annotated[int, Field(ge=1, le=MAX_GPUS)]
    started_at: Moment
    ended_at: Annotated[Moment, Field(description="Of a running job: when it was last seen.")]
    is_running: bool = False
    device_total_bytes: Annotated[_Bytes, Field(description="Of one of its GPUs.")] = None
    used_bytes: Annotated[
        _Bytes, Field(description="Most memory in use at once on the fullest of its GPUs.")
    ] = None
    samples_per_second: Annotated[float | None, Field(ge=1e-6, le=1e12)] = None
    name: _Text = ""
    slurm_job_id: Annotated[
        _Text, Field(description="The Slurm job that it is, or that a tracker's run is part of.")
    ] = ""
    hosts: Annotated[
        list[_Text], Field(max_length=MAX_HOSTS, description="Names of its machines.")
    ] = []
    request: Annotated[
        JsonObject, Field(description="Fields of a request for an analysis, as far as known.")
    ] = {}


class _DescribedAsJob:
    """Metadata of a JSON object that the API's schema describes as a job."""

    def __get_pydantic_json_schema__(
        self, _schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(JobBody.__pydantic_core_schema__)


class JobsBody(BaseModel):
    """Jobs to import; each is checked by itself, so that a wrong one keeps no other back."""

    jobs: Annotated[
        list[Annotated[dict[str, Any], _DescribedAsJob()]],
        Field(min_length=1, max_length=MAX_JOBS),
    ]


@dataclass(frozen=True)
class RefusedJob:
    """A job that was not stored.

    Attributes:
        number: Its place in the request, from 0.
        id: As it was sent; empty if that is no text.
        errors: A message for each wrong field.
    """

    number: int
    id: str
    errors: dict[str, list[str]]


@dataclass
class Imported:
    """The jobs of a request by outcome.

    Attributes:
        new: Number of jobs that the lab did not have.
        updated: Number of those that were reported otherwise before, such as running ones.
        unchanged: Number of others that it had.
        refused: Jobs that were not stored.
    """

    new: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: list[RefusedJob] = field(default_factory=list)


@dataclass(frozen=True)
class _Job:
    """A checked job; its columns without those that follow from who imports it."""

    number: int
    key: tuple[str, str]
    columns: dict[str, Any]


def import_jobs(member: User, given: Mapping[str, Any]) -> Imported:
    """Store the jobs in the untrusted fields of :class:`JobsBody`.

    A member's jobs become the member's own, unless another member has the reported user name. An
    admin imports everybody's: each becomes that of the member with its user name or e-mail address,
    if there is one. Until then it is nobody's, and that of the first member who imports it.

    A job that is wrong keeps no other from being stored.

    Raises:
        InvalidInput: If the body is not a list of jobs.
    """
    found = Imported()
    jobs: dict[tuple[str, str], _Job] = {}
    owner_of, find_gpu = _owners(member), cache(gpu_of)
    for number, one in enumerate(read_body(JobsBody, given).jobs):
        try:
            job = _checked(number, one, owner_of, find_gpu)
        except InvalidInput as error:
            found.refused.append(_refusal(number, one, error))
        else:
            jobs[job.key] = job
    with transaction.atomic():
        _store(member, jobs, found)
    found.refused.sort(key=lambda one: one.number)
    return found


def delete_jobs(admin: User, jobs: QuerySet[TrainingJob], which: str = "") -> int:
    """Delete imported jobs; returns how many. Their runs count by themselves again.

    Args:
        admin: Who deletes them, for the audit log.
        jobs: The jobs.
        which: All of which they are, for the audit log; by default they are named.
    """
    with transaction.atomic():
        named = [str(job) for job in jobs.only("reporter", "external_id")[:MAX_NAMED]]
        _, by_kind = jobs.delete()
        count = by_kind.get(TrainingJob._meta.label, 0)
        if count:
            audit.note(admin, Action.JOBS_DELETED, which or ", ".join(named), before=count)
    return count


def _store(member: User, jobs: Mapping[tuple[str, str], _Job], found: Imported) -> None:
    known = {
        (row.reporter, row.external_id): row
        for row in TrainingJob.objects.select_for_update().filter(
            reporter__in={reporter for reporter, _ in jobs},
            external_id__in=[external_id for _, external_id in jobs],
        )
    }
    new, changed = [], []
    for key, job in jobs.items():
        row = known.get(key)
        if row is None:
            new.append(TrainingJob(**job.columns, imported_by=member))
        elif not (may_administer(member) or row.owner_id in (None, member.pk)):
            error = InvalidInput({"id": "it is another member's; an admin may import it"})
            found.refused.append(RefusedJob(job.number, key[1], _lists(error)))
        elif _change(row, job.columns):
            row.imported_by = member
            changed.append(row)
        else:
            found.unchanged += 1
    # Of two imports of the same jobs at once, the later one finds those of the other.
    TrainingJob.objects.bulk_create(
        new,
        update_conflicts=True,
        unique_fields=["reporter", "external_id"],
        update_fields=[*_COLUMNS, "imported_by", "imported_at"],
    )
    for row in changed:
        row.save()
    if new or changed:
        rows = _stored([*new, *changed])
        match(rows)
        advise(rows)
    found.new, found.updated = len(new), len(changed)


def _stored(rows: Collection[TrainingJob]) -> list[TrainingJob]:
    """These rows as the database has them, with their keys."""
    keys = {(row.reporter, row.external_id) for row in rows}
    found = TrainingJob.objects.filter(external_id__in=[external_id for _, external_id in keys])
    return [row for row in found if (row.reporter, row.external_id) in keys]


def _change(row: TrainingJob, columns: Mapping[str, Any]) -> bool:
    """Set what is reported otherwise now; false if nothing is.

    A job keeps the owner it has, and what its runs have told, until it is reported itself.
    """
    told = {name for name in row.from_runs if is_unknown(name, columns[name])}
    if told:
        columns = {name: value for name, value in columns.items() if name not in told}
        columns = {name: columns[name] for name in columns if name not in _FOLLOWING}
    if Reporter(row.reporter).forgets_samples:
        columns = {**columns, **_with_most_used(row, columns)}
    differs = {name: value for name, value in columns.items() if getattr(row, name) != value}
    if differs.get("owner_id", 0) is None:
        differs.pop("owner_id", None)
    for name, value in differs.items():
        setattr(row, name, value)
    row.from_runs = [name for name in row.from_runs if name in told]
    return bool(differs)


def _with_most_used(row: TrainingJob, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a job's memory, with the most that it was ever reported to use."""
    known = [one for one in (row.used_bytes, columns.get("used_bytes")) if one is not None]
    used, total = max(known, default=None), columns.get("total_bytes", row.total_bytes)
    return {"used_bytes": used, **byte_hours(columns["gpu_hours"], used, total)}


_COLUMNS = (
    "owner_id", "user", "name", "gpu", "device_name", "gpus", "started_at", "ended_at",
    "is_running", "total_bytes", "used_bytes", "samples_per_second", "model", "request",
    "gpu_hours", "used_byte_hours", "unused_byte_hours", "slurm_job_id", "hosts",
)  # fmt: skip
_FOLLOWING = ("used_byte_hours", "unused_byte_hours")
"""Columns that follow from others."""


def _checked(
    number: int,
    given: Mapping[str, Any],
    owner_of: Callable[[str], int | None],
    find_gpu: Callable[[str, int | None], str],
) -> _Job:
    body = read_body(JobBody, given)
    wrong = {f"request.{name}": message for name, message in _wrong_fields(body.request).items()}
    if body.reporter not in list(Reporter):
        wrong["reporter"] = f"choose one of {', '.join(Reporter)}"
    if body.ended_at < body.started_at:
        wrong["ended_at"] = "it is before started_at"
    elif body.ended_at - body.started_at > _MAX_SPAN:
        wrong["ended_at"] = f"it is more than {_MAX_SPAN.days} days after started_at"
    if wrong:
        raise InvalidInput(wrong)
    gpu = find_gpu(body.device_name, body.device_total_bytes)
    total = body.device_total_bytes or (GPUS[gpu].total_bytes if gpu else None)
    hours = (body.ended_at - body.started_at).total_seconds() / 3600 * body.gpus
    used = body.used_bytes
    columns = {
        "reporter": body.reporter,
        "external_id": body.id,
        "owner_id": owner_of(body.user),
        "user": storable(body.user),
        "name": storable(body.name),
        "gpu": gpu,
        "device_name": storable(body.device_name),
        "gpus": body.gpus,
        "started_at": body.started_at,
        "ended_at": body.ended_at,
        "is_running": body.is_running,
        "total_bytes": total,
        "used_bytes": used,
        "samples_per_second": body.samples_per_second,
        "model": str(body.request.get("model", "")),
        "request": body.request,
        "gpu_hours": hours,
        "slurm_job_id": storable(body.slurm_job_id),
        "hosts": [storable(host) for host in body.hosts],
        **byte_hours(hours, used, total),
    }
    return _Job(number, (body.reporter, body.id), columns)


def _wrong_fields(given: Mapping[str, Any]) -> dict[str, str]:
    """A message for each field that is none of a request's, or has a value that it cannot have."""
    wrong: dict[str, str] = {}
    for name, value in given.items():
        if name not in FIELDS:
            wrong[name[:MAX_NAME_LENGTH]] = "it is no field of an analysis"
        elif name == "model":
            try:
                find_model(str(value))
            except InvalidInput as error:
                wrong |= error.fields
        else:
            read(FIELDS[name], value, wrong)
    return wrong


def gpu_of(device_name: str, total_bytes: int | None) -> str:
    """The catalogue's name of a reported GPU; empty if none or several match."""
    found = catalogue_name(device_name, total_bytes)
    if found is not None:
        return found
    try:
        named = canonical_name(device_name)
    except InvalidInput:
        return ""
    return named if named in GPUS and named != LOCAL else ""


def _owners(member: User) -> Callable[[str], int | None]:
    """Finds the member whose a job is, by its user name.

    Of a member's own import it raises :exc:`InvalidInput` for another member's.
    """
    everybody = User.objects.filter(is_active=True).values_list("pk", "username", "email")
    by_name = {name.casefold(): pk for pk, name, _ in everybody}
    by_name |= {email.casefold(): pk for pk, _, email in everybody if email}
    everyones = may_administer(member)

    def owner_of(user: str) -> int | None:
        found = by_name.get(user.casefold()) if user else None
        if everyones:
            return found
        if found not in (None, member.pk):
            raise InvalidInput({"user": f"{user} is another member; an admin may import it"})
        return member.pk

    return owner_of


def _refusal(number: int, given: Mapping[str, Any], error: InvalidInput) -> RefusedJob:
    named = given.get("id")
    shown = storable(named[:MAX_NAME_LENGTH]) if isinstance(named, str) else ""
    return RefusedJob(number, shown, _lists(error))


def _lists(error: InvalidInput) -> dict[str, list[str]]:
    return {storable(name): [storable(text)] for name, text in error.fields.items()}
