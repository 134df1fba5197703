"""Comparing over the API gives the same numbers as the page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis, make_request, make_result
from engine.gpus import GPUS

URL = "/api/v1/compare/"


@pytest.fixture
def two(member: User) -> list[Analysis]:
    on_h100 = make_request(gpu="h100", current_batch_size=16)
    return [
        make_analysis(member, Status.SUCCEEDED),
        make_analysis(member, Status.SUCCEEDED, make_result(gpu="h100"), request=on_h100),
    ]


def _row(body: dict[str, Any], key: str) -> dict[str, Any]:
    (row,) = [row for row in body["answered"] if row["key"] == key]
    return dict(row)


def test_two_analyses_side_by_side(api: APIClient, two: list[Analysis]) -> None:
    one, other = two
    body = api.get(URL, {"ids": f"{one.pk},{other.pk}", "base": str(other.pk)}).json()

    assert body["base"] == other.pk
    assert "cheaper per sample than" in body["verdict"]
    assert [(column["id"], column["label"]) for column in body["analyses"]] == [
        (one.pk, "NVIDIA A10"),
        (other.pk, GPUS["h100"].display_name),
    ]
    largest = _row(body, "largest_batch_size")
    assert [cell["value"] for cell in largest["cells"]] == [
        one.largest_batch_size,
        other.largest_batch_size,
    ]
    assert largest["differs"]
    assert largest["cells"][0]["sources"] == ["predicted"]
    assert largest["cells"][0]["delta"]
    assert not largest["cells"][1]["delta"]
    assert _row(body, "device_used_bytes")["unit"] == "bytes"
    settings = {row["label"]: [cell["text"] for cell in row["cells"]] for row in body["asked"]}
    assert settings["Model"] == ["BERT base", "BERT base"]


def test_the_best_of_a_row_is_marked(api: APIClient, two: list[Analysis]) -> None:
    body = api.get(URL, {"ids": ",".join(str(one.pk) for one in two)}).json()
    assert [cell["best"] for cell in _row(body, "largest_batch_size")["cells"]] == ["", "best"]


def test_equal_rows_can_be_left_out(api: APIClient, two: list[Analysis]) -> None:
    body = api.get(URL, {"ids": ",".join(str(one.pk) for one in two), "diff": "1"}).json()
    assert [row["label"] for row in body["asked"]] == ["GPU"]
    assert all(row["differs"] for row in [*body["asked"], *body["answered"]])


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ({}, "ids"),
        ({"ids": "{0}"}, "ids"),
        ({"ids": "{0},{1},x"}, "ids"),
        ({"ids": "{0},4711"}, "ids"),
        ({"ids": ",".join(map(str, range(1, 12)))}, "ids"),
        ({"ids": "{0},{1}", "base": "4711"}, "base"),
        ({"ids": "{0},{1}", "diff": "yes"}, "diff"),
    ],
)
def test_analyses_that_cannot_be_compared_are_reported(
    api: APIClient, two: list[Analysis], query: dict[str, str], wrong: str
) -> None:
    pks = [one.pk for one in two]
    response = api.get(URL, {name: text.format(*pks) for name, text in query.items()})

    assert response.status_code == 400
    assert set(response.json()["errors"]) == {wrong}
