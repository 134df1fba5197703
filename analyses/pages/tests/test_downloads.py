"""A long download leaves nothing open in the database, however slowly or briefly it is read."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import cast

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.http import StreamingHttpResponse
from django.test import Client

from analyses.models import Analysis, Status
from analyses.pages import savings
from analyses.pages.history import export
from analyses.savings import breakdown
from analyses.tests.factories import make_analysis, recount
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.pages import audit as audit_page

pytestmark = [pytest.mark.database, pytest.mark.django_db(transaction=True)]

CHUNK, ROWS = 2, 7
EXPORTS = (
    "/history/export.csv",
    "/history/export.json",
    "/savings/analyses.csv",
    "/audit/audit.csv",
)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "CHUNK", CHUNK)
    monkeypatch.setattr(savings, "CHUNK", CHUNK)
    monkeypatch.setattr(breakdown, "CHUNK", CHUNK)
    monkeypatch.setattr(audit_page, "CHUNK", CHUNK)


@pytest.fixture
def page(client: Client, member: User) -> Client:
    member.is_staff = True
    member.save()
    client.force_login(member)
    for number in range(ROWS):
        make_analysis(member, Status.SUCCEEDED, workload_key=f"workload {number}")
        with transaction.atomic():
            audit.note(member, Action.PRICE_SET, f"price {number}")
    recount(Analysis.objects.all())
    return client


@pytest.mark.parametrize("address", EXPORTS)
def test_nothing_is_open_while_a_reader_takes_its_time(page: Client, address: str) -> None:
    lines = _lines(page, address)
    for _ in range(ROWS):
        next(lines)
        assert _open() == []
    assert sum(1 for _ in lines) >= 1
    assert _open() == []


@pytest.mark.parametrize("address", EXPORTS)
def test_a_reader_who_leaves_early_leaves_nothing_open(page: Client, address: str) -> None:
    response = cast(StreamingHttpResponse, page.get(address))
    list(islice(response, CHUNK + 2))
    response.close()
    assert _open() == []


def _lines(page: Client, address: str) -> Iterator[bytes]:
    return iter(cast(StreamingHttpResponse, page.get(address)))


def _open() -> list[str]:
    """The transaction and the cursors that are open on this connection."""
    if connection.vendor != "postgresql":
        return ["transaction"] if connection.connection.in_transaction else []
    found = [] if connection.connection.info.transaction_status.name == "IDLE" else ["transaction"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_cursors")
        return found + [name for (name,) in cursor.fetchall()]
