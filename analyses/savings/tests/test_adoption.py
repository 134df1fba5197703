from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses import services
from analyses.models import Analysis, Status
from analyses.tests.factories import make_analysis, make_user

pytestmark = pytest.mark.database


def address(name: str, analysis: Analysis) -> str:
    return reverse(f"analyses:{name}", args=[analysis.pk])


@pytest.mark.longer
def test_the_owner_can_adopt_and_undo(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    html = page.get(address("detail", analysis)).content.decode()
    assert "Mark as adopted" in html
    assert "Potential savings per year" in html

    html = page.post(address("adopt", analysis), follow=True).content.decode()
    analysis.refresh_from_db()
    assert analysis.adopted_at is not None
    assert analysis.adopted_by == member
    assert "Adopted by grace on" in html
    assert "Realised savings per year" in html

    html = page.post(address("take-back", analysis), follow=True).content.decode()
    assert Analysis.objects.filter(adopted_at=None, adopted_by=None).exists()
    assert "Mark as adopted" in html


def test_an_admin_can_adopt_but_another_member_cannot(client: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    client.force_login(make_user("alan"))
    html = client.get(address("detail", analysis)).content.decode()
    assert "Mark as adopted" not in html
    for name in ("adopt", "take-back"):
        assert client.post(address(name, analysis)).status_code == 403
    analysis.refresh_from_db()
    assert analysis.adopted_at is None

    client.force_login(make_user("root", is_staff=True))
    client.post(address("adopt", analysis))
    analysis.refresh_from_db()
    assert analysis.adopted_by is not None
    assert analysis.adopted_by.username == "root"


@pytest.mark.parametrize(
    ("status", "fields"),
    [
        (Status.RUNNING, {}),
        (Status.FAILED, {}),
        (Status.SUCCEEDED, {"recommended_batch_size": None}),
        (Status.SUCCEEDED, {"recommended_batch_size": 16}),  # as today
    ],
)
def test_an_analysis_without_a_gain_cannot_be_adopted(
    page: Client, member: User, status: Status, fields: dict[str, Any]
) -> None:
    analysis = make_analysis(member, status, **fields)
    assert not services.adopt(analysis, member)
    html = page.post(address("adopt", analysis), follow=True).content.decode()
    assert "has no recommendation" in html
    analysis.refresh_from_db()
    assert analysis.adopted_at is None


def test_adopting_twice_keeps_the_first_time(member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    assert services.adopt(analysis, member)
    analysis.refresh_from_db()
    first = analysis.adopted_at
    assert not services.adopt(analysis, make_user("alan"))
    analysis.refresh_from_db()
    assert (analysis.adopted_at, analysis.adopted_by) == (first, member)


def test_the_buttons_need_a_post(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    for name in ("adopt", "take-back"):
        assert page.get(address(name, analysis)).status_code == 405
    assert page.post(reverse("analyses:adopt", args=[4711])).status_code == 404


def test_the_api_can_adopt_and_undo(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    api = reverse("api:analysis-adopt", args=[analysis.pk])
    body = page.post(api).json()
    assert body["adopted_by"] == "grace"
    assert body["adopted_at"]
    assert body["gpu_hours_per_year"] == analysis.gpu_hours_per_year
    assert page.post(api).status_code == 409
    body = page.delete(api).json()
    assert (body["adopted_at"], body["adopted_by"]) == (None, None)
    assert page.delete(api).status_code == 409


def test_the_api_refuses_another_member_and_an_unfinished_analysis(
    page: Client, member: User
) -> None:
    of_another = make_analysis(make_user("alan"), Status.SUCCEEDED)
    assert page.post(reverse("api:analysis-adopt", args=[of_another.pk])).status_code == 403
    assert page.delete(reverse("api:analysis-adopt", args=[of_another.pk])).status_code == 403
    running = make_analysis(member, Status.RUNNING)
    assert page.post(reverse("api:analysis-adopt", args=[running.pk])).status_code == 409
