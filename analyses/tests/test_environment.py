"""What an analysis ran with is kept with it and shown on its page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses import claims, services
from analyses.environment import environment_here
from analyses.models import Status
from analyses.presentation import environment_rows, verdict_of
from analyses.tests.factories import make_analysis, make_result
from analyses.worker import run_analysis
from engine.result import MeasuredOn, Source

ASKED: dict[str, object] = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
STORED = {
    "node": "gpu-1", "engine": "a" * 64, "python": "3.13.1",
    "torch": "2.13.0", "transformers": "5.23.0", "django-q2": "1.11.1",
}  # fmt: skip


def test_the_worker_that_takes_it_says_what_it_runs_with(member: User, fake_engine: Any) -> None:
    fake_engine("success")
    analysis = services.submit(member, ASKED)
    assert analysis.environment == {}
    run_analysis(analysis.pk)
    analysis.refresh_from_db()
    assert analysis.environment == environment_here()
    assert {"node", "engine", "python", "torch", "transformers"} <= set(analysis.environment)


def test_the_next_worker_says_its_own(member: User) -> None:
    analysis = services.submit(member, ASKED)
    claim = claims.claim(analysis.pk, "one", environment=STORED)
    assert claim is not None
    claims.finish(claim, claims.Interrupted())
    assert claims.claim(analysis.pk, "two", environment=STORED | {"node": "two"}) is not None
    analysis.refresh_from_db()
    assert analysis.environment["node"] == "two"


def test_an_answer_from_the_store_keeps_what_it_was_computed_with(member: User) -> None:
    first = services.submit(member, ASKED)
    claim = claims.claim(first.pk, "gpu-1", environment=STORED)
    assert claim is not None
    claims.finish(claim, make_result())
    second = services.submit(member, ASKED)
    assert second.answered_from == first
    assert second.environment == STORED


def test_a_prediction_shows_node_libraries_and_engine(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, environment=STORED)
    assert environment_rows(analysis, verdict_of(analysis)) == [
        ("Node", "gpu-1"),
        ("Libraries", "torch 2.13.0, transformers 5.23.0"),
        ("Python", "3.13.1"),
        ("Engine", "a" * 12),
    ]


def test_a_measurement_shows_its_device_and_each_version_once(member: User) -> None:
    result = make_result(
        source=Source.MEASURED, measured_on=MeasuredOn("NVIDIA A10", "2.13.0", "5.23.0", 4)
    )
    analysis = make_analysis(member, Status.SUCCEEDED, result, environment=STORED)
    rows = environment_rows(analysis, verdict_of(analysis))
    assert rows[:2] == [("Node", "gpu-1"), ("Device", "NVIDIA A10")]
    assert [label for label, _ in rows].count("Libraries") == 1


@pytest.mark.parametrize(("node", "rows"), [("gpu-1", [("Node", "gpu-1")]), ("", [])])
def test_an_older_analysis_shows_what_is_known(
    client: Client, member: User, node: str, rows: list[tuple[str, str]]
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, node=node)
    assert environment_rows(analysis, verdict_of(analysis)) == rows
    client.force_login(member)
    html = client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert (">Environment<" in html) == bool(rows)
