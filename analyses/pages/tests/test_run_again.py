"""*Run again*: the same settings run again although there is a stored result."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import services
from analyses.models import FINAL_STATUSES, Analysis, Node, Status
from analyses.tests.factories import make_analysis, make_request, make_user

pytestmark = pytest.mark.database

GPU = "NVIDIA A10"


def _run_again(page: Client, analysis: Analysis) -> str:
    response = page.post(reverse("analyses:run-again", args=[analysis.pk]), follow=True)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.parametrize("status", FINAL_STATUSES)
def test_a_member_can_run_any_analysis_again_as_their_own(
    page: Client, member: User, status: Status
) -> None:
    request = make_request(price_per_hour_usd=2.5)
    other = make_analysis(make_user("alan"), status, request=request)
    html = _run_again(page, other)
    again = Analysis.objects.latest("pk")
    assert again != other
    assert (again.owner, again.status) == (member, Status.QUEUED)
    assert again.request == other.request
    assert again.job.state == Status.QUEUED
    assert f"This is a rerun of analysis {other.pk}." in html
    assert f"#{again.pk}" in html


def test_a_rerun_does_not_reuse_a_stored_result(member: User) -> None:
    first = services.submit(member, {"model": "bert", "gpu": "a10", "current_batch_size": 16})
    answered = make_analysis(member, Status.SUCCEEDED, request_hash=first.request_hash)
    again = services.run_again(answered, member)
    assert again.request_hash == first.request_hash
    assert again.answered_from is None
    assert again.status == Status.QUEUED


def test_a_measurement_runs_again_on_the_same_kind_of_gpu(page: Client, member: User) -> None:
    measured = make_analysis(
        member, Status.SUCCEEDED, request=make_request(gpu="local"), measured_gpu=GPU
    )
    html = _run_again(page, measured)
    assert f"Analysis {measured.pk} cannot be run again" in html
    assert "no node with a GPU is online" in html
    assert Analysis.objects.get() == measured

    Node.objects.create(name="gpu-1", gpu_name=GPU, heartbeat_at=timezone.now())
    _run_again(page, measured)
    assert Analysis.objects.latest("pk").measured_gpu == GPU


def test_an_unfinished_analysis_cannot_be_run_again(page: Client, member: User) -> None:
    running = make_analysis(member, Status.RUNNING)
    assert "has not finished yet" in _run_again(page, running)
    assert Analysis.objects.get() == running
    assert "Run again" not in page.get(f"/{running.pk}/").content.decode()


def test_a_get_request_does_not_run_it(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.FAILED)
    assert page.get(reverse("analyses:run-again", args=[analysis.pk])).status_code == 405


@pytest.mark.parametrize(("username", "offered"), [("grace", True), ("alan", False)])
def test_deleting_is_only_offered_to_those_who_may(
    client: Client, member: User, username: str, offered: bool
) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    client.force_login(member if username == "grace" else make_user(username))
    html = client.get(f"/{analysis.pk}/").content.decode()
    assert (f'href="/history/delete/?ids={analysis.pk}"' in html) == offered
    assert "Run again" in html
