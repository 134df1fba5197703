from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from analyses import lab as lab
from analyses import services
from analyses.lab import lab_settings, price_of, prices
from analyses.models import Analysis, GpuPrice, LabSettings, Node, Status
from analyses.pages.new.values import default_values, values_of
from analyses.pages.settings import settings_of
from analyses.tests.factories import make_analysis, make_request, make_user
from demo.filling import fill
from demo.plan import Planned
from engine.core.errors import InvalidInput
from engine.core.sizes import GIB
from engine.gpus import GPUS

ASKED: dict[str, object] = {"model": "bert", "gpu": "a10"}
ASSUMED = ("hours_per_run", "runs_per_year", "price_per_hour_usd", "grid_co2e_grams_per_kwh")


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


@pytest.fixture
def admin(db: None) -> User:
    return make_user("root", is_staff=True)


def set_defaults(admin: User, hours: object = 12, runs: object = 40, grid: object = 50) -> None:
    lab.save_settings(
        admin,
        hours_per_run=hours,
        runs_per_year=runs,
        grid_co2e_grams_per_kwh=grid,
        sharing_allowed=True,
    )


OF_WORKLOAD = dict.fromkeys(("precision", "optimizer", "sequence_length"), "default")
"""Fields that :data:`ASKED` leaves out."""


def assumed(analysis: Analysis) -> list[object]:
    return [analysis.request[name] for name in ASSUMED]


def node(gpu: str) -> None:
    Node.objects.create(
        name=f"with {gpu}", gpu_name=gpu, gpu_total_bytes=22 * GIB, heartbeat_at=timezone.now()
    )


def test_defaults_come_from_engine_and_catalogue_until_an_admin_sets_them(member: User) -> None:
    analysis = services.submit(member, ASKED)
    assert assumed(analysis) == [8, 100, GPUS["a10"].price_per_hour_usd, 481]
    assert analysis.assumed_by == {
        "hours_per_run": "lab", "runs_per_year": "lab", "price_per_hour_usd": "catalogue",
        "grid_co2e_grams_per_kwh": "lab",
    } | OF_WORKLOAD  # fmt: skip


def test_missing_assumptions_take_the_labs_defaults(
    page: Client, member: User, admin: User
) -> None:
    set_defaults(admin)
    lab.set_price(admin, "a10", 0.5)
    by_api = page.post("/api/v1/analyses/", ASKED, content_type="application/json")
    assert by_api.status_code == 201
    assert [by_api.json()["request"][name] for name in ASSUMED] == [12, 40, 0.5, 50]
    assert by_api.json()["assumed_by"]["price_per_hour_usd"] == "lab"

    empty = dict.fromkeys(ASSUMED, "")
    assert page.post("/new/", default_values() | empty).status_code == 302
    assert assumed(Analysis.objects.latest("pk")) == [12, 40, 0.5, 50]


def test_given_assumptions_override_the_labs_defaults(member: User, admin: User) -> None:
    set_defaults(admin)
    lab.set_price(admin, "a10", 0.5)
    own = dict(zip(ASSUMED, (0, "7", 3, "20"), strict=True))
    analysis = services.submit(member, ASKED | own)
    assert (assumed(analysis), analysis.assumed_by) == ([0, 7, 3, 20], OF_WORKLOAD)


def test_changed_defaults_do_not_change_an_analysis(
    page: Client, member: User, admin: User
) -> None:
    set_defaults(admin)
    lab.set_price(admin, "a10", 0.5)
    earlier = services.submit(member, ASKED)
    set_defaults(admin, 99, 98, 97)
    lab.set_price(admin, "a10", 0.25)
    earlier.refresh_from_db()
    assert assumed(earlier) == [12, 40, 0.5, 50]
    html = page.get(f"/{earlier.pk}/").content.decode()
    assert "$0.50, lab default" in html
    assert "12, lab default" in html
    assert "50 g CO2e per kWh, lab default" in html
    assert assumed(services.submit(member, ASKED)) == [99, 98, 0.25, 97]


def test_the_settings_show_whose_price_it_is() -> None:
    def price(request: dict[str, object], **assumed_by: str) -> str:
        return dict(settings_of(request, assumed_by))["Price per GPU-hour (assumed)"]

    asked = make_request(price_per_hour_usd=0.86)
    assert price(asked) == "$0.86"
    assert price(asked, price_per_hour_usd="lab") == "$0.86, lab default"
    assert price(asked, price_per_hour_usd="catalogue") == "$0.86, catalogue price"
    assert price(make_request()) == "catalogue price"  # of an earlier version


