from __future__ import annotations

import importlib

import pytest
from django.apps import apps
from django.contrib.auth.models import User

from analyses.models import Analysis, Status
from analyses.savings.workload_key import workload_key
from analyses.services import submit
from analyses.tests.factories import NEW_IN_WORKLOADS, make_analysis, make_request


@pytest.mark.parametrize(
    "change",
    [
        {"current_batch_size": 64},
        {"batch_multiple": 8},
        {"gradient_accumulation": 4},
        {"global_batch_size": 512},
        {"hours_per_run": 2, "runs_per_year": 3, "price_per_hour_usd": 4},
    ],
)
def test_batch_sizes_and_assumptions_make_no_other_workload(change: dict[str, object]) -> None:
    assert workload_key(make_request(**change)) == workload_key(make_request())


@pytest.mark.parametrize(
    "change",
    [
        {"model": "gpt2"},
        {"gpu": "t4"},
        {"precision": "fp16-mixed"},
        {"optimizer": "sgd"},
        {"sequence_length": 64},
        {"lora_rank": 8},
        {"memory_limit_bytes": 2**33},
        {"label_count": 7},
    ],
)
def test_another_workload_or_gpu_has_another_key(change: dict[str, object]) -> None:
    assert workload_key(make_request(**change)) != workload_key(make_request())


def test_a_request_of_the_first_version_is_of_the_same_workload() -> None:
    old = {name: value for name, value in make_request().items() if name not in NEW_IN_WORKLOADS}
    assert workload_key(old) == workload_key(make_request())


def test_a_model_that_is_no_more_still_has_a_key() -> None:
    assert workload_key(make_request() | {"model": "a model of long ago"})


def test_a_gpu_measured_is_the_one_of_the_catalogue_with_its_name() -> None:
    local = make_request(gpu="local")
    assert workload_key(local, "NVIDIA A10") == workload_key(make_request(gpu="a10"))
    assert workload_key(local, "NVIDIA Unheard-of") != workload_key(local, "NVIDIA A10")


def test_a_submitted_analysis_has_its_key(member: User) -> None:
    request = make_request()
    assert submit(member, request).workload_key == workload_key(request)


def test_earlier_analyses_get_what_their_savings_are_counted_by(member: User) -> None:
    succeeded = make_analysis(member, Status.SUCCEEDED)
    failed = make_analysis(member, Status.FAILED)
    Analysis.objects.update(workload_key="", gpu_hours_per_year=None)
    name = "analyses.migrations.0006_savings_of_earlier_analyses"
    importlib.import_module(name).fill(apps, None)
    for analysis in (succeeded, failed):
        before = analysis.workload_key, analysis.gpu_hours_per_year
        analysis.refresh_from_db()
        assert (analysis.workload_key, analysis.gpu_hours_per_year) == before
    assert succeeded.gpu_hours_per_year
