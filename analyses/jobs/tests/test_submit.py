from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from rest_framework.test import APIClient

from analyses import selectors, services
from analyses.jobs import lease, queue
from analyses.models import Analysis, Job, JobKind, Node, Status
from analyses.pages.new.values import default_values
from analyses.tests.factories import lease_on, make_result, make_user
from engine.core.errors import InvalidInput

pytestmark = pytest.mark.database

GOOD: dict[str, object] = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


def test_submitting_stores_and_queues(member: User) -> None:
    analysis = services.submit(member, GOOD | {"precision": "bf16-mixed", "optimizer": "sgd"})

    stored = Analysis.objects.get()
    assert stored == analysis
    assert (stored.status, stored.owner) == (Status.QUEUED, member)
    assert (stored.model, stored.gpu, stored.current_batch_size) == ("bert", "a10", 32)
    assert (stored.precision, stored.optimizer) == ("bf16-mixed", "sgd")
    assert stored.request["sequence_length"] == 128
    job = Job.objects.get()
    assert (job.kind, job.lane, job.state) == (JobKind.ANALYSIS, queue.PREDICTIONS, Status.QUEUED)
    assert job.subject_id == analysis.pk


def test_the_queued_task_is_the_one_workers_run() -> None:
    from analyses.jobs import worker

    task = worker.run
    assert f"{task.__module__}.{task.__name__}" == queue.RUN_JOB


def test_row_and_queue_entry_are_one_transaction(member: User) -> None:
    with transaction.atomic():
        services.submit(member, GOOD)
        transaction.set_rollback(True)  # like any later error in the same request

    assert not Analysis.objects.exists()
    assert not Job.objects.exists()


def test_a_member_may_only_have_so_many_in_the_queue(member: User, settings: Settings) -> None:
    settings.QUEUED_PER_MEMBER = 2
    for batch in (1, 2):
        services.submit(member, GOOD | {"current_batch_size": batch})
    with pytest.raises(services.QueueFull, match=r"limit of analyses queued or running \(2\)"):
        services.submit(member, GOOD)
    assert Analysis.objects.count() == 2

    services.submit(make_user("lin"), GOOD)  # others may still
    first, _ = Analysis.objects.filter(owner=member).order_by("pk")
    assert services.cancel(first, member)
    services.submit(member, GOOD)


def test_what_a_stored_result_answers_needs_no_place_in_the_queue(
    member: User, settings: Settings
) -> None:
    done = services.submit(member, GOOD)
    claim = lease_on(done, "lab-1")
    lease.finish(claim, make_result())
    settings.QUEUED_PER_MEMBER = 1
    services.submit(member, GOOD | {"current_batch_size": 1})
    assert services.submit(member, GOOD).status == Status.SUCCEEDED


def test_a_script_is_told_when_to_try_again(
    api: APIClient, member: User, settings: Settings
) -> None:
    settings.QUEUED_PER_MEMBER = 1
    assert api.post("/api/v1/analyses/", GOOD, format="json").status_code == 201
    refused = api.post("/api/v1/analyses/", GOOD | {"current_batch_size": 1}, format="json")
    assert (refused.status_code, refused["Retry-After"]) == (429, "30")
    assert "wait until some have finished, or cancel some" in refused.json()["detail"]


def test_the_form_says_why_it_is_not_queued(member: User, settings: Settings) -> None:
    settings.QUEUED_PER_MEMBER = 1
    services.submit(member, GOOD)
    page = Client()
    page.force_login(member)
    shown = page.post("/new/", default_values() | {"current_batch_size": "8"})
    assert shown.status_code == 200
    assert "limit of analyses queued or running (1)" in shown.content.decode()


def test_no_row_is_left_if_queueing_fails(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise OSError("no queue")

    monkeypatch.setattr(queue, "key_fingerprint", broken)
    with pytest.raises(OSError, match="no queue"):
        services.submit(member, GOOD)

    assert not Analysis.objects.exists()


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"model": "bort"}, {"model"}),
        ({"model": ["bert"]}, {"model"}),
        ({"model": ""}, {"model"}),
        ({"gpu": "a11"}, {"gpu"}),
        ({"gpu": None}, {"gpu"}),
        ({"gpu": {"name": "a10"}}, {"gpu"}),
        ({"current_batch_size": 0}, {"current_batch_size"}),
        ({"current_batch_size": -1}, {"current_batch_size"}),
        ({"current_batch_size": 10**9}, {"current_batch_size"}),
        ({"current_batch_size": 10**400}, {"current_batch_size"}),
        ({"current_batch_size": "sixteen"}, {"current_batch_size"}),
        ({"current_batch_size": 1.5}, {"current_batch_size"}),
        ({"current_batch_size": True}, {"current_batch_size"}),
        ({"sequence_length": 513}, {"sequence_length"}),
        ({"image_size": 224}, {"image_size"}),
        ({"precision": "fp8"}, {"precision"}),
        ({"hours_per_run": "inf"}, {"hours_per_run"}),
        ({"hours_per_run": 10**400}, {"hours_per_run"}),
        ({"price_per_hour_usd": "nan"}, {"price_per_hour_usd"}),
        ({"colour": "red"}, {"colour"}),
        ({"gpu": "a11", "current_batch_size": 0}, {"gpu", "current_batch_size"}),
        ({"gpu": "local"}, {"gpu"}),
    ],
)
def test_invalid_input_is_reported_by_field_and_stores_nothing(
    member: User, fields: dict[str, Any], wrong: set[str]
) -> None:
    with pytest.raises(InvalidInput) as caught:
        services.submit(member, GOOD | fields)

    assert set(caught.value.fields) == wrong
    assert all(caught.value.fields.values())
    assert not Analysis.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("gpu_name", "age", "accepted"),
    [("NVIDIA A10", 1, True), ("NVIDIA A10", 300, False), ("", 1, False)],
)
def test_a_local_gpu_needs_an_online_node_with_a_gpu(
    member: User, gpu_name: str, age: int, accepted: bool
) -> None:
    beat = timezone.now() - timedelta(seconds=age)
    Node.objects.create(name="lab-1", gpu_name=gpu_name, heartbeat_at=beat)

    if accepted:
        assert services.submit(member, GOOD | {"gpu": "local"}).gpu == "local"
    else:
        with pytest.raises(InvalidInput, match="start a worker on one"):
            services.submit(member, GOOD | {"gpu": "local"})


def test_members_see_all_analyses_and_others_none(member: User) -> None:
    from django.contrib.auth.models import AnonymousUser

    from analyses.tests.factories import make_user

    services.submit(member, GOOD)
    colleague, former = make_user("lin"), make_user("gone", is_active=False)

    assert selectors.visible_to(colleague).count() == 1
    assert not selectors.visible_to(former).exists()
    assert not selectors.visible_to(AnonymousUser()).exists()
