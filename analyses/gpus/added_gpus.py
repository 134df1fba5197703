"""The GPUs that admins have added to the catalogue by their data sheets.

The engine's :data:`engine.gpus.GPUS` shows them while :func:`offered` lasts: for each request to
the site, and for each job of a worker. They are read once in that time, when first needed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property

from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import transaction
from django.utils import timezone

from analyses.models import AddedGpu
from engine.core.errors import InvalidInput
from engine.gpus import ANY, BUILT_IN, GPUS, LOCAL, Gpu, added_gpus, set_added, with_added
from engine.gpus.data_sheet import DataSheet, gpu_of
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action


class _Stored:
    """The stored GPUs, read when first needed."""

    @cached_property
    def _all(self) -> list[tuple[AddedGpu, Gpu]]:
        rows = AddedGpu.objects.select_related("added_by", "changed_by")
        return [(row, as_gpu(row)) for row in rows]

    @property
    def offered(self) -> Mapping[str, Gpu]:
        return {gpu.name: gpu for row, gpu in self._all if row.removed_at is None}

    @property
    def removed(self) -> Mapping[str, Gpu]:
        return {gpu.name: gpu for row, gpu in self._all if row.removed_at is not None}


@contextmanager
def offered() -> Iterator[None]:
    """Offer the lab's GPUs for a while."""
    with with_added(_Stored()):
        yield


def offer_in_requests() -> None:
    """Offer them from the start of each request to the end of its response."""
    request_started.connect(_begin, dispatch_uid="analyses.gpus.added_gpus.begin")
    request_finished.connect(_end, dispatch_uid="analyses.gpus.added_gpus.end")


def _begin(**_signal: object) -> None:
    set_added(_Stored())


def _end(**_signal: object) -> None:
    set_added(None)


def as_gpu(row: AddedGpu) -> Gpu:
    """The GPU of a row, under the name that it was added with."""
    return gpu_of(DataSheet(**row.sheet), origin_of(row), row.name)


def origin_of(row: AddedGpu) -> str:
    """The member who entered it and the date, for people to read."""
    added = f"added by {_name(row.added_by)} on {row.added_at:%Y-%m-%d}, from its data sheet"
    if row.changed_at is None:
        return added
    return f"{added}; changed by {_name(row.changed_by)} on {row.changed_at:%Y-%m-%d}"


def _name(member: User | None) -> str:
    return member.get_username() if member else "a former member"


def known_for(gpu: str) -> list[Gpu]:
    """The added GPUs an engine needs: those on offer, and a removed one named in its request."""
    own = [GPUS[gpu]] if gpu in GPUS and gpu not in list(GPUS) else []
    return [*added_gpus(), *own]


def basis_of(gpu: str, *, compares_all: bool) -> str:
    """Version of the added GPUs that a prediction depends on, for cache keys; empty without any."""
    known = added_gpus() if compares_all else []
    if gpu in GPUS and gpu not in BUILT_IN:
        known.append(GPUS[gpu])
    if not known:
        return ""
    values = [asdict(one) | {"sources": None} for one in known]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def check_offered(gpu: str) -> None:
    """Refuse a GPU that the lab has removed.

    Raises:
        InvalidInput: With what to do instead.
    """
    if gpu in (LOCAL, ANY) or gpu in list(GPUS):
        return
    row = AddedGpu.objects.select_related("removed_by").filter(name=gpu).first()
    if row is None or row.removed_at is None:
        return
    raise InvalidInput(
        {
            "gpu": f"{row} was removed from the catalogue by {_name(row.removed_by)} on "
            f"{row.removed_at:%Y-%m-%d}; choose another, or ask an admin to add it again"
        }
    )


def rows() -> dict[str, AddedGpu]:
    """The GPUs on offer, by name."""
    found = AddedGpu.objects.filter(removed_at=None).select_related("added_by", "changed_by")
    return {row.name: row for row in found}


def add(member: User, given: Mapping[str, object]) -> AddedGpu:
    """Add a GPU by its data sheet; the caller has checked that the member is an admin.

    One that was removed earlier is offered again, with the new values.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    sheet = DataSheet.parse(given)
    with transaction.atomic():
        row = AddedGpu.objects.select_for_update().filter(name=sheet.slug).first()
        if row is not None and row.removed_at is None:
            raise InvalidInput({"name": f"your lab has added it already, as {row.name}; edit it"})
        row = row or AddedGpu(name=sheet.slug)
        row.sheet, row.added_by, row.added_at = sheet.to_dict(), member, timezone.now()
        row.changed_by = row.changed_at = row.removed_by = row.removed_at = None
        row.save()
        audit.note(member, Action.GPU_ADDED, sheet.name, after=_words(row))
    _read_again()
    return row


def change(member: User, row: AddedGpu, given: Mapping[str, object]) -> AddedGpu:
    """Change the data sheet of a GPU; it keeps its name in requests.

    Analyses that have run keep their results.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    before, sheet = _words(row), DataSheet.parse(given)
    other = AddedGpu.objects.filter(name=sheet.slug).exclude(pk=row.pk)
    if other.exists():
        raise InvalidInput({"name": "your lab has another GPU of that name"})
    with transaction.atomic():
        row.sheet, row.changed_by, row.changed_at = sheet.to_dict(), member, timezone.now()
        row.save()
        audit.note(member, Action.GPU_CHANGED, sheet.name, before=before, after=_words(row))
    _read_again()
    return row


def remove(member: User, row: AddedGpu) -> None:
    """Offer a GPU no more. Analyses of it stay as they are."""
    with transaction.atomic():
        row.removed_by, row.removed_at = member, timezone.now()
        row.save()
        audit.note(member, Action.GPU_REMOVED, str(row), before=_words(row))
    _read_again()


def _words(row: AddedGpu) -> str:
    sheet = DataSheet(**row.sheet)
    return (
        f"{sheet.memory_gb:g} GB, {sheet.bandwidth_gb_per_second:g} GB/s, fp32 "
        f"{sheet.fp32_tflops:g} and fp16 {sheet.fp16_tflops:g} TFLOP/s, {sheet.power_watts:g} W"
    )


def _read_again() -> None:
    """Show the change to the rest of this request."""
    set_added(_Stored())
