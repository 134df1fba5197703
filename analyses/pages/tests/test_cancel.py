"""Cancelling on the page and over the API."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from rest_framework.test import APIClient

from analyses.models import FINAL_STATUSES, Status
from analyses.tests.factories import make_analysis, make_user

pytestmark = pytest.mark.database


@pytest.mark.parametrize(
    ("status", "then"),
    [(Status.QUEUED, Status.CANCELLED), (Status.RUNNING, Status.CANCELLING)],
)
def test_the_button_cancels(page: Client, member: User, status: Status, then: Status) -> None:
    analysis = make_analysis(member, status, heartbeat_at=timezone.now())
    address = reverse("analyses:detail", args=[analysis.pk])
    assert "Cancel</button>" in page.get(address).content.decode()
    response = page.post(reverse("analyses:cancel", args=[analysis.pk]), follow=True)

    assert response.redirect_chain == [(address, 302)]
    analysis.refresh_from_db()
    assert analysis.status == then
    assert "Cancel</button>" not in response.content.decode()
    assert then.label in response.content.decode()


@pytest.mark.parametrize("status", FINAL_STATUSES)
def test_a_finished_analysis_is_left_alone(page: Client, member: User, status: Status) -> None:
    analysis = make_analysis(member, status)
    response = page.post(reverse("analyses:cancel", args=[analysis.pk]), follow=True)

    assert "has already finished" in response.content.decode()
    analysis.refresh_from_db()
    assert analysis.status == status


def test_a_cancelled_analysis_says_who_cancelled_it(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    response = page.post(reverse("analyses:cancel", args=[analysis.pk]), follow=True)

    text = response.content.decode()
    assert "The analysis was cancelled" in text
    assert "Cancelled by grace." in text


def test_a_member_cannot_cancel_anothers_analysis(page: Client, api: APIClient) -> None:
    analysis = make_analysis(make_user("lin"))
    assert page.post(reverse("analyses:cancel", args=[analysis.pk])).status_code == 403
    assert api.post(f"/api/v1/analyses/{analysis.pk}/cancel/").status_code == 403
    text = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert "Cancel</button>" not in text

    analysis.refresh_from_db()
    assert analysis.status == Status.QUEUED


def test_an_admin_can_cancel_any_analysis(client: Client, db: None) -> None:
    client.force_login(make_user("root", is_staff=True))
    analysis = make_analysis(make_user("lin"))
    client.post(reverse("analyses:cancel", args=[analysis.pk]))

    analysis.refresh_from_db()
    assert analysis.failure_reason == "Cancelled by root."


def test_a_get_request_does_not_cancel(page: Client, member: User) -> None:
    analysis = make_analysis(member)
    assert page.get(reverse("analyses:cancel", args=[analysis.pk])).status_code == 405


def test_the_api_cancels_once(api: APIClient, member: User) -> None:
    analysis = make_analysis(member)
    first = api.post(f"/api/v1/analyses/{analysis.pk}/cancel/")
    second = api.post(f"/api/v1/analyses/{analysis.pk}/cancel/")

    assert (first.status_code, second.status_code) == (200, 409)
    assert first.json()["status"] == "cancelled"
    assert "has ended" in second.json()["detail"]
    assert first.json()["failure"] == {"code": "cancelled", "reason": "Cancelled by grace."}
    assert api.post("/api/v1/analyses/4711/cancel/").status_code == 404