def test_a_new_analysis_takes_the_labs_defaults_without_being_asked(
    page: Client, admin: User
) -> None:
    set_defaults(admin, 1.5, 12_000)
    assert "hours_per_run" not in page.get("/new/").content.decode()
    page.post("/new/", {"model": "bert", "gpu": "a10", "precision": "fp32", "no_batch": "on"})
    (analysis,) = Analysis.objects.all()
    assert assumed(analysis)[:2] == [1.5, 12_000]


def test_what_a_duplicate_or_a_try_assumes_itself_is_shown_and_kept(
    page: Client, member: User, admin: User
) -> None:
    asked = services.submit(member, ASKED)
    response = page.get(f"/new/?from={asked.pk}&runs_per_year=7")
    html = response.content.decode()
    group = html.split('class="advanced-group advanced-cost')[1].split("</details>")[0]
    assert " open" in group.split(">")[0]
    assert 'name="runs_per_year" value="7"' in group
    page.post("/new/", values_of(asked.request) | {"runs_per_year": "7"})
    assert assumed(Analysis.objects.latest("pk"))[1] == 7


def test_a_duplicate_keeps_its_hours_but_not_its_gpus_price(
    page: Client, member: User, admin: User
) -> None:
    asked = services.submit(member, ASKED | {"hours_per_run": 3})
    own = make_analysis(member, request=make_request(price_per_hour_usd=2.5))
    set_defaults(admin)
    forms = [page.get(f"/new/?from={one.pk}").context["form"] for one in (asked, own)]
    assert [form["hours_per_run"].value() for form in forms] == ["3", "8"]
    assert [form["price_per_hour_usd"].value() for form in forms] == ["", "2.5"]


def test_defaults_left_out_or_given_are_the_same_request(member: User) -> None:
    said = dict(zip(ASSUMED, (8, "100", GPUS["a10"].price_per_hour_usd, 481), strict=True))
    one, other = services.submit(member, ASKED), services.submit(member, ASKED | said)
    assert one.request_hash == other.request_hash != ""
    assert one.assumed_by == other.assumed_by


def test_a_nodes_gpu_has_the_price_of_its_kind(member: User, admin: User) -> None:
    node("NVIDIA A10")
    node("NVIDIA GTX 1080/X & co")
    lab.set_price(admin, "a10", 0.4)

    def measured(kind: str) -> tuple[object, object]:
        analysis = services.submit(member, ASKED | {"gpu": f"local:{kind}"})
        return analysis.request["price_per_hour_usd"], analysis.assumed_by.get(ASSUMED[2])

    assert measured("NVIDIA A10") == (0.4, "lab")
    assert measured("NVIDIA GTX 1080/X & co") == (None, None)
    lab.set_price(admin, "NVIDIA GTX 1080/X & co", "0")
    assert measured("NVIDIA GTX 1080/X & co") == (0, "lab")


def test_the_demo_uses_the_labs_defaults(
    admin: User, fake_engine: Callable[[str], list[str]]
) -> None:
    fake_engine("success")
    set_defaults(admin)
    lab.set_price(admin, "a10", 0.4)
    when = datetime(2026, 1, 1, tzinfo=UTC)
    fill([Planned(1, "ada", when, ASKED | {"hours_per_run": 3})], lambda _line: None)
    analysis = Analysis.objects.get()
    assert assumed(analysis) == [3, 40, 0.4, 50]
    assert analysis.assumed_by == dict.fromkeys(ASSUMED[1:], "lab") | OF_WORKLOAD


def test_the_latest_price_applies_and_a_reset_is_remembered(admin: User) -> None:
    other = make_user("lin", is_staff=True)
    for who, price in ((admin, 1), (other, 2), (admin, 3), (other, None)):
        lab.set_price(who, "h100", price)
    held = price_of("h100")
    assert (held.usd, held.origin) == (GPUS["h100"].price_per_hour_usd, "catalogue")
    assert held.change is not None
    assert (held.change.set_by, held.is_the_labs) == (other, False)
    assert prices(["h100", "a10"]) == {"h100": held, "a10": price_of("a10")}


