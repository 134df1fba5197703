"""*What helps most*: the ladder on an analysis's page, other GPUs and the room that is left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from analyses import services
from analyses.jobs import lease
from analyses.jobs.engine_output import Failure
from analyses.lab import set_price
from analyses.models import Analysis, Decided, Node, Query, QueryKind, Status
from analyses.pages.ladder import STARTS_WITHIN, Advice, advice_of, ladder_of
from analyses.results.decided import RESULT_COLUMNS, own_columns
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from analyses.tests.query_answers import (
    RUNGS,
    answer_next,
    make_plan,
    make_rung,
    plan_with_answers,
    take_next,
)
from engine.answer.ladder import Learning
from engine.events import Answer
from engine.gpus import GPUS

HTMX = {"HX-Request": "true"}
SECTION = 'id="ladder"'


@pytest.fixture
def page(client: Client, member: User) -> Client:
    client.force_login(member)
    return client


@pytest.fixture
def analysis(member: User) -> Analysis:
    return make_analysis(member, Status.SUCCEEDED)


@pytest.fixture
def node(db: None) -> Node:
    return Node.objects.create(name="lab-1", heartbeat_at=timezone.now())


def url(analysis: Analysis) -> str:
    return f"/{analysis.pk}/advice/"


def section(page: Client, analysis: Analysis, **given: str) -> str:
    html = page.get(url(analysis), given, headers=HTMX).content.decode()
    assert SECTION in html
    assert "<html" not in html
    return html


def advice(analysis: Analysis, **changes: Any) -> Advice:
    query = Query(request=analysis.request, answer=make_plan(**changes))
    found = advice_of(query, analysis)
    assert found is not None
    return found


def test_the_ladder_is_found_once_and_stored(page: Client, analysis: Analysis, node: Node) -> None:
    asked = page.post(url(analysis), headers=HTMX).content.decode()
    assert "Looking for what helps" in asked
    assert "every 1s" in asked
    assert page.get(url(analysis), {"seen": "waiting 0 "}, headers=HTMX).status_code == 204

    taken = take_next(QueryKind.PLAN)
    lease.record_progress(taken, "Trying tf32")
    assert "Trying tf32" in section(page, analysis, seen="waiting 0 ")
    lease.finish(taken, Answer(make_plan()))
    page.force_login(make_user("alan"))
    shown = section(page, analysis)
    assert "bf16, batch 48" in shown
    assert "advice/?seen" not in shown


def test_the_last_answer_of_a_waiting_page_is_the_whole_page(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    whole = page.get(url(analysis), {"seen": "running 0 "}, headers=HTMX)
    assert whole.headers["HX-Retarget"] == "#analysis"
    html = whole.content.decode()
    assert 'id="decision"' in html
    assert "GPU map" in html
    assert "Side by side" in html


def test_the_ladder_starts_by_itself_with_the_analysis(page: Client, analysis: Analysis) -> None:
    starts = f'hx-post="{url(analysis)}" hx-trigger="load"'
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
    assert (SECTION in page.get(f"/{analysis.pk}/").content.decode()) == there


def test_advice_on_a_measured_analysis_uses_the_catalogue_gpu(
    page: Client, member: User, node: Node
) -> None:
    fields: dict[str, Any] = {
        "request": make_request(gpu="local"),
        "measured_gpu": "NVIDIA A10",
    }
    analysis = make_analysis(member, Status.SUCCEEDED, **fields)
    page.post(url(analysis))
    assert Query.objects.get().request["gpu"] == "a10"


def test_without_javascript_advice_has_its_own_page(
    page: Client, analysis: Analysis, node: Node
) -> None:
    response = page.post(url(analysis))
    assert (response.status_code, response["Location"]) == (302, url(analysis))
    assert 'http-equiv="refresh"' in page.get(url(analysis)).content.decode()
    answer_next(QueryKind.PLAN, make_plan())
    html = page.get(url(analysis)).content.decode()
    assert "<h1>" in html
    assert "rtx-4090" in html
    assert 'http-equiv="refresh"' not in html


def test_the_ladder_comes_in_its_order_with_what_does_not_fit_last(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    rows = ladder_of(member, analysis).rows
    assert [row.name for row in rows] == ["as it is", "bf16, batch 48", "LoRA"]
    assert [row.is_gain for row in rows] == [False, True, False]
    assert rows[-1].rung.why_not == "it has no linear layers"
    assert rows[1].form_query == (f"from={analysis.pk}&precision=bf16-mixed&current_batch_size=48")


def test_rungs_are_shown_as_they_are_found(page: Client, analysis: Analysis, node: Node) -> None:
    page.post(url(analysis))
    taken = take_next(QueryKind.PLAN)
    found = [make_rung(**rung) for rung in RUNGS]
    lease.record_progress(taken, "Trying LoRA", found[:2])
    assert "bf16" not in section(page, analysis)
    lease.record_progress(taken, "Trying LoRA", found[:3])
    shown = section(page, analysis, seen="running 2 Trying LoRA")
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
        "t4": ("lowest price",), "rtx-4090": ("cheapest per sample",), "h100": ("fastest",),
    }  # fmt: skip
    assert rows["a10"].is_current
    assert rows["h100"].form_query == f"from={analysis.pk}&gpu=h100&price_per_hour_usd="


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
    page.post(url(analysis))
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


def test_the_labs_price_comes_first_with_its_date(analysis: Analysis, member: User) -> None:
    set_price(member, "h100", 0.01)
    row = next(row for row in advice(analysis).gpus.rows if row.gpu == "h100")
    assert row.price_per_hour_usd == 0.01
    assert row.price_date == f"{timezone.now():%Y-%m-%d}"
    assert row.at_spot_price.price_per_hour_usd == GPUS["h100"].spot_price_per_hour_usd


def test_the_requests_price_only_applies_to_its_own_gpu(member: User) -> None:
    request = make_request(price_per_hour_usd=10.0)
    rows = {
        row.gpu: row
        for row in advice(make_analysis(member, Status.SUCCEEDED, request=request)).gpus.rows
    }
    assert (rows["a10"].price_per_hour_usd, rows["a10"].price_date) == (10.0, "")
    assert rows["a10"].usd_per_million_samples == pytest.approx(10 / 3600 * 1e6 / 200)
    assert rows["a10"].usd_per_run == pytest.approx(80.0)
    assert (rows["t4"].price_per_hour_usd or 0) < 10


def test_the_cost_covers_all_gpus_of_a_run(member: User) -> None:
    request = make_request(parallelism="ddp", world_size=4, price_per_hour_usd=1.0)
    shown = advice(make_analysis(member, Status.SUCCEEDED, request=request))
    own = next(row for row in shown.gpus.rows if row.is_current)
    assert shown.gpus.is_on_several
    assert own.usd_per_million_samples == pytest.approx(4 / 3600 * 1e6 / 200)


def test_a_workload_that_fits_nowhere_marks_nothing(analysis: Analysis) -> None:
    options = [one | {"fits": False, "why_not": "no"} for one in make_plan()["options"]]
    assert not any(row.marks for row in advice(analysis, options=options).gpus.rows)


def test_a_failure_is_shown_and_can_be_retried(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    lease.finish(take_next(QueryKind.PLAN), Failure("deadline", "No answer within 300 seconds"))
    shown = section(page, analysis)
    assert "No answer within 300 seconds" in shown
    assert "Try again" in shown


def test_advice_of_another_version_can_be_recomputed(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, {"options": 3})
    assert "another version of MemoryMark" in section(page, analysis)


def test_without_a_worker_it_says_so_and_stops_polling(page: Client, analysis: Analysis) -> None:
    asked = page.post(url(analysis), headers=HTMX).content.decode()
    assert "No worker is online" in asked
    assert "hx-get" not in asked


def test_compiled_workloads_get_a_reason_instead_of_advice(page: Client, member: User) -> None:
    request = make_request(gpu="local", compile=True)
    analysis = make_analysis(member, Status.SUCCEEDED, request=request, measured_gpu="NVIDIA A10")
    assert "cannot be predicted" in section(page, analysis)


def test_advice_on_a_hub_model_is_only_shown_to_its_member(
    page: Client, member: User, node: Node
) -> None:
    request = make_request(model="someone/their-model")
    analysis = make_analysis(member, Status.SUCCEEDED, request=request)
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, make_plan())
    assert "bf16, batch 48" in section(page, analysis)
    page.force_login(make_user("alan"))
    assert "bf16, batch 48" not in section(page, analysis)


# The answer with the moves of a rung


def answered(page: Client, analysis: Analysis) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, plan_with_answers())


def test_the_best_rung_is_the_pages_answer(page: Client, analysis: Analysis, node: Node) -> None:
    assert "Switch to batch 128" in page.get(f"/{analysis.pk}/").content.decode()
    answered(page, analysis)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Switch to bf16 and batch 64" in html
    assert "per_device_train_batch_size=64" in html
    as_it_is = page.get(f"/{analysis.pk}/", {"rung": "0"}).content.decode()
    assert "Switch to bf16" in as_it_is  # it stays on offer
    wrong = page.get(f"/{analysis.pk}/", {"rung": "99999999999"})
    assert wrong.status_code == 200


def test_a_measured_answer_stays_until_another_is_asked_for(
    page: Client, member: User, node: Node
) -> None:
    request = make_request(gpu="local")
    analysis = make_analysis(member, Status.SUCCEEDED, request=request, measured_gpu="NVIDIA A10")
    answered(page, analysis)
    ladder = ladder_of(member, analysis)
    assert ladder.chosen == 0
    assert ladder_of(member, analysis, "1").chosen == 1


def test_adapters_are_not_chosen_unasked(page: Client, member: User, node: Node) -> None:
    analysis = make_analysis(member, Status.SUCCEEDED)
    page.post(url(analysis))
    adapters = make_rung(
        moves=["LoRA"], fields={"lora_rank": 8}, learning=Learning.TRAINED, speedup=3.0,
        samples_per_second=600.0, result=make_result(),
    )  # fmt: skip
    ladder = [make_rung().to_dict(), adapters.to_dict()]
    answer_next(QueryKind.PLAN, make_plan(ladder=ladder))
    assert ladder_of(member, analysis).chosen == 0


def offered(**changes: Any) -> dict[str, Any]:
    """A plan with a rung that keeps the global batch, and a faster one that raises it."""
    batches = {"global_batch_before": 16, "learning": Learning.NUMERICS}
    raises = make_rung(
        moves=["bf16", "batch 112"], fields={"precision": "bf16-mixed"}, speedup=4.9,
        samples_per_second=980.0, keeps_global_batch=False, global_batch_size=112,
        learning_rate="Learning rate: start from 2.6 times yours.",
        result=make_result(recommended=112, decision="Switch to bf16 and batch 112."), **batches,
    )  # fmt: skip
    keeps = make_rung(
        moves=["bf16"], fields={"precision": "bf16-mixed"}, speedup=3.4, batch_size=16,
        samples_per_second=680.0, keeps_global_batch=True, global_batch_size=16,
        learning_rate="Learning rate: as it is.",
        result=make_result(recommended=64, decision="Switch to bf16."), **batches,
    )  # fmt: skip
    today = make_rung(result=make_result())
    ladder = [rung.to_dict() for rung in (today, raises, keeps)]
    return make_plan(ladder=ladder) | changes


def test_the_headline_keeps_the_global_batch_and_offers_a_larger_one_beside_it(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, offered())
    ladder = ladder_of(member, analysis)
    assert ladder.shown is not None
    assert ladder.shown.name == "bf16"
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert html.index('id="decision-title">Switch to bf16.<') < html.index('class="offers"')
    kept, raised = html.split('<section class="offer')[1:3]
    for offer, words in (
        (kept, ("Keeps the global batch of 16", "3.4×", "Learning rate: as it is.", "Shown here")),
        (raised, ("Raises the global batch from 16 to 112", "4.9×", "start from 2.6", "Use this")),
    ):
        for said in words:
            assert said in offer, said


def test_without_a_gain_at_the_same_global_batch_that_is_said(
    page: Client, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    plan = offered()
    answer_next(QueryKind.PLAN, plan | {"ladder": plan["ladder"][:2]})
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Nothing that was tried is surely faster." in html.split('class="offers"')[1]


def test_the_table_has_headings_goes_by_gain_and_keeps_a_price_in_each_row(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(url(analysis))
    plan = offered()
    slow = make_rung(
        moves=["gradient checkpointing"],
        fields={"gradient_checkpointing": True},
        samples_per_second=300.0,
        usd_per_million_samples=1.23,
    )
    nothing: dict[str, Any] = dict.fromkeys(
        ("speedup", "speedup_low", "speedup_high", "usd_per_run")
    )
    unfit = replace(slow, **nothing)
    answer_next(QueryKind.PLAN, plan | {"ladder": [*plan["ladder"], unfit.to_dict()]})
    ladder = ladder_of(member, analysis)
    assert [row.name for row in ladder.in_table] == [
        "bf16, batch 112", "bf16", "gradient checkpointing", "as it is",
    ]  # fmt: skip
    table = section(page, analysis).split('<table class="rungs">')[1].split("</table>")[0]
    head, *rows = table.split("<tr")[1:]
    for heading in ("Change", "Speedup", "Cost", "What it does to training", "Effort"):
        assert heading in head
    for row in rows:
        assert "per run" in row or "per million samples" in row
    others = [row for row in ladder.rows if row.rung.result and row.index != ladder.chosen]
    assert all(f"?rung={row.index}" in table for row in others)


def test_the_ladder_stays_when_a_measured_step_arrives(
    page: Client, member: User, analysis: Analysis, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, offered())
    before = [row.name for row in ladder_of(member, analysis).rows]
    monkeypatch.setattr("analyses.jobs.request_columns.newest", lambda _gpu: "a newer one")
    assert [row.name for row in ladder_of(member, analysis).rows] == before


def test_what_does_not_fit_is_answered_and_not_shown_as_good(
    page: Client, member: User, node: Node
) -> None:
    reason = "BERT does not fit on NVIDIA A10: even batch 1 needs 48.9 of 22.1 GiB."
    analysis = make_analysis(
        member, Status.FAILED, failure_code="does_not_fit", failure_reason=reason
    )
    page.post(url(analysis))
    refused = make_rung(why_not="even batch 1 needs 48.9 of 22.1 GiB", moves=[], fields={})
    answer_next(QueryKind.PLAN, make_plan(ladder=[refused.to_dict()]))
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "No, it does not fit" in html
    assert reason in html
    assert "The analysis failed" not in html
    assert ">Failed<" not in html
    assert "Nothing that was tried makes it fit" in html
    assert "rung-chosen" not in html


def test_another_failure_is_still_one(page: Client, member: User) -> None:
    analysis = make_analysis(member, Status.FAILED, failure_code="failed")
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "The analysis failed" in html
    assert "No, it does not fit" not in html


def test_what_failed_gets_the_answer_of_its_best_rung(
    page: Client, member: User, node: Node
) -> None:
    analysis = make_analysis(member, Status.FAILED)
    answered(page, analysis)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Switch to bf16 and batch 64" in html
    assert "/adopt/" not in html


def test_the_best_rung_is_advised_in_every_column_before_anyone_adopts_it(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    answered(page, analysis)
    advised = Analysis.objects.get(pk=analysis.pk)
    assert advised.decided.moves == ["bf16", "batch 64"]
    assert advised.recommended_batch_size == 64
    assert advised.adopted_at is None
    assert ladder_of(member, advised).result is None  # the page shows what is stored
    body = page.get(f"/api/v1/analyses/{analysis.pk}/").json()
    assert (body["moves"], body["adopted_moves"]) == (["bf16", "batch 64"], [])


def test_a_newer_plan_replaces_the_advice_as_a_whole(
    page: Client, analysis: Analysis, node: Node
) -> None:
    before = own_columns(analysis)
    answered(page, analysis)
    Query.objects.update(request_hash="older")  # as after an upgrade
    page.post(url(analysis))
    answer_next(QueryKind.PLAN, make_plan(ladder=[make_rung().to_dict()]))
    assert not Decided.objects.exists()
    assert own_columns(Analysis.objects.get(pk=analysis.pk)) == before


def test_adopting_a_rung_makes_it_the_answer_and_undoing_it_leaves_the_advice(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    answered(page, analysis)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert 'name="rung" value="bf16, batch 64"' in html
    page.post(f"/{analysis.pk}/adopt/", {"rung": "bf16, batch 64"})
    adopted = Analysis.objects.get(pk=analysis.pk)
    assert adopted.recommended_batch_size == 64
    assert adopted.adopted_at is not None
    assert adopted.decided.moves == ["bf16", "batch 64"]
    assert page.get(f"/api/v1/analyses/{analysis.pk}/").json()["adopted_moves"] == [
        "bf16", "batch 64",
    ]  # fmt: skip
    assert "Undo adoption" in page.get(f"/{analysis.pk}/").content.decode()

    page.post(f"/{analysis.pk}/take-back/")
    undone = Analysis.objects.get(pk=analysis.pk)
    assert undone.adopted_at is None
    assert undone.decided.moves == ["bf16", "batch 64"]
    for name in RESULT_COLUMNS:
        assert getattr(undone, name) == getattr(adopted, name)


def test_an_adopted_decision_wins_over_a_newer_plan(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    services.adopt(analysis, member)
    answered(page, analysis)
    kept = Analysis.objects.get(pk=analysis.pk)
    assert (kept.recommended_batch_size, Decided.objects.exists()) == (128, False)


def test_the_own_answer_can_be_adopted_instead_of_the_advice(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    answered(page, analysis)
    as_it_is = make_rung(result=make_result())
    services.adopt(Analysis.objects.get(pk=analysis.pk), member, as_it_is)
    kept = Analysis.objects.get(pk=analysis.pk)
    assert (kept.recommended_batch_size, Decided.objects.exists()) == (128, False)


def test_a_reused_answer_is_what_the_earlier_analysis_found_itself(
    page: Client, analysis: Analysis, node: Node
) -> None:
    answered(page, analysis)
    page.post(f"/{analysis.pk}/adopt/", {"rung": "bf16, batch 64"})
    assert own_columns(Analysis.objects.get(pk=analysis.pk))["recommended_batch_size"] == 128


def test_a_rung_that_is_gone_is_not_adopted(page: Client, analysis: Analysis) -> None:
    html = page.post(f"/{analysis.pk}/adopt/", {"rung": "bf16"}, follow=True).content.decode()
    assert "no longer offered" in html
    assert Analysis.objects.get(pk=analysis.pk).adopted_at is None


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
