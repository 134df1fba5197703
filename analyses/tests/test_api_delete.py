"""Deleting an analysis over the API."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.models import FINAL_STATUSES, Analysis, Status
from analyses.tests.factories import make_analysis, make_user


def _delete(api: APIClient, analysis: Analysis) -> int:
    return api.delete(f"/api/v1/analyses/{analysis.pk}/").status_code


@pytest.mark.parametrize("status", FINAL_STATUSES)
def test_it_is_gone_with_all_that_belongs_to_it(
    api: APIClient, member: User, status: Status
) -> None:
    analysis = make_analysis(member, status)
    assert _delete(api, analysis) == 204
    assert _delete(api, analysis) == 404


@pytest.mark.parametrize("status", [Status.QUEUED, Status.RUNNING, Status.CANCELLING])
def test_what_has_not_ended_stays(api: APIClient, member: User, status: Status) -> None:
    assert _delete(api, make_analysis(member, status)) == 409
    assert Analysis.objects.exists()


def test_only_ones_own_unless_one_is_an_admin(api: APIClient) -> None:
    analysis = make_analysis(make_user("alan"), Status.SUCCEEDED)
    assert _delete(api, analysis) == 403
    api.force_authenticate(make_user("root", is_staff=True))
    assert _delete(api, analysis) == 204
