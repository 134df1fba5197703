"""The change between analyses that differ in their software only."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses.models import Analysis, Status
from analyses.pages.compare.columns import columns_of
from analyses.pages.compare.releases import ReleaseChange, release_change
from analyses.pages.tests.compared import html_of, ids
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.interface.result import OperationTime, StepProfile, TensorGroup

ATTENTION = "bert.encoder.layer.*.attention.self"
HOSTILE = "<script>alert(1)</script>"


def made(member: User, transformers: str, more: int = 0, **asked: Any) -> Analysis:
    """An answer whose peak has so many bytes more than others have."""
    result = make_result()
    grown = [
        replace(one, peak_allocated_bytes=(one.peak_allocated_bytes or 0) + more)
        for one in result.trials
    ]
    tensors = [
        TensorGroup(ATTENTION, "aten.bmm", "activations", 12, 2**30 + more),
        TensorGroup(ATTENTION, "", "parameters", 24, 2**20),
    ]
    profile = StepProfile(16, "backward", tensors, [OperationTime("aten.bmm", 12, 0.01)])
    software = {"transformers": transformers, "torch": "2.13.0+cpu"}
    result = replace(result, trials=grown, profile=profile, software=software)
    request = make_request(software=f"transformers={transformers}", **asked)
    return make_analysis(member, Status.SUCCEEDED, result, request=request)


def change(*analyses: Analysis) -> ReleaseChange | None:
    return release_change(columns_of(analyses), analyses[0].pk)


def test_two_releases_are_compared_with_the_older_one_first(member: User) -> None:
    new, old = made(member, "4.51.3", 2**29), made(member, "4.46.3")
    found = change(new, old)
    assert found is not None
    assert (found.before_id, found.after_id, found.releases) == (old.pk, new.pk, 2)
    assert found.heads == ("transformers 4.46.3", "transformers 4.51.3")
    (difference,) = found.comparison.tensors
    assert (difference.module, difference.added_bytes) == (ATTENTION, 2**29)


def test_of_several_releases_the_neighbours_that_differ_most_are_shown(member: User) -> None:
    grown = {"4.44.2": 0, "4.46.3": 2**20, "4.51.3": 2**30, "4.57.6": 2**30, "5.0.0": 2**29}
    found = change(*(made(member, number, more) for number, more in grown.items()))
    assert found is not None
    assert found.heads == ("transformers 4.46.3", "transformers 4.51.3")
    assert found.releases == len(grown)


@pytest.mark.parametrize(
    "asked", [{"gpu": "l4"}, {"sequence_length": 64}, {"current_batch_size": 8}, {"model": "gpt2"}]
)
def test_analyses_that_differ_in_more_than_software_are_left_out(
    member: User, asked: dict[str, Any]
) -> None:
    assert change(made(member, "4.46.3"), made(member, "4.51.3", **asked)) is None
    cheaper = made(member, "4.51.3", price_per_hour_usd=1)
    assert change(made(member, "4.46.3"), cheaper) is not None  # costs decide no trial


def test_without_an_answer_there_is_nothing_to_compare(member: User) -> None:
    waiting = make_analysis(member, Status.QUEUED, request=make_request(software="transformers=5"))
    assert change(made(member, "4.46.3"), waiting) is None
    assert change(made(member, "4.46.3"), made(member, "4.46.3")) is None


def test_an_answer_of_an_older_version_is_compared_as_a_whole(member: User) -> None:
    old = make_result()
    old = replace(old, software={"transformers": "4.46.3"})
    asked = make_request(software="transformers=4.46.3")
    found = change(
        make_analysis(member, Status.SUCCEEDED, old, request=asked), made(member, "4.51.3")
    )
    assert found is not None
    assert found.tables == []
    assert found.comparison.caveats


def test_the_page_shows_what_changed(client: Client, member: User) -> None:
    client.force_login(member)
    two = [made(member, "4.46.3"), made(member, "4.51.3", 2**29)]
    html = html_of(client, f"?ids={ids(two)}")
    assert "What changed?" in html
    assert ATTENTION in html
    assert "+0.50" in html
    apart = [two[0], made(member, "4.46.3", gpu="l4")]
    assert "What changed?" not in html_of(client, f"?ids={ids(apart)}")


def test_names_of_modules_cannot_carry_markup(client: Client, member: User) -> None:
    client.force_login(member)
    two = [made(member, "4.46.3"), made(member, "4.51.3")]
    stored = two[1].result
    assert stored is not None
    stored["profile"]["tensors"] = [
        {"module": HOSTILE, "operation": HOSTILE, "category": "x", "count": 1, "size_bytes": 2**31}
    ]
    two[1].save()
    html = html_of(client, f"?ids={ids(two)}")
    assert "alert(1)" in html
    assert HOSTILE not in html
    assert HOSTILE not in client.get(f"/compare/changed.md?ids={ids(two)}").text


def test_the_tables_can_be_taken_along_as_csv_and_markdown(client: Client, member: User) -> None:
    client.force_login(member)
    two = [made(member, "4.46.3"), made(member, "4.51.3", 2**29)]
    query = f"?ids={ids(two)}"
    html = html_of(client, query)
    for name in ("changed.csv", "changed.md"):
        assert f"/compare/{name}{query}" in html
    lines = list(csv.DictReader(io.StringIO(client.get(f"/compare/changed.csv{query}").text)))
    by_operation, by_module = lines
    assert (by_operation["by"], by_module["by"]) == ("operation", "module")
    assert by_operation["module"] == ATTENTION
    assert (by_operation["unit"], by_operation["source"]) == ("bytes", "predicted")
    assert by_operation["before (transformers 4.46.3)"] == str(2**30)
    assert by_operation["after (transformers 4.51.3)"] == str(2**30 + 2**29)
    assert by_operation["added"] == str(2**29)

    text = client.get(f"/compare/changed.md{query}").text
    assert "### Memory at the peak, by operation" in text
    assert "| +0.50 |" in text
    assert f"#{two[0].pk} and #{two[1].pk}, batch 16" in text


def test_where_nothing_is_compared_there_is_nothing_to_take_along(
    client: Client, member: User
) -> None:
    client.force_login(member)
    apart = [made(member, "4.46.3"), made(member, "4.46.3", gpu="l4")]
    for name in ("changed.csv", "changed.md"):
        assert client.get(f"/compare/{name}?ids={ids(apart)}").status_code == 404


def test_the_api_has_the_same(api: APIClient, member: User) -> None:
    two = [made(member, "4.46.3"), made(member, "4.51.3", 2**29)]
    body = api.get("/api/v1/compare/", {"ids": ids(two)}).json()
    changed = body["changed"]
    assert (changed["before_id"], changed["after_id"]) == (two[0].pk, two[1].pk)
    assert changed["comparison"]["tensors"][0]["after_bytes"] == 2**30 + 2**29
    assert changed["comparison"]["verdict"].startswith("Batch 16 fits with either.")
    others = [two[0], made(member, "4.51.3", gpu="l4")]
    assert api.get("/api/v1/compare/", {"ids": ids(others)}).json()["changed"] is None
