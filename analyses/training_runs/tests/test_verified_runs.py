"""Training runs that verify the savings of an analysis, and those that do not."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses import services
from analyses.jobs import plans
from analyses.jobs.lifecycle import move
from analyses.models import (
    Analysis,
    CountedSavings,
    Job,
    QueryKind,
    RunSavings,
    Status,
    TrainingRun,
)
from analyses.results.stored import result_columns
from analyses.savings.breakdown import Total, totals
from analyses.selectors import savings_visible_to
from analyses.tests.factories import (
    EarlierApps,
    make_analysis,
    make_global_batch,
    make_result,
    make_training,
)
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.training_runs.matching import why_not_verified
from analyses.training_runs.services import store_report
from analyses.training_runs.side_by_side import side_by_side
from analyses.training_runs.tests.recorded_runs import recorded_run, report_of
from engine.answer.amounts import trial_at
from engine.core.numbers import significant
from engine.core.sizes import gib_number
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/trainings/"
PARAMETERS = next(
    trial.breakdown["parameters"] for trial in make_result().trials if trial.breakdown
)
"""Bytes of the model's in :func:`make_result`."""


@pytest.fixture
def api(member: User) -> APIClient:
    client = APIClient()
    client.credentials(HTTP_AUTHORIZATION=f"Token {ApiToken.objects.create(user=member)[1]}")
    return client


# The rule


def test_a_training_run_as_recommended_verifies() -> None:
    assert _why_not() == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batch_size": 64}, "batch 64, not 128"),
        ({"world_size": 2}, "2 devices, not 1"),
        ({"device_name": "NVIDIA H100 80GB HBM3"}, "NVIDIA H100"),
        ({"device": "cpu", "device_name": "CPU (x86_64)"}, "CPU"),
        ({"device_name": "some GPU"}, "some GPU"),
        ({"precision": "bf16-mixed"}, "bf16-mixed, not fp32"),
        ({"model_name": "gpt2"}, "it trained gpt2, not BERT base"),
        ({"model_name": "Net", "parameter_bytes": 40_000}, "its model has <0.01 GiB of parameters"),
        ({"versions": {"torch": "2.11.0+cu130"}}, "it trained with torch 2.11.0+cu130"),
        (
            {
                "timed_steps": 0,
                "step_seconds": None,
                "step_seconds_low": None,
                "step_seconds_high": None,
                "samples_per_second": None,
            },
            "no step",
        ),
    ],
)
def test_any_other_training_run_does_not_verify(changes: dict[str, Any], reason: str) -> None:
    assert reason in _why_not(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"gradient_accumulation": 4},  # there was no global batch to keep
        {"precision": ""},
        {"precision": "16-true"},  # a framework's name, not one of ours
        {"device_name": "A10"},
        {"model_name": "bert-base-uncased"},
        {"model_name": "MyModule", "parameter_bytes": PARAMETERS},
        {"parameter_bytes": PARAMETERS * 103 // 100},  # another number of labels
        {"versions": {"torch": "2.13.1+cu130", "transformers": "5.23.0", "python": "3.12"}},
        {"interrupted": True},
    ],
)
def test_settings_outside_the_analysis_do_not_matter(changes: dict[str, Any]) -> None:
    assert _why_not(**changes) == ""


@pytest.mark.parametrize(("accumulation", "verifies"), [(4, True), (1, False), (8, False)])
def test_the_global_batch_must_be_kept(accumulation: int, verifies: bool) -> None:
    result = replace(make_result(), global_batch=make_global_batch(512, accumulation=4))
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10", "global_batch_size": 512})
    record = recorded_run(gradient_accumulation=accumulation)

    assert (why_not_verified(request, "", result, record) == "") == verifies


@pytest.mark.parametrize(
    ("measured_gpu", "trained_on", "verifies"),
    [
        ("NVIDIA A10", "NVIDIA A10", True),
        ("Radeon 7", "Radeon 7", True),
        ("Radeon 7", "NVIDIA A10", False),
        ("CPU (x86_64)", "CPU (x86_64)", True),
    ],
)
def test_a_measured_analysis_is_verified_on_its_gpu(
    measured_gpu: str, trained_on: str, verifies: bool
) -> None:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "local"})
    record = recorded_run(device_name=trained_on)

    assert (why_not_verified(request, measured_gpu, make_result(), record) == "") == verifies


