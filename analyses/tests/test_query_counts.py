"""The number of database queries of each page and list, which must not grow with the lab.

Review a changed number with care: a page whose queries grow with the lab becomes slow.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from analyses.importing.tests.pushed_scripts import push_script
from analyses.models import (
    Analysis,
    Concern,
    Decided,
    GpuPrice,
    InboxEntry,
    LogLine,
    Mention,
    Node,
    Note,
    SavedView,
    ShareLink,
    Status,
    Tag,
    Trial,
)
from analyses.pages.compare.columns import MAX_ANALYSES
from analyses.pages.history.labels import TAGGINGS
from analyses.results.decided import RESULT_COLUMNS
from analyses.savings import kept
from analyses.tests.factories import make_analysis, make_notification, recount
from analyses.training_jobs.tests.reported_jobs import make_training_job

pytestmark = pytest.mark.database

QUERIES = {
    # Two of each are for the session and the member, one of each page for the inbox's badge.
    "/": 28,
    "/overview/weeks.csv": 4,
    "/overview/gpus.csv": 5,
    "/overview/predictions.csv": 5,
    "/history/": 16,
    "/history/?q=bert+member": 30,
    "/history/?model=bert&status=succeeded&tag=thesis&adopted=no&sort=-speedup": 16,
    "/history/?date_from=2026-01-01&sort=member&columns=note&columns=adopted": 16,
    "/history/?group=project": 18,
    "/history/project/?ids={ids}": 5,
    "/history/?status=asleep": 12,
    "/history/export.csv": 5,
    "/history/export.json": 5,
    "/history/export.csv?group=gpu": 4,
    "/history/tag/?ids={ids}": 4,
    "/history/delete/?ids={ids}": 9,
    "/compare/?ids={ids}": 4,
    "/compare/bars.svg?ids={ids}": 3,
    "/compare/table.md?ids={ids}": 3,
    "/search/": 6,
    "/search/?q=bert": 16,
    "/search/?q={succeeded}": 17,
    "/savings/": 18,
    "/savings/?by=model": 17,
    "/savings/?by=gpu": 17,
    "/savings/?by=month": 17,
    "/savings/?member=grace&kind=potential&by=month": 11,
    "/savings/superseded/": 8,
    "/savings/?kind=self_reported": 11,
    "/savings/report/?of=2025": 8,
    "/savings/report.csv?of=2025-Q1": 9,
    "/savings/totals.csv": 7,
    "/savings/analyses.csv": 6,
    "/gpu-hours/": 7,  # one for matched runs, one for those of the jobs listed
    "/gpu-hours/?by=member&period=all": 7,
    "/gpu-hours/?by=model": 7,
    "/gpu-hours/jobs/": 5,
    "/gpu-hours/totals.csv": 3,
    "/gpu-hours/largest.csv": 4,
    "/gpus/": 10,
    "/gpus/price/?gpu=a10": 5,
    "/inbox/?show=all": 5,
    "/inbox/badge/": 3,
    "/lab/": 4,
    "/models/?q=bert": 3,
    "/new/": 10,
    "/new/?from={succeeded}": 14,
    "/notifications/": 6,
    "/tokens/": 4,
    "/account/": 5,
    "/members/": 6,
    "/{queued}/": 21,  # here and below one for a ladder from before the last measured step
    "/{running}/": 21,
    "/{cancelling}/": 15,
    # Two for how far off trials and training runs of the model were, one for nodes' host memory.
    "/{succeeded}/": 25,
    "/{failed}/": 21,
    "/{cancelled}/": 15,
    "/{lost}/": 21,
    # Without a ladder, and past errors of its own only; one for what can be mentioned to its owner.
    "/{script}/": 19,
    "/{script}/advice/": 6,
    "/history/?q=script&columns=script": 16,
    "/{running}/live/": 17,
    "/{succeeded}/log/": 4,
    "/{succeeded}/advice/": 10,
    "/{succeeded}/labels/": 6,
    "/{succeeded}/worth/": 3,
    "/api/v1/analyses/": 7,
    "/api/v1/analyses/?page_size=200&sort=member": 7,
    "/api/v1/analyses/?q=bert&tag=thesis": 14,
    # Two for its version, which may avoid the others; one for plans that may change it.
    "/api/v1/analyses/{succeeded}/": 9,
    "/api/v1/analyses/{succeeded}/?fields=id,status": 6,
    "/api/v1/analyses/{succeeded}/events/": 7,  # one for what a sample of its trials is
    "/api/v1/analyses/{succeeded}/trials/": 5,
    "/api/v1/compare/?ids={ids}": 3,
    "/api/v1/savings/?by=gpu": 8,
    "/api/v1/savings/changes/": 5,
    "/api/v1/inbox/?show=all": 4,
    "/api/v1/training-jobs/": 4,
    "/api/v1/lab/": 3,
    "/api/v1/members/": 4,
    "/api/v1/gpus/a10/price/": 4,
    "/api/v1/nodes/": 5,
    "/api/v1/models/": 2,
    "/api/v1/model-types/": 2,
    "/api/v1/gpus/": 4,
    "/health": 5,
}
"""For each address; ``{ids}`` are as many as can be compared, ``{failed}`` is one that failed."""


@pytest.mark.parametrize("count", [pytest.param(2, marks=pytest.mark.slow), 12])
def test_each_address_takes_its_number_of_database_queries(
    page: Client, member: User, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_MAX_KEPT", 0)  # what one page added up would save another queries
    values = _fill(member, count)
    found = {address: _queries(page, address.format(**values)) for address in QUERIES}
    assert found == QUERIES


@pytest.fixture
def page(client: Client, member: User) -> Client:
    member.is_staff = True  # may delete and cancel other members' analyses
    member.save()
    client.force_login(member)
    return client


def _queries(page: Client, address: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        response = page.get(address)
        if response.streaming:
            b"".join(response)
    assert response.status_code in (200, 503), address  # 503: /health, where no worker is alive
    return len(queries)


def _fill(member: User, count: int) -> dict[str, str]:
    """Fill a lab with ``count`` of everything, plus one analysis in each status.

    Returns:
        The values of the placeholders in the addresses.
    """
    owners = User.objects.bulk_create(User(username=f"member-{n}") for n in range(count))
    of_each = {status: make_analysis(member, status, node="node-0") for status in Status}
    answered = of_each[Status.SUCCEEDED]
    more = Analysis.objects.bulk_create(
        _copy(
            answered, owner=owner, model=["bert", "gpt2"][number % 2], gpu=["a10", "t4"][number % 2]
        )
        for number, owner in enumerate(owners)
    )
    rows = [*of_each.values(), *more]
    Decided.objects.bulk_create(
        Decided(analysis=row, moves=["bf16"], fields={"precision": "bf16-mixed"}, before=_own(row))
        for row in (answered, *more)
    )
    _add_parts(rows, list(answered.trials.all()), count)
    _label(rows, [member, *owners])
    online = timezone.now() + timedelta(hours=1)  # however long a busy machine takes
    Node.objects.bulk_create(
        Node(name=f"node-{n}", gpu_name=f"GPU {n}", heartbeat_at=online) for n in range(count)
    )
    GpuPrice.objects.bulk_create(
        GpuPrice(gpu=["a10", "t4"][n % 2], price_per_hour_usd=n, set_by=owner)
        for n, owner in enumerate(owners)
    )
    ShareLink.objects.bulk_create(
        ShareLink(
            analysis=answered,
            digest=f"{n}",
            created_by=owner,
            expires_at=timezone.now() + timedelta(days=1),
        )
        for n, owner in enumerate(owners)
    )
    SavedView.objects.bulk_create(SavedView(owner=member, name=f"view {n}") for n in range(count))
    for n in range(count):
        make_training_job(member, id=f"{n}", request={"model": ["bert", "gpt2"][n % 2]})
    recount(Analysis.objects.all())
    ids = ",".join(str(row.pk) for row in more[:MAX_ANALYSES])
    script = push_script(owners[0])
    named = {status.value: str(row.pk) for status, row in of_each.items()}
    return named | {"ids": ids, "script": str(script.pk)}


def _own(row: Analysis) -> dict[str, Any]:
    return {name: getattr(row, name) for name in RESULT_COLUMNS}


def _copy(row: Analysis, **changes: Any) -> Analysis:
    copied = Analysis.objects.get(pk=row.pk)
    copied.pk = None
    for name, value in changes.items():
        setattr(copied, name, value)
    return copied


def _add_parts(rows: list[Analysis], trials: list[Trial], count: int) -> None:
    """Add trials, log lines, a notification and inbox entries to each."""
    Trial.objects.bulk_create(
        Trial(
            analysis=row,
            batch_size=n,
            fits=True,
            source=trials[0].source,
            breakdown=trials[0].breakdown,
        )
        for row in rows
        for n in range(1, count + 1)
    )
    LogLine.objects.bulk_create(
        LogLine(analysis=row, message="a line") for row in rows for _ in range(count)
    )
    for row in rows:
        make_notification(row)
        InboxEntry.objects.create(member=row.owner, kind=Concern.DECISION, analysis=row)
    mentions = Mention.objects.bulk_create(
        Mention(analysis=rows[0], by=row.owner, change="bf16", usd_per_year=1) for row in rows
    )
    InboxEntry.objects.bulk_create(
        InboxEntry(member=rows[0].owner, kind=Concern.MENTION, analysis=rows[0], mention=one)
        for one in mentions
    )


def _label(rows: list[Analysis], authors: list[User]) -> None:
    """Add two tags and a note to each."""
    tags = [Tag.objects.create(name=name) for name in ("thesis", "chapter two")]
    TAGGINGS.bulk_create(TAGGINGS.model(analysis=row, tag=tag) for row in rows for tag in tags)
    Note.objects.bulk_create(
        Note(analysis=row, text="as before", author=author)
        for row, author in zip(rows, cycle(authors))
    )
