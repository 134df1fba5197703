"""The answer of a page with the moves of a rung, advised and adopted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.models import Analysis, Decided, Node, Query, QueryKind, Status
from analyses.pages.analysis.ladder import ladder_of
from analyses.pages.tests.reading import HTMX, advice_section, advice_url
from analyses.results.decided import RESULT_COLUMNS, own_columns
from analyses.tests.factories import make_analysis, make_request, make_result
from analyses.tests.query_answers import answer_next, make_plan, make_rung, plan_with_answers
from engine.answer.ladder import Learning


def answered(page: Client, analysis: Analysis) -> None:
    page.post(advice_url(analysis))
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
    page.post(advice_url(analysis))
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
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, offered())
    ladder = ladder_of(member, analysis)
    assert ladder.shown is not None
    assert ladder.shown.name == "bf16"
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert html.index('id="decision-title" data-say>Switch to bf16.<') < html.index(
        'class="offers"'
    )
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
    page.post(advice_url(analysis))
    plan = offered()
    answer_next(QueryKind.PLAN, plan | {"ladder": plan["ladder"][:2]})
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "Nothing that was tried is surely faster." in html.split('class="offers"')[1]


def test_the_table_has_headings_goes_by_gain_and_keeps_a_price_in_each_row(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
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
    table = advice_section(page, analysis).split('<table class="rungs">')[1].split("</table>")[0]
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
    page.post(advice_url(analysis))
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
    page.post(advice_url(analysis))
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


def test_what_failed_has_no_decision_and_its_rungs_can_be_looked_at(
    page: Client, member: User, node: Node
) -> None:
    analysis = make_analysis(member, Status.FAILED)
    answered(page, analysis)
    html = page.get(f"/{analysis.pk}/").content.decode()
    assert "The analysis failed" in html
    assert 'id="decision"' not in html
    assert "?rung=1" in html
    rung = page.get(f"/{analysis.pk}/", {"rung": "1"}).content.decode()
    assert "Switch to bf16 and batch 64" in rung
    assert "The analysis has no decision." in rung
    for absent in ("/adopt/", 'href="#share"', f"analysis_id={analysis.pk}"):
        assert absent not in rung


def test_another_rung_is_adopted_from_either_button(
    page: Client, member: User, analysis: Analysis, node: Node
) -> None:
    page.post(advice_url(analysis))
    answer_next(QueryKind.PLAN, offered())
    html = page.get(f"/{analysis.pk}/", {"rung": "1"}).content.decode()
    assert html.count('name="rung" value="bf16, batch 112"') == 2
    page.post(f"/{analysis.pk}/adopt/", {"rung": "bf16, batch 112"})
    adopted = page.get(f"/{analysis.pk}/").content.decode()
    assert "Adopted by" in adopted
    other = page.get(f"/{analysis.pk}/", {"rung": "2"}).content.decode()
    assert "Adopted by" not in other
    assert "Undo its adoption to adopt this instead." in other


def test_the_end_of_a_plan_brings_chips_and_actions_with_the_decision(
    page: Client, analysis: Analysis, node: Node
) -> None:
    answered(page, analysis)
    ended = page.get(f"{advice_url(analysis)}?seen=", headers=HTMX).content.decode()
    chips = ended.split('<div id="chips" hx-swap-oob')[1].split("</div>")[0]
    assert "fp32 → bf16-mixed" in chips
    assert 'id="actions" hx-swap-oob' in ended


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
    page.post(advice_url(analysis))
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
