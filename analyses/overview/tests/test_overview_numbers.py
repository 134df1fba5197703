"""The numbers behind the overview's charts and lists."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from analyses import services
from analyses.charts.overview import accuracy_chart, use_chart, weeks_chart
from analyses.jobs.tests.test_measured_steps import _measured
from analyses.models import Analysis, CountedSavings, Node, Status, StatusGroup
from analyses.overview.accuracy import Accuracy, accuracy_of
from analyses.overview.decisions import SHOWN, decisions_of
from analyses.overview.fullness import gpu_use
from analyses.overview.weeks import SHOWN_WEEKS, weeks_until
from analyses.tests.factories import (
    make_analysis,
    make_request,
    make_result,
    make_training,
    make_trial,
    make_user,
    make_viewer,
)
from analyses.training_runs.prediction_errors import between
from engine.gpus import GPUS
from engine.interface.trial import Source
from engine.prediction.timing.past_errors import PredictedQuantity

pytestmark = [pytest.mark.database, pytest.mark.django_db]

TODAY = date(2026, 3, 25)  # a Wednesday
MONDAY = date(2026, 3, 23)


def _submitted(owner: User, on: datetime, status: Status = Status.SUCCEEDED) -> None:
    analysis = make_analysis(owner, status)
    Analysis.objects.filter(pk=analysis.pk).update(queued_at=on)


def test_weeks_start_on_monday_and_end_with_this_one(member: User) -> None:
    _submitted(member, datetime(2026, 3, 23, tzinfo=UTC))
    _submitted(member, datetime(2026, 3, 22, 23, 59, 59, tzinfo=UTC), Status.FAILED)
    _submitted(member, datetime(2026, 3, 16, tzinfo=UTC), Status.LOST)
    _submitted(member, datetime(2026, 3, 25, 12, tzinfo=UTC), Status.RUNNING)
    _submitted(member, datetime(2025, 3, 24, tzinfo=UTC))  # long ago
    weeks = weeks_until(Analysis.objects.all(), TODAY)
    assert len(weeks) == SHOWN_WEEKS
    assert [week.monday for week in weeks[-2:]] == [MONDAY - timedelta(weeks=1), MONDAY]
    assert dict(weeks[-1].counts) == {
        StatusGroup.SUCCEEDED: 1,
        StatusGroup.FAILED: 0,
        StatusGroup.CANCELLED: 0,
        StatusGroup.UNFINISHED: 1,
    }
    assert weeks[-2].counts[StatusGroup.FAILED] == 2
    assert sum(sum(week.counts.values()) for week in weeks) == 4
    shown = [trace["name"] for trace in weeks_chart(weeks)["data"]]
    assert shown == ["Succeeded", "Failed or does not fit", "Queued or running"]


def _use() -> dict[str, Any]:
    return {kind.name: kind for kind in gpu_use(CountedSavings.objects.all())}


def test_a_gpu_is_as_full_as_the_batch_that_is_trained_with(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    kind = _use()["NVIDIA A10"]
    total = GPUS["a10"].total_bytes
    current, recommended = (
        (make_trial(size).device_used_bytes or 0) / total
        for size in (analysis.current_batch_size or 0, analysis.recommended_batch_size or 0)
    )
    assert (kind.now, kind.recommended) == pytest.approx((current, recommended))
    assert (kind.workloads, kind.sources) == (1, ("predicted",))
    services.adopt(analysis, member)
    assert _use()["NVIDIA A10"].now == pytest.approx(recommended)


def test_the_gpu_with_most_workloads_comes_first_and_is_drawn_on_top(member: User) -> None:
    for gpu, sequence_length in (("a10", 128), ("a10", 64), ("t4", 128)):
        request = make_request(gpu=gpu, sequence_length=sequence_length)
        make_analysis(member, Status.SUCCEEDED, make_result(gpu=gpu), request=request)
    kinds = gpu_use(CountedSavings.objects.all())
    assert [(kind.name, kind.workloads) for kind in kinds] == [("NVIDIA A10", 2), ("NVIDIA T4", 1)]
    bars, _ = use_chart(kinds)["data"]
    assert bars["y"] == ["T4", "A10"]


def test_a_measured_trial_counts_rather_than_a_predicted_one(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    size = analysis.current_batch_size or 0
    predicted = analysis.trials.get(batch_size=size)
    predicted.pk, predicted.source, predicted.device_used_bytes = None, "measured", 1_000_000
    predicted.save()
    kind = _use()["NVIDIA A10"]
    assert kind.now == pytest.approx(1_000_000 / GPUS["a10"].total_bytes)
    assert kind.sources == ("measured", "predicted")


def test_a_gpu_outside_the_catalogue_has_the_memory_its_node_reports(member: User) -> None:
    request = make_request(gpu="local")
    make_analysis(member, Status.SUCCEEDED, request=request, measured_gpu="Some GPU")
    assert _use() == {}
    Node.objects.create(
        name="n", gpu_name="Some GPU", gpu_total_bytes=10**11, heartbeat_at=timezone.now()
    )
    assert _use()["Some GPU"].total_bytes == 10**11


def test_a_workload_with_a_memory_limit_has_no_gpu_to_fill(member: User) -> None:
    request = make_request(memory_limit_bytes=10**10)
    make_analysis(member, Status.SUCCEEDED, request=request)
    assert _use() == {}


def _accuracy(user: User, of: PredictedQuantity) -> Accuracy:
    return next(one for one in accuracy_of(user) if one.of is of)


def test_measured_trials_are_compared_in_memory_and_speed(member: User) -> None:
    analysis = _measured(member, slower=1.25)
    stored = analysis.result or {}
    trial = analysis.trials.filter(fits=True).exclude(peak_reserved_bytes=None).first()
    assert trial is not None
    stored["curve"] = [
        {"batch_size": trial.batch_size, "source": "predicted",
         "peak_reserved_bytes": round(0.9 * (trial.peak_reserved_bytes or 0))}
    ]  # fmt: skip
    Analysis.objects.filter(pk=analysis.pk).update(result=stored)
    (memory,) = _accuracy(member, PredictedQuantity.MEMORY).compared
    assert memory.error == pytest.approx(-0.1)
    times = _accuracy(member, PredictedQuantity.STEP_TIME)
    assert times.own is not None
    assert times.own.median == pytest.approx(0.2)
    assert {one.gpu for one in times.compared} == {"a10"}


def test_training_runs_are_compared_too(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    reserved = analysis.trials.get(batch_size=128).peak_reserved_bytes or 0
    make_training(analysis, peak_reserved_bytes=2 * reserved)
    memory = _accuracy(member, PredictedQuantity.MEMORY)
    assert [one.error for one in memory.compared] == [pytest.approx(-0.5)]
    assert memory.own is not None
    assert memory.own.count == 1
    assert memory.published is not None
    text = accuracy_chart([memory])["data"][0]["text"][0]
    assert text.startswith(f"#{analysis.pk} BERT base, batch 128<br>predicted ")


def test_without_measurements_only_published_ones_are_told(member: User) -> None:
    make_analysis(member, Status.SUCCEEDED)
    for one in accuracy_of(member):
        assert one.own is None
        assert one.published is not None


def test_who_may_not_see_the_lab_learns_nothing_of_its_measurements(member: User) -> None:
    _measured(member)
    member.is_active = False
    assert all(not one.compared for one in accuracy_of(member))


def test_a_value_lies_on_the_line_between_its_neighbours() -> None:
    known = {8: 10.0, 16: 20.0}
    assert [between(known, size) for size in (4, 8, 12, 16, 17)] == [None, 10, 15, 20, None]


def test_own_recommendations_wait_until_they_are_adopted(member: User) -> None:
    first, second = (
        make_analysis(member, Status.SUCCEEDED, request=make_request(gpu=gpu), usd_per_year=usd)
        for gpu, usd in (("a10", 50.0), ("t4", 100.0))
    )
    make_analysis(member, Status.SUCCEEDED, request=make_request(gpu="l4"), usd_per_year=0.0)
    make_analysis(make_user("alan"), Status.SUCCEEDED, request=make_request(gpu="h100"))
    assert [row.pk for row in decisions_of(member).own] == [second.pk, first.pk]
    services.adopt(second, member)
    assert [row.pk for row in decisions_of(member).own] == [first.pk]


def test_a_failed_analysis_waits_until_its_workload_succeeds(member: User) -> None:
    failed = make_analysis(member, Status.FAILED)
    lost = make_analysis(member, Status.LOST, request=make_request(gpu="t4"))
    assert [row.pk for row in decisions_of(member).failed] == [lost.pk, failed.pk]
    make_analysis(member, Status.SUCCEEDED)
    assert [row.pk for row in decisions_of(member).failed] == [lost.pk]


def test_an_old_failure_waits_no_longer(member: User) -> None:
    failed = make_analysis(member, Status.FAILED)
    Analysis.objects.filter(pk=failed.pk).update(queued_at=timezone.now() - timedelta(days=31))
    assert decisions_of(member).is_empty


def test_a_member_sees_their_own_failures_and_admins_and_viewers_those_of_all(
    member: User,
) -> None:
    theirs = make_analysis(make_user("alan"), Status.FAILED)
    assert decisions_of(member).failed == []
    for user in (make_viewer("vera"), make_user("root", is_staff=True)):
        assert decisions_of(user).failed == [theirs]


def test_only_a_few_failures_are_shown(member: User) -> None:
    for number in range(SHOWN + 2):
        request = make_request(sequence_length=16 + number)
        make_analysis(member, Status.FAILED, request=request)
    assert len(decisions_of(member).failed) == SHOWN


def test_a_result_without_a_curve_is_compared_in_speed_alone(member: User) -> None:
    result = replace(make_result(source=Source.MEASURED), curve=[])
    request = make_request(gpu="local")
    make_analysis(member, Status.SUCCEEDED, result, request=request, measured_gpu="NVIDIA A10")
    assert _accuracy(member, PredictedQuantity.MEMORY).compared == []
    assert _accuracy(member, PredictedQuantity.STEP_TIME).own is not None