def _why_not(**changes: Any) -> str:
    request = AnalysisRequest.parse({"model": "bert", "gpu": "a10"})
    result = make_result(software={"torch": "2.13.0", "peft": "0.17.0"})
    return why_not_verified(request, "", result, recorded_run(**changes))


def test_a_report_that_comes_before_the_result_verifies_it_later(
    api: APIClient, member: User
) -> None:
    running = make_analysis(member, Status.RUNNING)
    body = api.post(URL, report_of(recorded_run(analysis_id=running.pk)), format="json").json()
    _reported(api, running, batch_size=64)
    assert body["verifies"] is False

    job = Job.objects.filter(analysis=running)
    move(job, Status.RUNNING, Status.SUCCEEDED, subject=result_columns(make_result()))
    services.adopt(Analysis.objects.get(pk=running.pk), member)
    _reported(api, running)  # counts once, whichever comes first

    assert TrainingRun.objects.get(pk=body["id"]).verifies
    assert TrainingRun.objects.filter(verifies=True).count() == 2
    assert verified(member).workloads == 1


def test_an_analysis_without_a_result_is_not_verified(api: APIClient, member: User) -> None:
    running = make_analysis(member, Status.RUNNING)
    _reported(api, running)
    move(Job.objects.filter(analysis=running), Status.RUNNING, Status.FAILED)

    assert not TrainingRun.objects.get().verifies


# Savings and pages


def verified(member: User) -> Total:
    return totals(savings_visible_to(member)).verified


def _reported(api: APIClient, analysis: Analysis, **changes: Any) -> None:
    report = report_of(recorded_run(analysis_id=analysis.pk, **changes))
    assert api.post(URL, report, format="json").status_code == 201


def test_realised_savings_are_verified_or_self_reported(
    client: Client, api: APIClient, member: User
) -> None:
    trained, said = (make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "ab")
    for analysis in (trained, said):
        services.adopt(analysis, member)
    for _ in range(2):  # the same analysis counts once
        _reported(api, trained)
    _reported(api, said, batch_size=64)

    found = verified(member)
    assert found.workloads == 1
    assert found.usd_per_year == pytest.approx(trained.usd_per_year)
    client.force_login(member)
    page = client.get("/savings/").content.decode()
    assert ">1 workload</a>, is confirmed by a recorded training run" in page
    assert page.count(">verified</span>") == 1
    lines = b"".join(client.get("/savings/analyses.csv").streaming_content).decode()  # type: ignore[attr-defined]  # of a streaming response, which the client's type leaves out
    assert [line.split(",")[7] for line in lines.splitlines()] == ["verified", "no", "yes"]


def test_only_realised_savings_are_shown_as_verified(client: Client, member: User) -> None:
    adopted, _ = (make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "ab")
    services.adopt(adopted, member)
    client.force_login(member)

    assert client.get("/savings/").content.decode().count("of it is confirmed") == 1


