"""An analysis with the same settings reuses the stored result."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import services
from analyses.jobs import lease, request_columns
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import lease_on, make_result, make_trial, make_user

pytestmark = pytest.mark.database

ASKED: dict[str, object] = {"model": "bert", "gpu": "a10", "current_batch_size": 16}


def _answer(analysis: Analysis) -> Analysis:
    claim = lease_on(analysis)
    lease.record(claim, [make_trial(16), make_trial(300)], [])
    lease.finish(claim, make_result())
    analysis.refresh_from_db()
    return analysis


def test_a_result_is_reused_immediately_for_any_member(member: User) -> None:
    first = _answer(services.submit(member, ASKED))
    second = services.submit(make_user("lin"), ASKED)

    assert second.status == Status.SUCCEEDED
    assert second.answered_from == first
    assert second.result == first.result
    assert (second.speedup, second.usd_per_year) == (first.speedup, first.usd_per_year)
    assert [trial.batch_size for trial in second.trials.all()] == [16, 300]
    assert first.trials.count() == 2
    assert f"Analysis {first.pk} had the same settings" in second.log_lines.get().message
    assert second.finished_at is not None
    assert timezone.now() - second.finished_at < timedelta(minutes=1)
    assert second.job.state == Status.SUCCEEDED
    assert second.started_at == second.finished_at


def test_the_page_says_where_the_result_is_from(member: User, client: Client) -> None:
    first = _answer(services.submit(member, ASKED))
    second = services.submit(member, ASKED)
    client.force_login(member)

    text = client.get(reverse("analyses:detail", args=[second.pk])).content.decode()
    assert f'same settings as <a href="/{first.pk}/">' in text
    text = client.get(reverse("analyses:detail", args=[first.pk])).content.decode()
    assert "on node node-1" in text


def test_the_first_analysis_is_named_after_any_number_of_repeats(member: User) -> None:
    first = _answer(services.submit(member, ASKED))
    services.submit(member, ASKED)
    assert services.submit(member, ASKED).answered_from == first


@pytest.mark.parametrize(
    "changes",
    [
        {"current_batch_size": 17},
        {"gpu": "h100"},
        {"precision": "bf16-mixed"},
        {"hours_per_run": 5},
    ],
)
def test_other_settings_are_run(member: User, changes: dict[str, object]) -> None:
    _answer(services.submit(member, ASKED))
    assert services.submit(member, ASKED | changes).status == Status.QUEUED


def test_without_a_result_the_analysis_is_run(member: User) -> None:
    first = services.submit(member, ASKED)
    services.cancel(first, member)
    assert services.submit(member, ASKED).status == Status.QUEUED


def test_another_engine_version_runs_it_again(
    member: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answer(services.submit(member, ASKED))
    monkeypatch.setattr(request_columns, "engine_version", lambda: "a newer one")
    assert services.submit(member, ASKED).status == Status.QUEUED


def test_a_measurement_is_always_run_again(member: User) -> None:
    Node.objects.create(name="lab-1", gpu_name="NVIDIA A10", heartbeat_at=timezone.now())
    measured = ASKED | {"gpu": "local"}
    _answer(services.submit(member, measured))
    again = services.submit(member, measured)

    assert (again.status, again.request_hash) == (Status.QUEUED, "")


def test_a_model_of_the_hub_may_have_changed(member: User) -> None:
    assert services.submit(member, ASKED | {"model": "acme/some-bert"}).request_hash == ""
