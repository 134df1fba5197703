"""Every step that the lab measures counts in the predictions for its GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from analyses import services
from analyses.jobs import lease
from analyses.jobs.engine_session import asked_of
from analyses.jobs.measured_steps import measured_steps
from analyses.models import Analysis, Status
from analyses.tests.factories import (
    lease_on,
    make_analysis,
    make_request,
    make_result,
    make_trial,
    make_user,
)
from analyses.training_runs.services import store_report
from analyses.training_runs.tests.recorded_runs import recorded_run
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.prediction.timing.correction import Experience
from engine.prediction.timing.speed_model import STEP_PREDICTOR, step_predictor

pytestmark = [pytest.mark.database, pytest.mark.django_db]

ASKED = {"model": "bert", "gpu": "a10", "current_batch_size": "16"}
HERE = {STEP_PREDICTOR: step_predictor()}


def _measured(owner: User, slower: float = 1.25, **fields: Any) -> Analysis:
    """An analysis measured on an A10, where each step took so many times its prediction."""
    result = make_result(source=Source.MEASURED)
    trials = [
        replace(trial, step_seconds=slower * trial.step_seconds) if trial.step_seconds else trial
        for trial in result.trials
    ]
    given: dict[str, Any] = {"measured_gpu": "NVIDIA A10", "environment": HERE} | fields
    request = given.pop("request", make_request(gpu="local"))
    result = replace(result, trials=trials)
    return make_analysis(owner, Status.SUCCEEDED, result, request=request, **given)


def test_measured_trials_count_with_their_workload(member: User) -> None:
    analysis = _measured(member)
    found = measured_steps("a10")
    assert {residual.batch_size for residual in found} == {
        trial.batch_size for trial in analysis.trials.all() if trial.fits
    }
    assert {round(residual.ratio, 6) for residual in found} == {1.25}
    learned = Experience(found).of(Workload("bert"), "a10")
    assert (len(learned.own), learned.others) == (len(found), 0)


def test_predicted_trials_and_other_gpus_do_not_count(member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    _measured(member, measured_gpu="NVIDIA T4")
    _measured(member, measured_gpu="some GPU")
    assert measured_steps("a10") == []


def test_steps_predicted_by_another_version_are_not_used(member: User) -> None:
    _measured(member, environment={STEP_PREDICTOR: "of last year"})
    assert Experience(measured_steps("a10")).of(Workload("bert"), "a10").factor(16) == 1


def _reported(analysis: Analysis, **changes: Any) -> None:
    record = recorded_run(analysis_id=analysis.pk, **changes)
    document = {"id": str(uuid4()), "host": "node-3", "record": record.to_dict()}
    store_report(analysis.owner, document)


@pytest.mark.parametrize("batch_size", [128, 100])
def test_training_runs_count_at_any_batch_size(member: User, batch_size: int) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, environment=HERE)
    alone = make_trial(batch_size).operations_seconds or 0
    names = ("step_seconds", "step_seconds_low", "step_seconds_high")
    took = dict.fromkeys(names, 1.5 * alone)
    samples = batch_size * 100
    _reported(analysis, batch_size=batch_size, samples=samples, **took)
    (found,) = measured_steps("a10")
    assert found.batch_size == batch_size
    assert found.ratio == pytest.approx(1.5)


def test_steps_that_depend_on_a_host_count_without_a_prediction(member: User) -> None:
    result = make_result()
    unknown = [replace(trial, operations_seconds=None) for trial in result.trials]
    result = replace(result, trials=unknown, curve=[])
    _reported(make_analysis(member, Status.SUCCEEDED, result, environment=HERE))
    measured = make_result(source=Source.MEASURED)
    unknown = [replace(trial, operations_seconds=None) for trial in measured.trials]
    request, gpu = make_request(gpu="local"), "NVIDIA A10"
    fields: dict[str, Any] = {"request": request, "measured_gpu": gpu, "environment": HERE}
    make_analysis(member, Status.SUCCEEDED, replace(measured, trials=unknown), **fields)
    found = measured_steps("a10")
    assert {one.source.split()[0] for one in found} == {"analysis", "training"}
    assert {one.predicted for one in found} == {None}
    learned = Experience(found).of(Workload("bert"), "a10")
    assert (learned.own, learned.others) == ([], 0)
    assert len(learned.of_host) == len(found)


@pytest.mark.parametrize("changes", [{"precision": "bf16-mixed"}, {"world_size": 2}])
def test_training_runs_that_differ_do_not_count(member: User, changes: dict[str, Any]) -> None:
    _reported(make_analysis(member, Status.SUCCEEDED, environment=HERE), **changes)
    assert measured_steps("a10") == []


def test_a_request_of_another_version_does_not_disturb(member: User) -> None:
    _measured(member, request=make_request(gpu="local") | {"no_longer_a_field": 1})
    assert measured_steps("a10") == []


def test_the_engine_is_told_of_every_members_steps(member: User) -> None:
    _measured(make_user("lin"))
    asked = asked_of(lease_on(services.submit(member, ASKED))).request
    told = asked["measured"]
    assert isinstance(told, list)
    assert {residual["gpu"] for residual in told} == {"a10"}
    AnalysisRequest.parse(asked["request"])  # type: ignore[arg-type]  # JSON


def test_an_answer_is_not_reused_once_more_is_known(member: User) -> None:
    claim = lease_on(services.submit(member, ASKED))
    lease.finish(claim, make_result())
    assert services.submit(member, ASKED).status == Status.SUCCEEDED
    _measured(member, measured_gpu="NVIDIA T4")
    assert services.submit(member, ASKED).status == Status.SUCCEEDED
    _measured(member)
    assert services.submit(member, ASKED).status == Status.QUEUED


def test_a_run_is_stored_with_its_own_number_of_micro_batches(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED, request=make_request(gpu="a10"))
    _reported(analysis, batch_size=16, gradient_accumulation=4)
    (found,) = measured_steps("a10")
    assert found.workload["gradient_accumulation"] == 4
    assert found.predicted is None
