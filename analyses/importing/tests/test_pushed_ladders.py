"""Ladders that are pushed with scripts: shown, decided, adopted and refused like a plan's own."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses import services
from analyses.figures.decision import decision_figures
from analyses.importing.tests.pushed_documents import pushed_document
from analyses.importing.tests.pushed_scripts import HASH, make_document, make_script_result
from analyses.models import Analysis, Query
from analyses.pages.analysis.ladder import ladder_of
from analyses.tests.query_answers import make_moved_result, make_rung
from engine.answer.ladder import Rung
from engine.interface.result import AnalysisResult, GpuOffer

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/import/"
LINE = 'with torch.autocast("cuda", dtype=torch.bfloat16):'


def bf16() -> Rung:
    found = make_moved_result()
    trials = [
        replace(one, samples_per_second=500.0)
        if one.batch_size == found.recommended_batch_size
        else one
        for one in found.trials
    ]
    assert found.today is not None
    moved = replace(
        found,
        trials=trials,
        today=replace(found.today, samples_per_second=500.0 / 2.5),
        workload=None,
        model_name="train.py",
        program_hash=HASH,
        move_lines=[LINE],
    )
    return _rung_of(moved, moves=["bf16", "batch 64"], fields={"precision": "bf16-mixed"})


def _rung_of(result: AnalysisResult, **fields: Any) -> Rung:
    size = result.recommended_batch_size
    trial = next(one for one in result.trials if one.batch_size == size)
    return make_rung(
        batch_size=size,
        speedup=result.speedup,
        speedup_low=result.speedup_low,
        speedup_high=result.speedup_high,
        samples_per_second=trial.samples_per_second,
        global_batch_before=16,
        global_batch_size=size,
        keeps_global_batch=size == 16,
        result=result,
        **fields,
    )


def with_ladder(*rungs: Rung, **changes: Any) -> dict[str, Any]:
    own = make_script_result()
    today = _rung_of(own)
    ladder = [rung.to_dict() for rung in (today, *rungs)]
    plain: dict[str, Any] = json.loads(json.dumps(make_document() | {"ladder": ladder} | changes))
    return plain


@pytest.fixture
def pushed(api: APIClient) -> Analysis:
    answer = api.post(URL, with_ladder(bf16()), format="json")
    assert answer.status_code == 201, answer.json()
    return Analysis.objects.get()


@pytest.fixture
def page(client: Client, member: User, pushed: Analysis) -> Client:
    client.force_login(member)
    return client


def shown(page: Client, analysis: Analysis, **query: str) -> str:
    answer = page.get(f"/{analysis.pk}/", query)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_best_change_is_the_decision_of_the_script(page: Client, pushed: Analysis) -> None:
    html = shown(page, pushed)
    assert "Switch to bf16 and batch 64" in html
    assert "with torch.autocast" in html
    assert "not available" not in html.lower()
    figures = decision_figures(pushed)
    assert figures is not None
    assert (figures.moves, figures.speedup) == (["bf16", "batch 64"], 2.5)
    assert not Query.objects.exists()  # nobody plans it here


def test_each_change_can_be_looked_at(page: Client, pushed: Analysis) -> None:
    as_it_is = shown(page, pushed, rung="0")
    assert "Switch to batch 128" in as_it_is
    assert "Switch to bf16 and batch 64" in as_it_is  # it stays on offer


def test_the_form_is_not_offered_for_a_change(member: User, pushed: Analysis) -> None:
    rows = ladder_of(member, pushed).rows
    assert [row.form_query for row in rows] == ["", ""]


def test_an_adoption_can_be_taken_back(member: User, pushed: Analysis) -> None:
    today = ladder_of(member, pushed).rows[0].rung
    assert services.adopt(pushed, member, today)
    pushed.refresh_from_db()
    assert pushed.recommended_batch_size == 128

    assert services.undo_adoption(pushed, member)
    pushed = Analysis.objects.get()
    assert pushed.recommended_batch_size == 64  # the ladder advises again


def test_other_gpus_that_came_with_it_stay(api: APIClient, client: Client, member: User) -> None:
    document = with_ladder(bf16())
    offer = GpuOffer("l4", 2**34, True, True, "", 0.7, 280, 128, 300.0, 290.0, 310.0, 0.7)
    document["result"]["compared_gpus"] = [asdict(offer)]
    pk = api.post(URL, document, format="json").json()["id"]
    client.force_login(member)
    html = client.get(f"/{pk}/").content.decode()
    assert "Switch to bf16 and batch 64" in html
    assert "NVIDIA L4" in html


def test_costs_are_those_of_the_lab(pushed: Analysis, member: User) -> None:
    row = ladder_of(member, pushed).rows[1].rung
    assert row.result is not None
    assert row.result.savings is not None
    hours, price = row.result.savings.hours_per_run, row.result.savings.price_per_hour_usd
    assert row.usd_per_run == pytest.approx(hours * price / 2.5)


def _of_another_script(rung: Rung) -> Rung:
    assert rung.result is not None
    return replace(rung, result=replace(rung.result, program_hash="0" * 64))


@pytest.mark.parametrize(
    ("rung", "field"),
    [
        (_of_another_script(bf16()), "ladder.1.result.program_hash"),
        (replace(bf16(), batch_size=48), "ladder.1"),
        (replace(bf16(), fits=False), "ladder.1"),
        (replace(bf16(), moves=["x" * 1000]), "ladder.1"),
        (replace(bf16(), fields={"precision": ["bf16-mixed"]}), "ladder.1"),
        (replace(bf16(), fields={"program": "x"}), "ladder.1"),
        (replace(bf16(), speedup=9.0), "ladder.1"),
        (replace(bf16(), keeps_global_batch=True), "ladder.1"),
        (replace(bf16(), gpu="h100"), "ladder.1"),
        (make_rung(moves=[], fields={}, why_not="even batch 1 needs 90 GiB"), "same moves"),
        (replace(bf16(), usd_per_run=-1.0), "item 2: '-1.0' is below zero"),
    ],
    ids=[
        "another script",
        "another batch",
        "does not fit",
        "a long name",
        "a list",
        "another field",
        "another speedup",
        "another global batch",
        "another GPU",
        "same moves",
        "below zero",
    ],
)
def test_a_ladder_that_contradicts_itself_is_refused(
    api: APIClient, rung: Rung, field: str
) -> None:
    answer = api.post(URL, with_ladder(rung), format="json")
    assert answer.status_code == 400
    assert field in json.dumps(answer.json())
    assert not Analysis.objects.exists()


def test_more_rungs_than_a_plan_has_are_refused(api: APIClient) -> None:
    answer = api.post(URL, with_ladder(*[bf16()] * 10), format="json")
    assert answer.status_code == 400


def test_a_model_is_planned_here(api: APIClient) -> None:
    document = pushed_document() | {"ladder": with_ladder(bf16())["ladder"]}
    answer = api.post(URL, document, format="json")
    assert answer.status_code == 400
    assert "the lab plans models itself" in json.dumps(answer.json())
