"""*What helps most*: the ladder on an analysis's page, other GPUs and the room that is left."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.lab.settings import set_price
from analyses.models import Analysis, Node, Query, QueryKind, Status
from analyses.pages.analysis.ladder import STARTS_WITHIN, Advice, advice_of, ladder_of
from analyses.pages.tests.reading import ADVICE, HTMX, advice_section, advice_url
from analyses.tests.factories import make_analysis, make_request, make_user
from analyses.tests.query_answers import RUNGS, answer_next, make_plan, make_rung, take_next
from engine.events import Answer
from engine.gpus import GPUS


def advice(analysis: Analysis, **changes: Any) -> Advice:
    query = Query(request=analysis.request, answer=make_plan(**changes))
    found = advice_of(query, analysis)
    assert found is not None
    return found


def test_the_ladder_is_found_once_and_stored(page: Client, analysis: Analysis, node: Node) -> None:
    asked = page.post(advice_url(analysis), headers=HTMX).content.decode()
    assert "Looking for what helps" in asked
    assert "every 1s" in asked
    assert page.get(advice_url(analysis), {"seen": "waiting 0 "}, headers=HTMX).status_code == 204

    taken = take_next(QueryKind.PLAN)
    lease.record_progress(taken, "Trying tf32")
    assert "Trying tf32" in advice_section(page, analysis, seen="waiting 0 ")
    lease.finish(taken, Answer(make_plan()))
    page.force_login(make_user("alan"))
    shown = advice_section(page, analysis)
    assert "bf16, batch 48" in shown
    assert "advice/?seen" not in shown


def test_the_last_answer_of_a_waiting_page_is_the_whole_page(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    whole = page.get(advice_url(analysis), {"seen": "running 0 "}, headers=HTMX)
    assert whole.headers["HX-Retarget"] == "#analysis"
    html = whole.content.decode()
    assert 'id="decision"' in html
    assert "GPU map" in html
    assert "Side by side" in html


def test_the_ladder_starts_by_itself_with_the_analysis(page: Client, analysis: Analysis) -> None:
    starts = f'hx-post="{advice_url(analysis)}" hx-trigger="load"'
    assert starts in page.get(f"/{analysis.pk}/").content.decode()
    ended = timezone.now() - STARTS_WITHIN
    Analysis.objects.filter(pk=analysis.pk).update(finished_at=ended)
    old = page.get(f"/{analysis.pk}/").content.decode()
    assert starts not in old
    assert "Find what helps" in old
    assert not Query.objects.exists()


@pytest.mark.parametrize(
    ("status", "gpu", "there"),
    [
        (Status.SUCCEEDED, "NVIDIA A10", True),
        (Status.SUCCEEDED, "Some GPU", False),
        (Status.FAILED, "", True),
        (Status.RUNNING, "", True),
        (Status.CANCELLED, "", False),
    ],
)
def test_advice_is_offered_where_it_can_be_predicted(
    page: Client, member: User, status: Status, gpu: str, there: bool
) -> None:
    fields: dict[str, Any] = {}
    if gpu:
        fields = {"request": make_request(gpu="local"), "measured_gpu": gpu}
    analysis = make_analysis(member, status, **fields)
    assert (ADVICE in page.get(f"/{analysis.pk}/").content.decode()) == there


def test_advice_on_a_measured_analysis_uses_the_catalogue_gpu(
    page: Client, member: User, node: Node
) -> None:
    fields: dict[str, Any] = {
        "request": make_request(gpu="local"),
        "measured_gpu": "NVIDIA A10",
    }
    analysis = make_analysis(member, Status.SUCCEEDED, **fields)
    page.post(advice_url(analysis))
    assert Query.objects.get().request["gpu"] == "a10"


def test_without_javascript_advice_has_its_own_page(
    page: Client, analysis: Analysis, node: Node
) -> None:
    response = page.post(advice_url(analysis))
    assert (response.status_code, response["Location"]) == (302, advice_url(analysis))
    assert 'http-equiv="refresh"' in page.get(advice_url(analysis)).content.decode()
    answer_next(QueryKind.PLAN, make_plan())
    html = page.get(advice_url(analysis)).content.decode()
    assert "<h1>" in html
    assert "rtx-4090" in html
    assert 'http-equiv="refresh"' not in html


def test_the_ladder_comes_in_its_order_with_what_does_not_fit_last(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    rows = ladder_of(member, analysis).rows
    assert [row.name for row in rows] == ["as it is", "bf16, batch 48", "LoRA"]
    assert [row.is_gain for row in rows] == [False, True, False]
    assert rows[-1].rung.why_not == "it has no linear layers"
    assert rows[1].form_query == (f"from={analysis.pk}&precision=bf16-mixed&current_batch_size=48")


def test_rungs_are_shown_as_they_are_found(page: Client, analysis: Analysis, node: Node) -> None:
    page.post(advice_url(analysis))
    taken = take_next(QueryKind.PLAN)
    found = [make_rung(**rung) for rung in RUNGS]
    lease.record_progress(taken, "Trying LoRA", found[:2])
    assert "bf16" not in advice_section(page, analysis)
    lease.record_progress(taken, "Trying LoRA", found[:3])
    shown = advice_section(page, analysis, seen="running 2 Trying LoRA")
    assert "bf16, batch 48" in shown
    assert "Trying LoRA" in shown
    lease.finish(taken, Answer(make_plan()))
    assert Query.objects.get().rungs == []


def test_gpus_come_cheapest_per_sample_first_and_show_what_they_are_best_at(
    analysis: Analysis,
) -> None:
    rows = {row.gpu: row for row in advice(analysis).gpus.rows}
    assert next(iter(rows)) == "rtx-4090"
    assert list(rows)[-1] == "v100-16gb"
    assert not rows["v100-16gb"].fits
    marks = {gpu: row.marks for gpu, row in rows.items() if row.marks}
    assert marks == {
        "t4": ("lowest price that surely fits",),
        "rtx-4090": ("cheapest per sample that surely fits",),
        "h100": ("fastest that surely fits",),
    }
    assert rows["a10"].is_current
    assert rows["h100"].form_query == f"from={analysis.pk}&gpu=h100&price_per_hour_usd="


def test_what_a_gpu_is_best_at_has_its_condition_also_where_none_surely_fits(
    analysis: Analysis,
) -> None:
    options = [option | {"is_sure": option["gpu"] == "a10"} for option in make_plan()["options"]]
    marks = {row.gpu: row.marks for row in advice(analysis, options=options).gpus.rows}
    assert "fastest that surely fits" in marks["a10"]
    assert marks["h100"] == ()
    options = [option | {"is_sure": False} for option in options]
    unsure = advice(analysis, options=options).gpus
    assert {row.gpu: row.marks for row in unsure.rows}["h100"] == ("fastest that may fit",)
    assert unsure.best.startswith("Cheapest per sample that may fit (none surely does): ")


def test_the_map_is_drawn_on_demand_and_at_dated_spot_prices(
    page: Client, analysis: Analysis, node: Node
) -> None:
    rows = {row.gpu: row for row in advice(analysis).gpus.rows}
    assert (rows["a10"].price_date, rows["a10"].spot_price_date) == ("2026-05-07", "2026-11-18")
    spot = rows["h100"].at_spot_price
    assert spot.price_per_hour_usd == GPUS["h100"].spot_price_per_hour_usd
    assert spot.usd_per_million_samples == pytest.approx(
        (spot.price_per_hour_usd or 0) / 3600 * 1e6 / spot.samples_per_second
    )
    assert rows["t4"].at_spot_price.why_not == "no dated spot price is known"
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    html = page.get(f"/{analysis.pk}/").content.decode()
    switch = html.split('class="map-switch"')[1].split("</fieldset>")[0]
    assert switch.count('type="radio"') == 2
    assert switch.split("On-demand")[0].count(" checked") == 1
    on_demand, at_spot = html.split('class="map-view ')[1:]
    assert "On-demand prices, 2026-03-10 to 2026-11-09" in on_demand
    assert "at $1.87 per GPU-hour (assumed, 2026-10-04)" in at_spot
    for one in (on_demand, at_spot):
        assert rows["v100-16gb"].why_not in one.split('class="map-missing"')[1].split("</ul>")[0]


def options_at(**prices: float) -> list[dict[str, Any]]:
    """The options of a plan that was made at other prices."""
    return [
        option | {"price_per_hour_usd": prices.get(option["gpu"], option["price_per_hour_usd"])}
        for option in make_plan()["options"]
    ]


def test_the_prices_are_those_of_the_plan_as_in_its_ladder(
    analysis: Analysis, member: User
) -> None:
    set_price(member, "h100", 0.01)
    known = {row.gpu: row for row in advice(analysis).gpus.rows}["h100"]
    assert (known.price_per_hour_usd, known.price_date) == (GPUS["h100"].price_per_hour_usd, "")

    options = options_at(h100=0.01)
    row = {row.gpu: row for row in advice(analysis, options=options).gpus.rows}["h100"]
    assert (row.price_per_hour_usd, row.price_date) == (0.01, f"{timezone.now():%Y-%m-%d}")
    assert row.at_spot_price.price_per_hour_usd == GPUS["h100"].spot_price_per_hour_usd


def test_the_requests_price_only_applies_to_its_own_gpu(member: User) -> None:
    request = make_request(price_per_hour_usd=10.0)
    analysis = make_analysis(member, Status.SUCCEEDED, request=request)
    rows = {row.gpu: row for row in advice(analysis, options=options_at(a10=10.0)).gpus.rows}
    assert (rows["a10"].price_per_hour_usd, rows["a10"].price_date) == (10.0, "")
    assert rows["a10"].usd_per_million_samples == pytest.approx(10 / 3600 * 1e6 / 200)
    assert rows["a10"].usd_per_run == pytest.approx(80.0)
    assert (rows["t4"].price_per_hour_usd or 0) < 10


def test_the_cost_covers_all_gpus_of_a_run(member: User) -> None:
    request = make_request(parallelism="ddp", world_size=4, price_per_hour_usd=1.0)
    analysis = make_analysis(member, Status.SUCCEEDED, request=request)
    shown = advice(analysis, options=options_at(a10=1.0))
    own = next(row for row in shown.gpus.rows if row.is_current)
    assert shown.gpus.is_on_several
    assert own.usd_per_million_samples == pytest.approx(4 / 3600 * 1e6 / 200)


def test_a_workload_that_fits_nowhere_marks_nothing(analysis: Analysis) -> None:
    options = [one | {"fits": False, "why_not": "no"} for one in make_plan()["options"]]
    assert not any(row.marks for row in advice(analysis, options=options).gpus.rows)


def test_a_failure_is_shown_and_can_be_retried(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
    lease.finish(take_next(QueryKind.PLAN), Failure("deadline", "No answer within 300 seconds"))
    shown = advice_section(page, analysis)
    assert "No answer within 300 seconds" in shown
    assert "Try again" in shown


def test_advice_of_another_version_can_be_recomputed(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, {"options": 3})
    assert "another version of MemoryMark" in advice_section(page, analysis)


def test_without_a_worker_it_says_so_and_stops_polling(page: Client, analysis: Analysis) -> None:
    asked = page.post(advice_url(analysis), headers=HTMX).content.decode()
    assert "No worker is online" in asked
    assert "hx-get" not in asked


def test_compiled_workloads_get_a_reason_instead_of_advice(page: Client, member: User) -> None:
    request = make_request(gpu="local", compile=True)
    analysis = make_analysis(member, Status.SUCCEEDED, request=request, measured_gpu="NVIDIA A10")
    assert "cannot be predicted" in advice_section(page, analysis)


def test_advice_on_a_hub_model_is_only_shown_to_its_member(
    page: Client, member: User, node: Node
) -> None:
    request = make_request(model="someone/their-model")
    analysis = make_analysis(member, Status.SUCCEEDED, request=request)
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    assert "bf16, batch 48" in advice_section(page, analysis)
    page.force_login(make_user("alan"))
    assert "bf16, batch 48" not in advice_section(page, analysis)


# The links to the form


def initial(page: Client, query: str) -> dict[str, Any]:
    values: dict[str, Any] = page.get(f"/new/?{query}").context["form"].initial
    return values


def test_a_link_opens_the_form_with_one_change(page: Client, analysis: Analysis) -> None:
    values = initial(page, f"from={analysis.pk}&precision=bf16-mixed&gradient_checkpointing=on")
    assert (values["precision"], values["gradient_checkpointing"]) == ("bf16-mixed", "on")
    assert values["model"] == "bert"


@pytest.mark.parametrize(
    "change", ["precision=int3", "gpu=abacus", "compile=maybe", "odd=1", f"allocator={'x' * 501}"]
)
def test_a_link_with_an_invalid_change_is_ignored(
    page: Client, analysis: Analysis, change: str
) -> None:
    plain = initial(page, f"from={analysis.pk}")
    assert initial(page, f"from={analysis.pk}&{change}") == plain
