"""Defaults and prices of the lab, and the analyses that take them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses import services
from analyses.figures.settings import settings_of
from analyses.lab import settings as lab
from analyses.lab.settings import price_of, prices
from analyses.models import Analysis, LabSettings, Node
from analyses.pages.new.values import default_values, values_of
from analyses.tests.factories import make_analysis, make_request, make_user
from demo.filling import fill
from demo.plan import Planned
from engine.core.sizes import GIB
from engine.gpus import GPUS

ASKED: dict[str, object] = {"model": "bert", "gpu": "a10"}

ASSUMED = ("hours_per_run", "runs_per_year", "price_per_hour_usd", "grid_co2e_grams_per_kwh")

OF_WORKLOAD = dict.fromkeys(("precision", "optimizer", "sequence_length"), "default")

"""Fields that :data:`ASKED` leaves out."""


def set_defaults(admin: User, hours: object = 12, runs: object = 40, grid: object = 50) -> None:
    lab.save_settings(
        admin,
        hours_per_run=hours,
        runs_per_year=runs,
        grid_co2e_grams_per_kwh=grid,
        sharing_allowed=True,
    )


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
