"""Pages on which admins change the defaults and prices of the lab."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses.lab import settings as lab
from analyses.lab.settings import lab_settings, price_of
from analyses.models import GpuPrice, LabSettings, Node
from analyses.pages.tests.reading import HTMX
from analyses.tests.factories import make_user
from engine.gpus import GPUS

LAB, GPU_PAGE = "/lab/", "/gpus/"

A10 = "/gpus/price/?gpu=a10"

GOOD = {
    "hours_per_run": "2.5",
    "runs_per_year": "30",
    "grid_co2e_grams_per_kwh": "40",
    "sharing_allowed": "on",
}

ODD_KIND = "NVIDIA GTX 1080/X & <co>"


def of_api(page: Client, gpu: str) -> dict[str, Any]:
    results = page.get("/api/v1/gpus/").json()["results"]
    return next(facts for facts in results if facts["name"] == gpu)


def test_a_member_cannot_change_settings(page: Client) -> None:
    for address, fields in ((LAB, GOOD), (A10, {"price_per_hour_usd": "1"})):
        assert page.get(address).status_code == 403
        assert page.post(address, fields).status_code == 403
    assert not LabSettings.objects.exists()
    assert not GpuPrice.objects.exists()


def test_only_admins_see_links_to_the_settings(page: Client, admins_page: Client) -> None:
    for address in (GPU_PAGE, "/new/"):
        assert f'href="{LAB}"' not in page.get(address).content.decode()
        assert f'href="{LAB}"' in admins_page.get(address).content.decode()
    assert "/gpus/price/" not in page.get(GPU_PAGE).content.decode()


def test_the_price_form_fills_a_cell_only_where_it_stands_in_one(admins_page: Client) -> None:
    """On a page of its own htmx would find no cell, and the price would not be saved."""
    alone, in_cell = (
        admins_page.get(A10, headers=headers).content.decode() for headers in ({}, HTMX)
    )
    assert '<form class="price-form" method="post"' in alone
    assert "closest td" not in alone
    assert in_cell.count('hx-target="closest td"') == 2  # to save, and to cancel


def test_an_admin_can_change_the_settings(admins_page: Client, admin: User) -> None:
    assert 'value="8"' in admins_page.get(LAB).content.decode()
    response = admins_page.post(LAB, GOOD)
    assert (response.status_code, response["Location"]) == (302, LAB)
    stored = lab_settings()
    assert (stored.hours_per_run, stored.runs_per_year) == (2.5, 30)
    assert stored.grid_co2e_grams_per_kwh == 40
    assert (stored.sharing_allowed, stored.changed_by) == (True, admin)
    html = admins_page.get(LAB).content.decode()
    assert 'value="2.5"' in html
    assert "Last changed by root" in html


def test_sharing_is_allowed_until_an_admin_forbids_it(admins_page: Client) -> None:
    assert lab_settings().sharing_allowed is True
    admins_page.post(LAB, {name: GOOD[name] for name in ("hours_per_run", "runs_per_year")})
    assert lab_settings().sharing_allowed is False


@pytest.mark.parametrize("value", ["-1", "many", "nan", "inf", "100001", "1\x00", "8" * 5000])
def test_invalid_defaults_come_back_with_a_message(admins_page: Client, value: str) -> None:
    response = admins_page.post(LAB, GOOD | {"hours_per_run": value})
    assert response.status_code == 200
    assert list(response.context["form"].errors) == ["hours_per_run"]
    assert 'id="id_hours_per_run_error"' in response.content.decode()
    assert not LabSettings.objects.exists()


def test_everyone_sees_the_current_price_and_its_source(page: Client, admin: User) -> None:
    lab.set_price(admin, "a10", 0.5)
    html = page.get(GPU_PAGE).content.decode()
    assert "$0.50" in html
    assert "set by root" in html
    assert "catalogue price $0.86" in html
    option = page.get("/new/").content.decode().split('<option value="a10"')[1]
    assert "$0.50/h, your lab&#x27;s price</option>" in option.split("\n")[0]
    facts = of_api(page, "a10")
    assert (facts["price_per_hour_usd"], facts["catalogue_price_per_hour_usd"]) == (0.5, 0.86)
    assert facts["sources"]["price_per_hour_usd"] == "assumed: set by a lab admin"
    assert of_api(page, "h100")["price_per_hour_usd"] == GPUS["h100"].price_per_hour_usd
    assert GPUS["a10"].sources["price_per_hour_usd"].startswith("assumed: Lambda")  # untouched


def test_the_page_of_gpus_has_spot_prices_with_source_and_date(page: Client) -> None:
    html = page.get(GPU_PAGE).content.decode()
    row = html.split("NVIDIA H100 SXM5 80GB</th>")[1].split("</tr>")[0]
    assert "catalogue price" in row
    assert ">2026-11-09<" in row
    assert "$1.87" in row
    assert 'title="assumed: Verda (DataCrunch) spot' in row
    assert ">2026-10-04<" in row


def test_a_price_can_be_set_without_javascript(admins_page: Client, admin: User) -> None:
    html = admins_page.get(A10).content.decode()
    assert "<html" in html
    assert 'value="0.86"' in html
    response = admins_page.post(A10, {"price_per_hour_usd": "0.5"})
    assert (response.status_code, response["Location"]) == (302, GPU_PAGE)
    held = price_of("a10")
    assert (held.usd, held.change and held.change.set_by) == (0.5, admin)


def test_a_price_can_be_set_in_its_table_cell(admins_page: Client) -> None:
    form = admins_page.get(A10, headers=HTMX).content.decode()
    assert "<html" not in form
    assert "autofocus" in form
    cell = admins_page.post(A10, {"price_per_hour_usd": "0"}, headers=HTMX).content.decode()
    assert "<form" not in cell
    assert "$0" in cell
    assert "autofocus" in cell  # back to the same place
    assert price_of("a10").usd == 0
    assert admins_page.get(A10 + "&shown=1", headers=HTMX).content.decode() == cell


@pytest.mark.parametrize("htmx", [{}, HTMX])
def test_a_price_can_be_reset_to_the_catalogues(
    admins_page: Client, admin: User, htmx: dict[str, str]
) -> None:
    lab.set_price(admin, "a10", 5)
    assert "Reset to $0.86" in admins_page.get(A10, headers=htmx).content.decode()
    admins_page.post(A10, {"reset": "1", "price_per_hour_usd": "nonsense"}, headers=htmx)
    assert price_of("a10").usd == 0.86
    assert "reset by root" in admins_page.get(GPU_PAGE).content.decode()


@pytest.mark.parametrize("value", ["-0.01", "10000.01", "free", "nan", "1e999", "<b>"])
@pytest.mark.parametrize("htmx", [{}, HTMX])
def test_an_invalid_price_comes_back_with_a_message(
    admins_page: Client, value: str, htmx: dict[str, str]
) -> None:
    response = admins_page.post(A10, {"price_per_hour_usd": value}, headers=htmx)
    html = response.content.decode()
    assert response.status_code == 200
    assert 'id="id_a10_price_per_hour_usd_error"' in html
    assert "<b>" not in html
    assert not GpuPrice.objects.exists()


@pytest.mark.parametrize("gpu", ["", "abacus", "A10", "NVIDIA A10"])
def test_an_unknown_gpu_is_not_found(admins_page: Client, gpu: str) -> None:
    assert admins_page.get("/gpus/price/", {"gpu": gpu}).status_code == 404


def test_a_gpu_of_the_labs_nodes_may_have_a_price(admins_page: Client, page: Client) -> None:
    for name, kind in (("odd", ODD_KIND), ("known", "NVIDIA A10"), ("without", "")):
        Node.objects.create(name=name, gpu_name=kind, heartbeat_at=timezone.now())
    html = admins_page.get(GPU_PAGE).content.decode()
    without = sum(gpu.price_per_hour_usd is None for gpu in GPUS.values())
    assert html.count("unknown") == without + 1
    assert html.count("not in the catalogue (measured only)") == 1
    address = next(part for part in html.split('"') if part.startswith("/gpus/price/?gpu=NVIDIA"))
    assert admins_page.post(address, {"price_per_hour_usd": "1.25"}).status_code == 302
    assert price_of(ODD_KIND).usd == 1.25
    assert "$1.25/h" in page.get("/new/").content.decode()


def test_a_price_keeps_its_last_change_when_the_admin_is_gone(
    admins_page: Client, admin: User
) -> None:
    lab.set_price(admin, "a10", 5)
    admin.delete()
    other = Client()
    other.force_login(make_user("lin", is_staff=True))
    assert "set by a former member" in other.get(GPU_PAGE).content.decode()
