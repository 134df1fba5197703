"""The history as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from itertools import islice
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from analyses.models import Analysis, Status
from analyses.pages.history import columns, export, labels
from analyses.pages.tests.reading import history_of
from analyses.tests.factories import (
    make_analysis,
    make_lengths,
    make_request,
    make_result,
    make_user,
)

pytestmark = pytest.mark.database


def exported(page: Client, ending: str, **query: Any) -> str:
    response = page.get(reverse(f"analyses:export-{ending}"), query)
    assert response.status_code == 200
    assert response["Content-Disposition"] == f'attachment; filename="analyses.{ending}"'
    return b"".join(response).decode()


def csv_rows(page: Client, **query: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(exported(page, "csv", **query))))


def test_csv_and_json_contain_what_is_shown(page: Client, member: User) -> None:
    slow = make_analysis(member, Status.SUCCEEDED, make_result(recommended=64))
    fast = make_analysis(member, Status.SUCCEEDED, make_result())
    make_analysis(member, Status.FAILED)
    query = {"status": "succeeded", "sort": "speedup", "columns": ["speedup", "batch"]}
    rows = json.loads(exported(page, "json", **query))
    assert rows == [
        {
            "id": analysis.pk,
            "model": "BERT base",
            "current_batch_size": 16,
            "recommended_batch_size": analysis.recommended_batch_size,
            "moves": [],
            "speedup": analysis.speedup,
            "has_gain": True,
            "source": "predicted",
        }
        for analysis in (slow, fast)
    ]
    in_csv = csv_rows(page, **query)
    assert list(in_csv[0]) == list(rows[0])
    assert [row["speedup"] for row in in_csv] == [repr(slow.speedup), repr(fast.speedup)]
    assert in_csv[0]["has_gain"] == "yes"


def test_lengths_that_differ_are_shown_and_exported(page: Client, member: User) -> None:
    make_analysis(member, Status.SUCCEEDED, make_result(lengths=make_lengths()))
    html = history_of(page, columns=["lengths"])
    assert 'data-label="Longest row">512<small>35% padding</small>' in html
    (row,) = csv_rows(page, columns=["lengths"])
    assert (row["worst_tokens"], row["padding_share"]) == ("512", "0.35")


def test_unknown_values_are_empty(page: Client, member: User) -> None:
    make_analysis(member, Status.FAILED)
    assert csv_rows(page)[0]["speedup"] == ""
    assert json.loads(exported(page, "json"))[0]["speedup"] is None


def test_an_empty_export_is_valid(page: Client) -> None:
    assert json.loads(exported(page, "json")) == []
    assert exported(page, "csv").startswith("id,model,gpu")
    assert exported(page, "csv").count("\r\n") == 1


@pytest.mark.parametrize("start", ["=", "@", "\t="])
def test_no_cell_becomes_a_formula(page: Client, start: str) -> None:
    name = f"{start}HYPERLINK(1)"
    make_analysis(make_user(name), Status.QUEUED, model=name)
    row = csv_rows(page)[0]
    assert row["model"] == row["member"] == f"'{name}"
    assert json.loads(exported(page, "json"))[0]["model"] == name


def test_tags_and_notes_are_exported(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    labels.write_labels(analysis, ["b", "a"], "=cmd", member)
    columns = ["tags", "note"]
    assert json.loads(exported(page, "json", columns=columns))[0]["tags"] == ["a", "b"]
    row = csv_rows(page, columns=columns)[0]
    assert (row["tags"], row["note"]) == ("a, b", "'=cmd")


def test_text_with_commas_quotes_and_line_ends_survives_csv(page: Client, member: User) -> None:
    name = 'a "b", c\nd'
    make_analysis(member, model=name)
    assert csv_rows(page)[0]["model"] == name


def test_an_export_has_no_pages(
    page: Client,
    member: User,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    monkeypatch.setattr(export, "CHUNK", 7)
    request = make_request()
    Analysis.objects.bulk_create(
        Analysis(owner=member, request=request, model=f"m{n}", gpu="a10", current_batch_size=1)
        for n in range(30)
    )
    # Session, member, role, the first ids, the others; rows and tags of 7 at a time.
    with django_assert_num_queries(15):
        assert len(csv_rows(page)) == 30


def test_an_export_streams_and_has_each_row_once(
    page: Client, member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "CHUNK", 3)
    there = [make_analysis(member).pk for _ in range(8)]
    with CaptureQueriesContext(connection) as queries:
        lines = export.csv_of(Analysis.objects.all(), columns.shown([]))
        text = "".join(islice(lines, 3))
    assert "LIMIT 3" in queries[0]["sql"]
    make_analysis(member)  # moves all others back by one
    rows = csv.DictReader(io.StringIO(text + "".join(lines)))
    found = [int(row["id"]) for row in rows]
    assert [pk for pk in found if pk in there] == there[::-1]


def test_exports_require_a_login(client: Client, member: User) -> None:
    make_analysis(member)
    assert client.get(reverse("analyses:export-csv")).status_code == 302
