"""Only so many long downloads run at once, over all processes of the site."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.signals import request_finished
from django.db import close_old_connections
from django.db.models import QuerySet
from django.http import HttpResponseBase
from django.test import RequestFactory
from pytest_django import DjangoAssertNumQueries, Settings

from memorymark_site.operations.downloads import download, ids_in_order, rows_in_order

REQUEST = RequestFactory().get("/history/export.csv")

_HOLD = """
import fcntl, sys
file = open(sys.argv[1], "wb")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def two(settings: Settings, tmp_path: Path) -> Iterator[None]:
    """Two at once, in a folder of the test's own; the end of a response touches no database."""
    settings.DATA_DIR, settings.DOWNLOADS_AT_ONCE = tmp_path, 2
    request_finished.disconnect(close_old_connections)
    yield
    request_finished.connect(close_old_connections)


def _start() -> HttpResponseBase:
    return download(REQUEST, iter(["a\n", "b\n"]), kind="text/csv", name="all.csv")


def _read(response: HttpResponseBase) -> str:
    return b"".join(response).decode()


def test_a_download_is_a_file() -> None:
    response = _start()
    assert response["Content-Disposition"] == 'attachment; filename="all.csv"'
    assert _read(response) == "a\nb\n"


def test_one_too_many_is_refused_until_another_has_ended_or_was_given_up() -> None:
    read, given_up = _start(), _start()
    refused = _start()
    assert (refused.status_code, refused["Retry-After"]) == (503, "10")
    assert "The site sends 2 at a time" in _read(refused)

    _read(read)
    other = _start()
    assert other.status_code == 200
    given_up.close()  # its reader has gone, having read nothing
    assert _start().status_code == 200


def test_a_download_that_fails_gives_its_place_back() -> None:
    def broken() -> object:
        yield "a\n"
        raise RuntimeError("the database went away")

    for _ in range(3):
        response = download(REQUEST, broken(), kind="text/csv", name="all.csv")  # type: ignore[arg-type]  # yields text
        with pytest.raises(RuntimeError):
            _read(response)


def test_other_processes_count_until_they_end_however_that_is(tmp_path: Path) -> None:
    _start().close()  # makes the folder
    others = [
        subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(tmp_path / "downloads" / number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in "01"
    ]
    for other in others:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
    assert _start().status_code == 503
    for other in others:
        other.kill()
        other.communicate()
    assert _start().status_code == 200


def test_a_full_disk_does_not_end_downloads(settings: Settings) -> None:
    settings.DATA_DIR = Path("/proc/self")
    assert _read(_start()) == "a\nb\n"


@pytest.fixture
def five(db: None) -> QuerySet[User]:
    """Members whose names are in the opposite order of their ids."""
    User.objects.bulk_create(User(username=name) for name in "edcba")
    return User.objects.order_by("username")


@pytest.mark.database
@pytest.mark.parametrize(("chunk", "queries"), [(2, 2), (5, 2), (6, 1)])
def test_ids_are_read_in_one_go_after_the_first_few(
    five: QuerySet[User],
    chunk: int,
    queries: int,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    with django_assert_num_queries(queries):
        parts = list(ids_in_order(five, chunk))
    assert all(len(part) <= chunk for part in parts)
    assert [pk for part in parts for pk in part] == [row.pk for row in five]


@pytest.mark.database
def test_rows_come_in_order_but_for_those_that_are_gone_by_then(five: QuerySet[User]) -> None:
    rows = rows_in_order(five, 2)
    found = [next(rows).username for _ in range(3)]
    User.objects.get(username="e").delete()
    assert found + [row.username for row in rows] == ["a", "b", "c", "d"]
