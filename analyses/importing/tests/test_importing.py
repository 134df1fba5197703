from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from rest_framework.test import APIClient

from analyses.importing.tests.pushed_documents import (
    pushed_document,
    pushed_measurement,
    pushed_texts,
)
from analyses.lab.settings import save_settings
from analyses.models import (
    Analysis,
    CountedSavings,
    Node,
    Notification,
    NotificationChoices,
    Push,
    Query,
    QueryKind,
    QueryStatus,
    Status,
)
from analyses.savings.breakdown import totals
from analyses.selectors import savings_visible_to
from analyses.tests.factories import make_analysis, make_result, make_user
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.tests.text_answers import make_text_result
from engine.core.choices import Goal
from memorymark_site.accounts.models import ApiToken

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/import/"


@pytest.fixture
def api(member: User) -> APIClient:
    client = APIClient()
    token = ApiToken.objects.create(user=member)[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")
    return client


def test_a_pushed_analysis_is_in_the_history(api: APIClient, member: User) -> None:
    answer = api.post(URL, pushed_document(), format="json")

    assert answer.status_code == 201
    assert answer["Location"] == answer.json()["url"]
    analysis = Analysis.objects.get()
    assert (analysis.owner, analysis.status) == (member, Status.SUCCEEDED)
    assert analysis.recommended_batch_size == 128
    assert analysis.source == "predicted"
    assert analysis.started_at is not None
    assert analysis.finished_at is not None
    assert (analysis.finished_at - analysis.started_at).total_seconds() == 90
    assert analysis.trials.count() == len(make_result().trials)
    assert answer.json()["pushed_from"] == "laptop-7"


@pytest.mark.parametrize("goal", [Goal.GENERATION, Goal.LENGTH])
def test_an_answer_about_texts_is_pushed_too(api: APIClient, goal: Goal) -> None:
    answer = api.post(URL, pushed_texts(goal), format="json")

    assert answer.status_code == 201, answer.json()
    analysis = Analysis.objects.get()
    assert (analysis.goal, analysis.status) == (goal, Status.SUCCEEDED)
    assert analysis.longest_tokens == make_text_result(goal).longest_tokens
    assert not CountedSavings.objects.exists()


def test_generation_is_pushed_by_older_versions_too(api: APIClient) -> None:
    document = pushed_texts(Goal.GENERATION)
    for part in (document["request"], document["result"]["workload"]):
        part["optimizer"] = "adamw"  # they name one, which counts for nothing

    assert api.post(URL, document, format="json").status_code == 201


def test_the_pages_say_where_it_ran(client: Client, api: APIClient, member: User) -> None:
    pk = api.post(URL, pushed_measurement(), format="json").json()["id"]
    make_analysis(member, Status.SUCCEEDED)
    client.force_login(member)
    page = client.get(f"/{pk}/").content.decode()

    assert "imported from laptop-7 (<code>memorymark analyze</code>)" in page
    assert "torch 2.13.0" in page
    assert "badge-measured" in page
    listed = client.get("/history/?q=imported&columns=pushed").content.decode()
    assert "laptop-7" in listed
    assert listed.count('<input type="checkbox" name="ids"') == 1
    assert "laptop-7" not in client.get("/history/?q=-imported&columns=pushed").content.decode()
    assert "laptop-7" in "".join(
        part.decode()
        for part in client.get("/history/export.csv?columns=pushed").streaming_content  # type: ignore[attr-defined]  # of a streaming response, which the client's type leaves out
    )


def test_the_host_is_not_shown_outside_the_lab(client: Client, api: APIClient) -> None:
    pk = api.post(URL, pushed_document(), format="json").json()["id"]
    client.force_login(make_user("boss", is_staff=True))
    made = client.post(f"/{pk}/share/", {"days": "7"}).content.decode()
    address = made.split('id="share-address" value="')[1].split('"')[0]

    shown = Client().get(address)
    assert shown.status_code == 200
    assert "laptop-7" not in shown.content.decode()


def test_a_push_names_its_project(api: APIClient) -> None:
    sent = api.post(URL, pushed_document() | {"project": "Thesis"}, format="json")
    assert (sent.status_code, sent.json()["project"]) == (201, "Thesis")
    wrong = api.post(URL, pushed_document() | {"project": "x" * 61}, format="json")
    assert "at most 60" in str(wrong.json()["errors"]["project"])


def test_the_same_push_twice_is_stored_once(api: APIClient) -> None:
    first = api.post(URL, pushed_document(), format="json")
    again = api.post(URL, pushed_document(), format="json")

    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["id"] == again.json()["id"]
    assert Analysis.objects.count() == Push.objects.count() == 1


def test_its_decision_is_the_same_whether_somebody_looks_or_not(
    client: Client, api: APIClient, member: User, node: Node
) -> None:
    body = api.post(URL, pushed_document(), format="json").json()
    assert (body["moves"], body["decision_waits_for"]) == ([], "plan")
    answer_next(QueryKind.PLAN, plan_with_answers())
    before = api.get(body["url"]).json()
    assert before["decision"]["moves"] == ["bf16", "batch 64"]
    assert before["decision_is_final"]

    client.force_login(member)
    client.get(f"/{body['id']}/")
    client.post(f"/{body['id']}/advice/")
    assert not Query.objects.filter(status=QueryStatus.WAITING).exists()
    assert api.get(body["url"]).json() == before


@pytest.mark.parametrize("document", [pushed_measurement(), pushed_texts(Goal.LENGTH)])
def test_what_no_plan_decides_is_final_at_once(
    api: APIClient, node: Node, document: dict[str, Any]
) -> None:
    assert api.post(URL, document, format="json").json()["decision_is_final"]
    assert not Query.objects.exists()


def test_another_push_with_the_same_id_is_refused(api: APIClient) -> None:
    api.post(URL, pushed_document(), format="json")
    other = api.post(
        URL, pushed_document() | {"finished_at": "2026-03-01T13:00:00Z"}, format="json"
    )

    assert other.status_code == 409
    assert "create a new one" in other.json()["detail"]
    assert Analysis.objects.count() == 1


def test_a_member_cannot_take_over_anothers_push(api: APIClient) -> None:
    api.post(URL, pushed_document(), format="json")
    client = APIClient()
    token = ApiToken.objects.create(user=make_user("eve"))[1]
    client.credentials(HTTP_AUTHORIZATION=f"Token {token}")

    assert client.post(URL, pushed_document(), format="json").status_code == 409


def test_a_pushed_analysis_counts_in_the_savings(api: APIClient, member: User) -> None:
    api.post(URL, pushed_measurement(), format="json")

    found = totals(savings_visible_to(member))
    assert found.potential.workloads == 1
    assert found.potential.usd_per_year > 0
    assert found.potential.sources == ("measured",)
    month = CountedSavings.objects.get().month
    assert f"{month:%Y-%m}" == "2026-03"  # when it ran, not when it arrived


def test_its_savings_use_the_labs_assumptions(api: APIClient) -> None:
    boss = make_user("boss", is_staff=True)
    save_settings(
        boss,
        hours_per_run=2.0,
        runs_per_year=10.0,
        grid_co2e_grams_per_kwh="",
        sharing_allowed=True,
    )
    document = pushed_document()
    document["result"]["savings"]["usd_per_year"] = 1e9
    body = api.post(URL, document, format="json").json()

    speedup = body["result"]["speedup"]
    assert body["gpu_hours_per_year"] == pytest.approx(20 * (1 - 1 / speedup))
    assert body["usd_per_year"] < 100
    assert body["assumed_by"]["hours_per_run"] == "lab"


def test_its_own_assumptions_override_the_labs(api: APIClient) -> None:
    names = ("hours_per_run", "runs_per_year", "price_per_hour_usd", "grid_co2e_grams_per_kwh")
    document = pushed_document(None, **dict.fromkeys(names, 1.0))
    body = api.post(URL, document, format="json").json()

    assert body["usd_per_year"] == pytest.approx(1 - 1 / body["result"]["speedup"])
    assert body["kg_co2e_per_year"] == pytest.approx(body["kwh_per_year"] / 1000)
    assert body["assumed_by"] == {}


def test_its_energy_is_computed_again(api: APIClient) -> None:
    document = pushed_document()
    energy = document["result"]["savings"]["energy"]
    expected = energy["kwh_per_year"]
    low = energy["kwh_per_year_low"]
    energy["kwh_per_year_low"] = -1e9  # the one number that may be below zero
    energy["kg_co2e_per_year"] = 1e9
    body = api.post(URL, document, format="json").json()

    assert body["kwh_per_year"] == pytest.approx(expected)
    assert body["result"]["savings"]["energy"]["kwh_per_year_low"] == pytest.approx(low)
    assert body["kg_co2e_per_year"] == pytest.approx(expected * 481 / 1000)


def test_its_result_is_not_reused_for_other_analyses(api: APIClient) -> None:
    api.post(URL, pushed_document(), format="json")
    asked = api.post("/api/v1/analyses/", {"model": "bert", "gpu": "a10"}, format="json")

    assert asked.json()["status"] == "queued"


def test_its_owner_is_not_notified(api: APIClient, member: User) -> None:
    NotificationChoices.objects.create(
        member=member, by_webhook=True, webhook_url="https://x.example", only_after_seconds=0
    )
    api.post(URL, pushed_document(), format="json")

    assert not Notification.objects.exists()


def test_it_can_be_adopted_and_deleted(client: Client, api: APIClient, member: User) -> None:
    pk = api.post(URL, pushed_document(), format="json").json()["id"]

    assert api.post(f"/api/v1/analyses/{pk}/adopt/").json()["adopted_by"] == member.username
    client.force_login(member)
    client.post(f"/history/delete/?ids={pk}")
    assert not Analysis.objects.exists()
    assert not Push.objects.exists()


def test_a_measurement_on_another_machine_keeps_its_gpu(api: APIClient) -> None:
    body = api.post(URL, pushed_measurement(), format="json").json()

    assert (body["source"], body["measured_gpu"]) == ("measured", "NVIDIA A10")