def test_setting_the_current_value_is_no_change(admin: User) -> None:
    first = lab.set_price(admin, "h100", "2.0")
    assert lab.set_price(make_user("lin"), "h100", 2).change == first.change
    assert lab.set_price(admin, "l4", "").change is None


def test_there_is_one_row_of_settings(admin: User) -> None:
    set_defaults(admin)
    set_defaults(admin, "", None)
    stored = LabSettings.objects.get()
    assert (stored.hours_per_run, stored.runs_per_year) == (8, 100)


LAB, GPU_PAGE = "/lab/", "/gpus/"
A10 = "/gpus/price/?gpu=a10"
HTMX = {"HX-Request": "true"}
GOOD = {
    "hours_per_run": "2.5",
    "runs_per_year": "30",
    "grid_co2e_grams_per_kwh": "40",
    "sharing_allowed": "on",
}
ODD_KIND = "NVIDIA GTX 1080/X & <co>"


@pytest.fixture
def admins_page(admin: User) -> Client:
    client = Client()
    client.force_login(admin)
    return client


def of_api(page: Client, gpu: str) -> dict[str, Any]:
    results = page.get("/api/v1/gpus/").json()["results"]
    return next(facts for facts in results if facts["name"] == gpu)


# The settings


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


# Prices


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


def _node(name: str, age_seconds: float = 1, **fields: object) -> Node:
    beat = timezone.now() - timedelta(seconds=age_seconds)
    return Node.objects.create(name=name, heartbeat_at=beat, **fields)


def test_the_gpu_page_requires_a_login(client: Client, db: None) -> None:
    assert client.get(reverse("analyses:gpus")).status_code == 302


def test_the_gpu_page_shows_each_node_and_its_work(page: Client, member: User) -> None:
    a10: dict[str, Any] = {
        "gpu_name": "NVIDIA A10",
        "gpu_total_bytes": 24_146_608_128,
        "driver": "580.95",
    }
    _node("lab-1", versions={"torch": "2.13.0"}, **a10)
    _node("laptop", 3600)
    _node("odd", key="another key's")
    _node("leaving", draining=True)
    running = make_analysis(member, Status.RUNNING, node="lab-1")
    text = page.get(reverse("analyses:gpus")).content.decode()

    assert "22.49 GiB, driver 580.95" in text
    assert "torch 2.13.0" in text
    assert f"#{running.pk} BERT base" in text
    for state in ("online", "offline", "problem", "draining"):
        assert f"status-{state}" in text
    assert "Its SECRET_KEY differs from the site" in text
    assert text.index("lab-1") < text.index("laptop")  # online nodes first


def test_the_gpu_page_shows_the_whole_catalogue(page: Client) -> None:
    text = page.get(reverse("analyses:gpus")).content.decode()
    assert all(gpu.display_name in text for gpu in GPUS.values())
    assert "No worker has started yet" in text


def test_htmx_only_gets_the_nodes(page: Client) -> None:
    _node("lab-1")
    text = page.get(reverse("analyses:gpus"), HTTP_HX_REQUEST="true").content.decode()
    assert "lab-1" in text
    assert "<html" not in text


def test_the_api_lists_the_nodes(page: Client, member: User) -> None:
    _node("lab-1", gpu_name="NVIDIA A10", gpu_total_bytes=24_146_608_128)
    running = make_analysis(member, Status.RUNNING, node="lab-1")
    (node,) = page.get("/api/v1/nodes/").json()["results"]

    assert (node["name"], node["gpu"]["name"]) == ("lab-1", "NVIDIA A10")
    assert node["analyses"] == [running.pk]


def test_with_several_kinds_of_gpu_one_must_be_chosen(member: User) -> None:
    for name, gpu in (("lab-1", "NVIDIA A10"), ("lab-2", "NVIDIA H200")):
        _node(name, gpu_name=gpu)
    with pytest.raises(InvalidInput, match="local:NVIDIA A10, local:NVIDIA H200"):
        services.submit(member, {"model": "bert", "gpu": "local"})
    with pytest.raises(InvalidInput, match="no node with this GPU"):
        services.submit(member, {"model": "bert", "gpu": "local:NVIDIA L4"})

    analysis = services.submit(member, {"model": "bert", "gpu": "local:NVIDIA H200"})
    assert (analysis.gpu, analysis.measured_gpu) == ("local", "NVIDIA H200")
    assert analysis.request["gpu"] == "local"
