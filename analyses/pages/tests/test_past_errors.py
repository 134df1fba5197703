"""How far off predictions were, as the Proof of an answer shows it."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.jobs.tests.test_measured_steps import _measured
from analyses.models import Analysis, Status
from analyses.pages.analysis.past_errors import ErrorRow, past_errors
from analyses.results.stored import result_of
from analyses.tests.factories import make_analysis, make_request, make_result, make_trial
from analyses.training_runs.services import store_report
from analyses.training_runs.tests.recorded_runs import recorded_run
from engine.interface.workload import Workload
from engine.prediction.timing.past_errors import Errors, Group, PredictedQuantity, percentile

pytestmark = [pytest.mark.database, pytest.mark.django_db]


def rows_of(analysis: Analysis, tab: str) -> list[ErrorRow]:
    result = result_of(analysis)
    assert result is not None
    return past_errors(analysis, result)[tab].rows


def report(analysis: Analysis, **changes: Any) -> None:
    """Store an analysis's training run."""
    record = recorded_run(analysis_id=analysis.pk, **changes)
    document = {"id": str(uuid4()), "host": "node-3", "record": record.to_dict()}
    store_report(analysis.owner, document)


@pytest.mark.parametrize("tab", ["memory", "speed"])
def test_without_own_measurements_the_published_ones_of_such_models_are_shown(
    member: User, tab: str
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    rows = rows_of(analysis, tab)
    assert [(row.models, row.where) for row in rows] == [
        ("Models of type bert", "NVIDIA A10, published"),
        ("Models of type bert", "all GPUs, published"),
        ("Transformers", "all GPUs, published"),
        ("All models", "all GPUs, published"),
    ]
    counts = [row.errors.count for row in rows]
    assert counts == sorted(set(counts))


def test_a_gpu_that_nobody_measured_on_has_the_figures_of_all(member: User) -> None:
    result = make_result(gpu="t4", workload=Workload("resnet"))
    request = make_request(gpu="t4", model="resnet")
    analysis = make_analysis(member, Status.SUCCEEDED, result, request=request)
    for row in rows_of(analysis, "speed"):
        assert row.where == "all GPUs, published"


def test_measured_trials_of_the_model_come_first(member: User) -> None:
    _measured(member, slower=1.25)
    analysis = make_analysis(member, Status.SUCCEEDED)
    first, *_ = rows_of(analysis, "speed")
    assert (first.models, first.where) == ("This model", "NVIDIA A10, your lab")
    assert first.median == "20.0%"
    assert "your lab" not in rows_of(analysis, "memory")[0].where


def test_those_of_another_gpu_count_where_there_are_none_of_this_one(member: User) -> None:
    _measured(member, measured_gpu="NVIDIA T4")
    first, *_ = rows_of(make_analysis(member, Status.SUCCEEDED), "speed")
    assert first.where == "all GPUs, your lab"


def test_those_of_another_model_do_not_count(member: User) -> None:
    _measured(member, request=make_request(gpu="local", model="gpt2"))
    first, *_ = rows_of(make_analysis(member, Status.SUCCEEDED), "speed")
    assert first.models != "This model"


def test_training_runs_tell_of_memory_and_speed(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    predicted = analysis.trials.get(batch_size=128)
    reserved, seconds = predicted.peak_reserved_bytes or 0, predicted.step_seconds or 0
    times = dict.fromkeys(("step_seconds_low", "step_seconds", "step_seconds_high"), 2 * seconds)
    report(analysis, peak_reserved_bytes=2 * reserved, peak_allocated_bytes=reserved, **times)
    for tab in ("memory", "speed"):
        first, *_ = rows_of(analysis, tab)
        assert (first.models, first.errors.count, first.median) == ("This model", 1, "50.0%")
        assert first.percentile_90 == ""  # of too few


def test_a_training_run_that_did_something_else_does_not_count(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    report(analysis, precision="bf16-mixed")
    assert rows_of(analysis, "memory")[0].models != "This model"


def test_the_page_says_whose_they_are_and_which_are_too_few(client: Client, member: User) -> None:
    client.force_login(member)
    analysis = make_analysis(member, Status.SUCCEEDED)
    page = client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert page.count("Our errors on models like this") == 2
    assert page.count("Your lab has measured none of this model yet") == 2
    assert "too few to say" in page
    report(analysis, peak_reserved_bytes=make_trial(128).peak_reserved_bytes)
    page = client.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert (
        page.count("Your lab&#x27;s are of its own") + page.count("Your lab's come from its own")
        == 2
    )


def test_errors_are_sizes_and_a_percentile_needs_a_few() -> None:
    assert Errors.of([]) is None
    assert Errors.of([-0.5, 0.25]) == Errors(2, 0.375, None)
    assert Errors.of([0.25] * 5) == Errors(5, 0.25, 0.25)


def test_a_percentile_lies_between_the_values_around_it() -> None:
    assert percentile([4.0, 1.0, 2.0, 3.0, 0.0], 0.75) == 3.0
    assert percentile([0.0, 1.0], 0.9) == pytest.approx(0.9)
    assert percentile([0.3], 0.05) == 0.3


def test_a_group_can_be_read_without_a_percentile() -> None:
    row = {"of": "memory", "models": "t5", "gpu": "", "count": 2, "median": 0.1, "sources": ["a"]}
    assert Group.read(row) == Group(PredictedQuantity.MEMORY, "t5", "", Errors(2, 0.1), ("a",))
