"""A request sent twice creates one analysis."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from analyses.models import Analysis, IdempotencyKey
from analyses.tests.factories import make_user

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"
GOOD = {"model": "bert", "gpu": "a10", "current_batch_size": 32}


def _post(api: APIClient, key: str = "one", **fields: object) -> Any:
    return api.post(URL, GOOD | fields, format="json", headers={"Idempotency-Key": key})


def test_a_repeated_request_gets_the_same_response(api: APIClient) -> None:
    first, again = _post(api), _post(api)

    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert first["Location"] == again["Location"]
    assert ("Idempotency-Replayed" in first, again["Idempotency-Replayed"]) == (False, "true")
    assert Analysis.objects.count() == 1


def test_the_order_of_the_fields_does_not_matter(api: APIClient) -> None:
    _post(api)
    turned = dict(reversed(GOOD.items()))
    api.post(URL, turned, format="json", headers={"Idempotency-Key": "one"})
    assert Analysis.objects.count() == 1


def test_another_request_with_the_same_key_is_refused(api: APIClient) -> None:
    _post(api)
    response = _post(api, current_batch_size=64)

    assert response.status_code == 422
    assert "another body" in response.json()["detail"]
    assert Analysis.objects.count() == 1


def test_another_key_or_member_creates_another_analysis(api: APIClient) -> None:
    _post(api)
    _post(api, key="two")
    api.force_authenticate(make_user("alan"))
    _post(api)
    assert Analysis.objects.count() == 3


def test_without_a_key_each_request_creates_an_analysis(api: APIClient) -> None:
    for _ in range(2):
        api.post(URL, GOOD, format="json")
    assert (Analysis.objects.count(), IdempotencyKey.objects.count()) == (2, 0)


def test_a_refused_request_can_be_corrected_under_its_key(api: APIClient) -> None:
    assert _post(api, gpu="a11").status_code == 400
    assert not IdempotencyKey.objects.exists()
    assert _post(api).status_code == 201


def test_a_key_is_forgotten_after_a_day(api: APIClient) -> None:
    _post(api)
    IdempotencyKey.objects.update(used_at=timezone.now() - timedelta(hours=25))
    _post(api, current_batch_size=64)
    assert (Analysis.objects.count(), IdempotencyKey.objects.count()) == (2, 1)


@pytest.mark.parametrize("key", ["", "x" * 256, "é", "a\tb"])
def test_an_invalid_key_is_refused(api: APIClient, key: str) -> None:
    assert _post(api, key).status_code == 400
    assert not Analysis.objects.exists()


@pytest.mark.skipif(
    connection.vendor == "sqlite", reason="in memory, as the tests have it, nobody waits for a lock"
)
# Naming the apps empties the tables by a cascade, including knox's own, which has no model.
@pytest.mark.django_db(transaction=True, available_apps=settings.INSTALLED_APPS)
def test_concurrent_requests_with_one_key_create_one_analysis() -> None:
    member = make_user()

    def send(_: int) -> int:
        client = APIClient()
        client.force_authenticate(member)
        try:
            return int(_post(client).json()["id"])
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(send, range(8)))

    assert len(ids) == Analysis.objects.count() == 1
