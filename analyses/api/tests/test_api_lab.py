"""Members, settings and prices over the API: only admins change them and see the members."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from rest_framework.test import APIClient

from analyses.models import GpuPrice, Node
from analyses.tests.factories import make_user

LAB, MEMBERS = "/api/v1/lab/", "/api/v1/members/"
PRICE = "/api/v1/gpus/a10/price/"


@pytest.fixture
def admin(db: None) -> APIClient:
    client = APIClient()
    client.force_authenticate(make_user("root", is_staff=True))
    return client


def test_only_admins_see_the_members(admin: APIClient, member: User) -> None:
    make_user("alan", is_active=False)
    assert admin.get(MEMBERS).json()["results"] == [
        {"name": "alan", "role": "member", "active": False, "last_login": None},
        {"name": "grace", "role": "member", "active": True, "last_login": None},
        {"name": "root", "role": "admin", "active": True, "last_login": None},
    ]


def test_members_can_read_the_settings_but_not_change_them(api: APIClient) -> None:
    assert api.get(LAB).json() == {
        "hours_per_run": 8.0,
        "runs_per_year": 100.0,
        "grid_co2e_grams_per_kwh": 481.0,
        "sharing_allowed": True,
        "changed_by": None,
        "changed_at": None,
    }
    assert api.get(PRICE).json()["origin"] == "catalogue"
    for refused in (
        api.get(MEMBERS),
        api.patch(LAB, {"hours_per_run": 1}, format="json"),
        api.put(PRICE, {"price_per_hour_usd": 1}, format="json"),
        api.delete(PRICE),
    ):
        assert refused.status_code == 403
    assert not GpuPrice.objects.exists()


def test_an_admin_can_change_single_settings(admin: APIClient) -> None:
    admin.patch(LAB, {"sharing_allowed": False, "runs_per_year": 7}, format="json")
    body = admin.patch(LAB, {"hours_per_run": 3.5}, format="json").json()

    assert (body["hours_per_run"], body["runs_per_year"], body["sharing_allowed"]) == (
        3.5,
        7,
        False,
    )
    assert body["changed_by"] == "root"
    assert admin.patch(LAB, {"runs_per_year": None}, format="json").json()["runs_per_year"] == 100


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"hours_per_run": -1}, "hours_per_run"),
        ({"runs_per_year": "often"}, "runs_per_year"),
        ({"runs_per_year": "7"}, "runs_per_year"),
        ({"runs_per_year": True}, "runs_per_year"),
        ({"sharing_allowed": "no"}, "sharing_allowed"),
        ({"sharing_allowed": None}, "sharing_allowed"),
        ({"colour": 1}, "colour"),
        ([], "non_field_errors"),
    ],
)
def test_invalid_settings_are_reported_and_nothing_is_stored(
    admin: APIClient, given: Any, wrong: str
) -> None:
    before = admin.get(LAB).json()
    response = admin.patch(LAB, given, format="json")

    assert response.status_code == 400
    assert set(response.json()["errors"]) == {wrong}
    assert admin.get(LAB).json() == before


def test_an_admin_can_set_and_reset_a_price(admin: APIClient) -> None:
    catalogue = admin.get(PRICE).json()["price_per_hour_usd"]
    body = admin.put(PRICE, {"price_per_hour_usd": 0.4}, format="json").json()

    assert (body["price_per_hour_usd"], body["origin"], body["set_by"]) == (0.4, "lab", "root")
    assert body["catalogue_price_per_hour_usd"] == catalogue
    assert admin.delete(PRICE).status_code == 204
    assert admin.get(PRICE).json()["price_per_hour_usd"] == catalogue


def test_a_gpu_of_a_node_outside_the_catalogue_can_have_a_price(admin: APIClient) -> None:
    Node.objects.create(
        name="lab-1", gpu_name="Quadro RTX 6000/8000", heartbeat_at="2026-01-01T00:00Z"
    )
    address = "/api/v1/gpus/Quadro RTX 6000/8000/price/"

    assert admin.get(address).json()["price_per_hour_usd"] is None
    priced = admin.put(address, {"price_per_hour_usd": 0.9}, format="json").json()
    assert (priced["gpu"], priced["price_per_hour_usd"]) == ("Quadro RTX 6000/8000", 0.9)


@pytest.mark.parametrize(
    "given", [{}, {"price_per_hour_usd": -1}, {"price_per_hour_usd": None}, {"price": 1}]
)
def test_an_invalid_price_is_refused(admin: APIClient, given: dict[str, object]) -> None:
    assert admin.put(PRICE, given, format="json").status_code == 400
    assert not GpuPrice.objects.exists()


@pytest.mark.parametrize("method", ["get", "put", "delete"])
def test_an_unknown_gpu_has_no_price(admin: APIClient, method: str) -> None:
    send = getattr(admin, method)
    response = send("/api/v1/gpus/a11/price/", {"price_per_hour_usd": 1}, format="json")
    assert response.status_code == 404