def test_an_analysis_not_adopted_is_not_verified(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    services.adopt(analysis, member)
    services.undo_adoption(analysis, member)
    _reported(api, analysis)
    client.force_login(member)

    assert verified(member).workloads == 0
    assert "Mark the analysis as adopted" in client.get(f"/{analysis.pk}/").content.decode()


def test_the_page_shows_predicted_measured_and_real_side_by_side(
    client: Client, api: APIClient, member: User
) -> None:
    result = make_result(source=Source.MEASURED)
    result = replace(result, curve=[replace(result.trials[-1], source=Source.PREDICTED)])
    analysis = make_analysis(member, Status.SUCCEEDED, result)
    services.adopt(analysis, member)
    _reported(api, analysis, batch_size=64)
    _reported(api, analysis)
    analysis.refresh_from_db()

    found = side_by_side(analysis)
    assert found is not None
    assert found.is_verified
    assert [(row.name, row.batch_size) for row in found.rows] == [
        ("Predicted", 128), ("Measured", 128), ("Training run", 128), ("Training run", 64),
    ]  # fmt: skip
    client.force_login(member)
    page = client.get(f"/{analysis.pk}/").content.decode()
    assert "Predicted vs. recorded" in page
    assert "grace on node-3, NVIDIA A10" in page


def test_without_training_runs_the_page_does_not_mention_them(
    client: Client, member: User, analysis: Analysis
) -> None:
    client.force_login(member)

    assert "Predicted vs. recorded" not in client.get(f"/{analysis.pk}/").content.decode()


# The top of the page


def _page(client: Client, member: User, analysis: Analysis) -> str:
    client.force_login(member)
    return " ".join(client.get(f"/{analysis.pk}/").content.decode().split())


def test_the_top_of_the_page_says_how_the_prediction_came_true(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    _reported(api, analysis)
    trial = trial_at(make_result(), 128)
    assert trial is not None

    page = _page(client, member, analysis)
    expected = significant(trial.samples_per_second)
    reserved = gib_number(trial.peak_reserved_bytes, 1)
    assert (
        f"Verified: measured 365 against {expected} samples/s predicted, "
        f"10.7 against {reserved} GiB reserved."
    ) in page
    assert page.index("Verified: measured") < page.index("Copy config</a>")


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        ({"batch_size": 64}, "it trained with batch 64, not 128"),
        (
            {"device_name": "NVIDIA H100 80GB HBM3"},
            "it trained on NVIDIA H100 80GB HBM3, not NVIDIA A10",
        ),
        ({"precision": "bf16-mixed"}, "it trained in bf16-mixed, not fp32"),
        ({"model_name": "gpt2"}, "it trained gpt2, not BERT base"),
    ],
)
def test_the_top_of_the_page_says_which_condition_a_run_missed(
    client: Client,
    api: APIClient,
    member: User,
    analysis: Analysis,
    changes: dict[str, Any],
    missed: str,
) -> None:
    _reported(api, analysis, **changes)

    page = _page(client, member, analysis)
    assert f"Not verified by the last run: {missed}." in page
    assert "Verified:" not in page


def test_a_toy_on_a_cpu_does_not_stand_beside_the_prediction(
    client: Client, api: APIClient, member: User, analysis: Analysis
) -> None:
    toy = {"device": "cpu", "device_name": "CPU (x86_64)", "model_name": "Linear"}
    _reported(api, analysis, **toy)
    analysis.refresh_from_db()

    found = side_by_side(analysis)
    assert found is not None
    assert [row.training for row in found.rows] == [None]
    assert [other.why for other in found.others] == ["it trained on CPU (x86_64), not NVIDIA A10"]
    page = _page(client, member, analysis)
    assert "Reported here, but not counted:" in page


def test_runs_of_other_models_that_verified_before_do_so_no_more(member: User) -> None:
    migration = import_module("analyses.migrations.0045_runs_of_other_models")
    right, mixed, wrong = (
        make_analysis(member, Status.SUCCEEDED, workload_key=key) for key in "abc"
    )
    for analysis in (right, mixed, wrong):
        services.adopt(analysis, member)
    for analysis in (mixed, wrong):
        run = make_training(analysis)
        TrainingRun.objects.filter(pk=run.pk).update(record=run.record | {"model_name": "gpt2"})
    kept = [make_training(analysis).pk for analysis in (right, mixed)]

    migration.hold_against_models(EarlierApps(), None)
    assert (
        list(TrainingRun.objects.filter(verifies=True).order_by("pk").values_list("pk", flat=True))
        == kept
    )
    assert set(RunSavings.objects.values_list("training", flat=True)) == set(kept)
    verified_ones = CountedSavings.objects.filter(is_verified=True)
    assert set(verified_ones.values_list("analysis", flat=True)) == {right.pk, mixed.pk}


def test_a_run_as_recommended_before_verifies_no_decision_that_came_later(
    member: User, analysis: Analysis
) -> None:
    plans.submit(member, QueryKind.PLAN, plans.plan_request(analysis))
    run, _ = store_report(member, report_of(recorded_run(analysis_id=analysis.pk)))
    assert run.verifies
    answer_next(QueryKind.PLAN, plan_with_answers())
    assert not TrainingRun.objects.get(pk=run.pk).verifies
