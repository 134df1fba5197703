"""One decision and one number: every place that shows an analysis shows the same."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from analyses import services
from analyses.figures.chips import chips
from analyses.figures.tests.deciding import decided, export_of, figures, finish
from analyses.jobs import lease, plans, recovery
from analyses.jobs.engine_output import Failure
from analyses.models import (
    Analysis,
    CountedSavings,
    Decided,
    Job,
    Node,
    Notification,
    NotificationChoices,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from analyses.notifications.message import of_ended
from analyses.pages.analysis.sharing import create_link
from analyses.pages.new.values import default_values
from analyses.tests.factories import lease_on, make_analysis, make_request, make_result, make_user
from analyses.tests.query_answers import (
    answer_next,
    plan_with_answers,
    take_next,
)
from analyses.tests.text_answers import make_text_analysis
from engine.client.lab import Analysis as ClientAnalysis
from engine.core.numbers import times, usd
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.result import GpuOffer
from memorymark_site.accounts import tokens
from memorymark_site.accounts.models import Scope

MOVES = ["bf16", "batch 64"]


# Programs of the first service


def test_the_first_service_answers_for_another_batch_alone_and_names_the_decision(
    member: User, node: Node
) -> None:
    decided(member)
    client = APIClient()
    token = tokens.create(member, "old", Scope.WRITE, 7)[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    fields = {name: value for name, value in make_request().items() if name != "model"}
    answer = client.post("/analyze", fields | {"model_name": "bert"}, format="json").json()
    assert answer["decision_is_final"]
    analysis = Analysis.objects.get(pk=answer["analysis_id"])
    own = figures(analysis).with_todays_settings
    assert analysis.recommended_batch_size == 64  # with bf16
    assert (answer["optimal_batch_size"], answer["speedup"]) == (own.batch_size, own.speedup)
    assert answer["cost_savings_annual"] == own.usd_per_year
    assert (answer["moves"], answer["decision"]) == (MOVES, figures(analysis).sentence)


# Asking and storing


def test_a_predicted_analysis_asks_for_its_plan_when_it_has_succeeded(
    member: User, node: Node
) -> None:
    analysis = finish(member)
    query = Query.objects.get(kind=QueryKind.PLAN)
    assert query.request == plans.plan_request(analysis).to_dict()
    assert not query.for_pages  # no page keeps it alive
    assert Job.objects.get(query=query).priority == 0  # those that pages wait for come first


def test_no_plan_is_asked_for_where_none_decides(member: User) -> None:
    offer = GpuOffer("t4", GPUS["t4"].total_bytes, fits=False, is_sure=False)
    make_analysis(member, Status.SUCCEEDED, make_result(compared_gpus=[offer]))
    make_text_analysis(member)
    plans.ask_for(Analysis.objects.values_list("pk", flat=True))
    assert not Query.objects.exists()


@pytest.mark.parametrize("current", [16, None])
def test_looking_at_an_analysis_changes_no_decision(
    page: Client, member: User, node: Node, current: int | None
) -> None:
    result = make_result(current=current)
    analysis = finish(member, result, current_batch_size=current)
    answer_next(QueryKind.PLAN, plan_with_answers())
    before = figures(Analysis.objects.get())
    assert before.moves == MOVES
    page.get(f"/{analysis.pk}/")
    page.post(f"/{analysis.pk}/advice/")
    assert not Query.objects.filter(status=QueryStatus.WAITING).exists()
    assert figures(Analysis.objects.get()) == before


def test_a_page_that_waits_makes_the_plan_more_urgent(page: Client, member: User) -> None:
    analysis = finish(member)
    page.post(f"/{analysis.pk}/advice/")
    assert Job.objects.get(query__kind=QueryKind.PLAN).priority == 1


def test_until_its_plan_is_known_an_analysis_says_its_own_answer(member: User, node: Node) -> None:
    before = figures(finish(member))
    assert (before.moves, before.batch_size) == ([], 128)
    answer_next(QueryKind.PLAN, plan_with_answers())
    after = figures(Analysis.objects.get())
    assert (after.moves, after.batch_size) == (MOVES, 64)
    assert after.with_todays_settings.batch_size == 128
    assert after.with_todays_settings.speedup == before.speedup


def test_equal_analyses_of_others_get_the_decision_too(member: User, node: Node) -> None:
    first = decided(member)
    again = services.submit(make_user("alan"), make_request())  # reuses the result
    assert again.answered_from == first
    assert figures(Analysis.objects.get(pk=again.pk)).moves == MOVES


def test_an_analysis_from_another_batch_keeps_its_own(member: User, node: Node) -> None:
    other = make_analysis(member, Status.SUCCEEDED, request=make_request(current_batch_size=32))
    decided(member)
    assert figures(Analysis.objects.get(pk=other.pk)).moves == []


def test_the_answer_which_gpu_stays_and_its_map_is_there_at_once(
    page: Client, member: User, node: Node
) -> None:
    offers = [
        GpuOffer(
            gpu, GPUS[gpu].total_bytes, fits=True, is_sure=is_sure, price_per_hour_usd=1.0,
            largest_batch_size=264, recommended_batch_size=128, samples_per_second=speed,
            samples_per_second_low=speed, samples_per_second_high=speed,
            usd_per_million_samples=1 / 3600 * 1e6 / speed,
        )
        for gpu, is_sure, speed in (("a10", True, 300.0), ("t4", True, 60.0), ("l4", False, 9000.0))
    ]  # fmt: skip
    request = make_request(current_batch_size=None)
    result = make_result(current=None, compared_gpus=offers)
    analysis = make_analysis(member, Status.SUCCEEDED, result, request=request)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "GPU map" in html
    assert "Cheapest per sample that surely fits: A10, " in html
    assert "Cheaper, but may not fit: L4 " in html
    compared = html.split('id="gpus"')[1].split("</section>")[0]
    assert "Hollow dots may not fit." in compared
    assert "shown here" in compared.split('class="row-recommended"')[1].split("</tr>")[0]
    assert "yours" not in compared  # the answer has chosen it
    plans.submit(member, QueryKind.PLAN, plans.plan_request(analysis))
    answer_next(QueryKind.PLAN, plan_with_answers())
    assert figures(Analysis.objects.get(pk=analysis.pk)).moves == []


def test_a_plan_of_an_earlier_version_is_taken_over_once(member: User, node: Node) -> None:
    analysis = decided(member)
    Decided.objects.all().delete()
    Query.objects.update(is_taken_over=False)
    recovery.recover()
    assert figures(Analysis.objects.get(pk=analysis.pk)).moves == MOVES
    assert plans.catch_up() == 0


def test_undoing_an_adoption_leaves_the_advice(member: User, node: Node) -> None:
    analysis = decided(member)
    services.adopt(analysis, member)
    services.undo_adoption(Analysis.objects.get(), member)
    assert figures(Analysis.objects.get()).moves == MOVES


def test_the_totals_count_the_decision(member: User, node: Node) -> None:
    analysis = decided(member)
    counted, found = CountedSavings.objects.get(), figures(analysis)
    assert counted.usd_per_year_low == pytest.approx(found.usd_per_year_low)
    assert counted.usd_per_year_high == pytest.approx(found.usd_per_year_high)
    assert counted.at_low_end  # nobody has measured a speedup of 2.5
    assert counted.usd_per_year == pytest.approx(found.usd_per_year_low)


def test_a_message_waits_for_the_plan_a_while(member: User, node: Node) -> None:
    NotificationChoices.objects.create(member=member, by_email=True, only_after_seconds=0)
    finish(member)
    told = Job.objects.get(notification__isnull=False)
    assert told.not_before > timezone.now() + timedelta(minutes=4)
    answer_next(QueryKind.PLAN, plan_with_answers())
    told.refresh_from_db()
    assert told.not_before <= timezone.now()
    assert "Switch to bf16 and batch 64" in json.dumps(
        of_ended(Notification.objects.get().analysis).payload
    )


def test_a_message_does_not_wait_for_a_plan_that_failed(member: User, node: Node) -> None:
    NotificationChoices.objects.create(member=member, by_email=True, only_after_seconds=0)
    finish(member)
    lease.finish(take_next(QueryKind.PLAN), Failure("deadline", "too long"))
    assert Job.objects.get(notification__isnull=False).not_before <= timezone.now()


# Every place


@pytest.mark.longer
def test_every_place_shows_the_same_decision_and_the_same_numbers(
    page: Client, member: User, node: Node
) -> None:
    analysis, other = decided(member), finish(member, make_result(gpu="t4"), gpu="t4")
    found = figures(analysis)
    speedup, money = times(found.speedup or 0), usd(found.usd_per_year)
    low, high = usd(found.usd_per_year_low), usd(found.usd_per_year_high)
    pk = analysis.pk

    def html(address: str) -> str:
        text = page.get(address).content.decode()
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))

    detail = page.get(f"/{pk}/").content.decode()
    headline = detail.split('id="decision"')[1].split("</section>")[0]
    assert found.sentence in headline
    for said in (f">{speedup}<", f">{money}<", f"{low} to {high}; "):
        assert said in headline
    ladder = detail.split('id="ladder"')[1].split("</section>")[0]
    chosen = ladder.split("rung-chosen")[1].split("</li>")[0]
    assert ", ".join(found.moves) in chosen
    assert speedup in chosen

    gpus = detail.split('id="gpus"')[1].split("</section>")[0]
    assert "with today's settings" in gpus.split("</h2>")[0]  # not those of the decision
    yours = gpus.split('class="row-current"')[1].split("</tr>")[0]
    option = plan_with_answers()["options"][0]
    for name in ("recommended_batch_size", "largest_batch_size", "samples_per_second"):
        assert f">{option[name]:.0f}<" in yours

    history = page.get("/history/").content.decode()
    row = history.split(f'id="analysis-{pk}"')[1].split("</tr>")[0]
    for said in ("fp32 → bf16-mixed", ">64</strong>", "with bf16", speedup, money):
        assert said in row

    (line,) = (
        one
        for one in csv.DictReader(io.StringIO(export_of(page, "/history/export.csv")))
        if one["id"] == str(pk)
    )
    assert line["recommended_batch_size"] == "64"
    assert line["moves"] == ", ".join(MOVES)
    assert float(line["speedup"]) == found.speedup
    assert float(line["savings_usd_per_year_at_assumed_prices"]) == found.usd_per_year

    body = page.get(f"/api/v1/analyses/{pk}/").json()
    assert body["decision"]["sentence"] == found.sentence == body["result"]["decision"]
    for name in ("speedup", "usd_per_year", "gpu_hours_per_year", "moves"):
        assert body[name] == body["decision"][name] == getattr(found, name)
    assert body["recommended_batch_size"] == body["decision"]["batch_size"] == 64
    (listed,) = (one for one in page.get("/api/v1/analyses/").json()["results"] if one["id"] == pk)
    for name in ("speedup", "usd_per_year", "moves", "recommended_batch_size"):
        assert listed[name] == body[name]

    client = ClientAnalysis.of(body)
    assert (client.decision, client.moves) == (found.sentence, tuple(MOVES))
    assert (client.recommended_batch_size, client.speedup) == (64, found.speedup)

    compared = page.get("/api/v1/compare/", {"ids": f"{pk},{other.pk}"}).json()["answered"]
    first = {row["label"]: row["cells"][0] for row in compared}
    assert first["Changes decided"]["text"] == ", ".join(MOVES)
    by_key = {row["key"]: row["cells"][0] for row in compared}
    assert by_key["usd_per_year"]["value"] == found.usd_per_year
    assert by_key["recommended_batch_size"]["value"] == 64
    assert by_key["speedup"]["text"] == speedup

    table = page.get("/compare/", {"ids": f"{pk},{other.pk}"}).content.decode()
    for said in (", ".join(MOVES), speedup, money):
        assert said in table

    _, token = create_link(analysis, member, days=7)
    shared = Client().get(f"/shared/{token}/").content.decode()
    assert found.sentence in shared
    for said in (f">{speedup}<", f">{money}<", f"{low} to {high}; "):
        assert said in shared
    assert "fp32 → bf16-mixed" in shared

    message = of_ended(analysis)
    assert message.payload["decision"]["usd_per_year"] == found.usd_per_year
    assert f"{money} less per year ({low} to {high})" in message.text
    assert "fp32 → bf16-mixed" in message.subject

    counted = CountedSavings.objects.get(pk=pk)
    savings = page.get("/savings/").content.decode()
    behind = savings.split(f'href="/{pk}/"')[-1].split("</tr>")[0]
    assert "with bf16" in behind
    assert speedup in behind
    assert usd(counted.usd_per_year) in behind
    assert f"low end of {low} to {high}" in behind
    overview = html("/")
    assert f"batch 16 to 64 with bf16, {speedup}" in overview
    assert f"{low} a year, assumed, low end of the range" in overview


def test_whom_to_ask_has_the_decision_and_names_the_low_end(
    page: Client, member: User, node: Node
) -> None:
    found = figures(decided(make_user("alan")))
    body = page.get("/api/v1/savings/changes/").json()
    (change,) = body["results"]
    assert change["change"] == ", ".join(MOVES)
    assert change["usd_per_year"] == pytest.approx(found.usd_per_year_low)
    assert change["at_low_end"]
    asked = page.get("/savings/").content.decode().split("whom to ask")[1].split("</table>")[0]
    number = asked.split('<td class="number">')[1].split("</td>")[0]
    assert number.startswith(usd(found.usd_per_year_low))
    assert "low end of the range" in number


def test_chips_show_both_values_of_what_the_decision_changes(member: User, node: Node) -> None:
    analysis = decided(member)
    assert chips(analysis)[0] == "fp32 → bf16-mixed"
    Decided.objects.update(fields={"gradient_checkpointing": True})
    assert "→ checkpointing" in chips(Analysis.objects.get(pk=analysis.pk))


# One set of defaults


def test_form_api_and_command_line_take_the_same_defaults(page: Client, member: User) -> None:
    page.post("/new/", default_values())
    by_form = Analysis.objects.latest("pk")
    given = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
    body = page.post("/api/v1/analyses/", given, "application/json").json()
    assert body["request"] == by_form.request
    parsed = AnalysisRequest.parse(given)
    by_flags = replace(parsed, assumptions=AnalysisRequest.parse(body["request"]).assumptions)
    assert by_flags.to_dict() == body["request"]
    assert body["assumed_by"]["precision"] == "default"


def test_an_answer_says_which_settings_were_assumed(page: Client, member: User, node: Node) -> None:
    given = {"model": "bert", "gpu": "a10", "current_batch_size": 16}
    analysis = services.submit(member, given)
    lease.finish(lease_on(analysis), make_result())
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Today's settings are assumed: fp32, adamw, 128 tokens." in html
