from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from analyses import services
from analyses.lab.projects import (
    BadProject,
    project_name,
    project_named,
    projects_in_use,
)
from analyses.models import Analysis, Project, Status
from analyses.pages.history.groups import GROUPED_BY, MAX_SHOWN, groups_of
from analyses.pages.tests.reading import history_of
from analyses.savings.aggregation import recounting
from analyses.services import put_into_project
from analyses.tests.factories import make_analysis, make_result, make_training, make_user

pytestmark = pytest.mark.database

URL = "/api/v1/analyses/"
ASKED = {"model": "bert", "gpu": "a10", "current_batch_size": 16}


def exported(client: Client, ending: str, **query: Any) -> str:
    response = client.get(reverse(f"analyses:export-{ending}"), query)
    return b"".join(response).decode()


def counted(owner: User, current: int = 16, **fields: Any) -> Analysis:
    """A succeeded analysis whose savings count, of a workload of its own."""
    analysis = make_analysis(owner, Status.SUCCEEDED, make_result(current=current), **fields)
    with recounting(Analysis.objects.filter(pk=analysis.pk)):
        pass
    return analysis


@given(st.text(max_size=80))
def test_a_name_is_stored_as_it_reads_or_refused(text: str) -> None:
    try:
        name = project_name(text)
    except BadProject:
        return
    assert name == project_name(name)
    assert len(name) <= Project.MAX_LENGTH
    assert name.lower() != "none"


def test_letters_of_any_case_are_one_project(member: User) -> None:
    first, second = make_analysis(member), make_analysis(member)
    put_into_project([first], "Chapter Two")
    put_into_project([second], "chapter two")
    assert projects_in_use() == ["Chapter Two"]
    assert Project.objects.count() == 1
    put_into_project([first, second], "")
    assert projects_in_use() == []


def test_selected_analyses_are_put_into_a_project(page: Client, member: User) -> None:
    pks = [make_analysis(member).pk, make_analysis(make_user("alan")).pk]
    ids = ",".join(map(str, pks))
    query: dict[str, str | list[int]] = {"action": "project", "ids": pks}
    chosen = page.get(reverse("analyses:selection"), query)
    assert chosen["Location"].startswith(f"{reverse('analyses:project')}?ids={ids}")
    done = page.post(chosen["Location"], {"project": "Thesis"}, follow=True)
    assert "Put 2 analyses into Thesis." in done.content.decode()
    assert {one.project.name for one in Analysis.objects.all() if one.project} == {"Thesis"}
    refused = page.post(chosen["Location"], {"project": "None"})
    assert "means no project" in refused.content.decode()
    assert "Took 2 analyses out" in page.post(chosen["Location"], {}, follow=True).content.decode()


def test_the_form_submits_into_a_project_and_a_copy_stays_in_it(page: Client) -> None:
    response = page.post(reverse("analyses:new"), ASKED | {"project": " Thesis "})
    analysis = Analysis.objects.get()
    assert response["Location"] == reverse("analyses:detail", args=[analysis.pk])
    assert analysis.project == project_named("thesis")
    html = page.get(reverse("analyses:new"), {"from": analysis.pk}).content.decode()
    assert 'name="project" value="Thesis"' in html
    assert '<option value="Thesis">' in html
    assert services.run_again(analysis, analysis.owner).project == analysis.project
    detail = page.get(reverse("analyses:detail", args=[analysis.pk])).content.decode()
    assert '?project=Thesis">Thesis</a>' in detail


def test_the_api_submits_filters_and_moves(api: APIClient) -> None:
    sent = api.post(URL, ASKED | {"project": "Thesis"}, format="json")
    assert (sent.status_code, sent.json()["project"]) == (201, "Thesis")
    plain = api.post(URL, ASKED | {"current_batch_size": 8, "project": None}, format="json")
    assert plain.json()["project"] is None
    pk = plain.json()["id"]
    assert [one["id"] for one in api.get(URL, {"project": "none"}).json()["results"]] == [pk]
    moved = api.patch(f"{URL}{pk}/", {"project": "thesis"}, format="json")
    assert moved.json()["project"] == "Thesis"
    assert api.get(URL, {"project": "THESIS"}).json()["count"] == 2
    assert api.get(URL, {"q": "project:the"}).json()["count"] == 2
    assert api.get(URL, {"project": "other"}).json()["count"] == 0
    assert api.patch(f"{URL}{pk}/", {"tags": []}, format="json").json()["project"] == "Thesis"
    assert api.patch(f"{URL}{pk}/", {"project": None}, format="json").json()["project"] is None
    for wrong in ("x" * 61, "none", "a\0b", 7):
        refused = api.post(URL, ASKED | {"project": wrong}, format="json")
        assert refused.status_code == 400
        assert "project" in refused.json()["errors"]


def test_the_same_key_for_another_project_is_refused(api: APIClient) -> None:
    for project, status in (("a", 201), ("a", 201), ("b", 422)):
        body = ASKED | {"project": project}
        sent = api.post(URL, body, format="json", headers={"Idempotency-Key": "k"})
        assert sent.status_code == status


def test_groups_count_analyses_and_each_workload_once(member: User) -> None:
    alan = make_user("alan")
    adopted = counted(member, adopted_at=timezone.now(), adopted_by=member)
    again = counted(member)  # the same workload: it counts with the adopted one
    other = counted(alan, model="gpt2", request=dict(adopted.request, model="gpt2"))
    make_training(adopted, verifies=True)
    put_into_project([adopted, again], "Thesis")
    thesis, none = groups_of(Analysis.objects.all(), "project")
    assert (thesis.title, thesis.value, thesis.analyses, thesis.adopted) == (
        "Thesis", "Thesis", 2, 1,
    )  # fmt: skip
    assert (thesis.verified, none.verified) == (1, 0)
    assert thesis.realised_usd_per_year == adopted.usd_per_year
    assert thesis.potential_usd_per_year == 0
    assert (none.title, none.value, none.analyses) == ("No project", "none", 1)
    assert none.potential_usd_per_year == other.usd_per_year


@pytest.mark.parametrize("by", GROUPED_BY)
def test_each_group_leads_to_its_analyses(page: Client, member: User, by: str) -> None:
    put_into_project([counted(member)], "Thesis & more")
    counted(make_user("alan"), gpu="local", measured_gpu="NVIDIA H200")
    for group in groups_of(Analysis.objects.all(), by):
        html = history_of(page, **{by: group.value})
        assert html.count('id="analysis-') == group.analyses


def test_the_page_and_exports_show_groups_of_what_is_filtered(page: Client, member: User) -> None:
    put_into_project([counted(member)], "=Thesis")
    counted(make_user("alan"))
    html = history_of(page, group="project", member="grace")
    assert 'href="?member=grace&amp;project=%3DThesis">=Thesis</a>' in html
    assert "No project</a>" not in html
    assert 'id="analysis-' not in html
    assert 'aria-current="true">Project</a>' in html
    (row,) = csv.DictReader(io.StringIO(exported(page, "csv", group="project", member="grace")))
    assert (row["project"], row["analyses"]) == ("'=Thesis", "1")
    both = json.loads(exported(page, "json", group="member"))
    assert {one["member"] for one in both} == {"grace", "alan"}
    assert "Choose one of project, model, member, gpu" in history_of(page, group="colour")


def test_a_saved_view_keeps_its_groups(page: Client) -> None:
    offered = page.get(reverse("analyses:list"), {"group": "gpu"}).content.decode()
    assert '<input type="hidden" name="query" value="group=gpu">' in offered


@pytest.mark.longer
def test_the_page_shows_the_largest_groups_and_the_export_all(page: Client, member: User) -> None:
    for number in range(MAX_SHOWN + 2):
        make_analysis(member, model=f"model-{number}")
    html = history_of(page, group="model")
    assert html.count('<th scope="row">') == MAX_SHOWN
    assert "exports have 2 more" in html
    assert exported(page, "csv", group="model").count("\r\n") == MAX_SHOWN + 3


def test_the_column_shows_and_exports_the_project(page: Client, member: User) -> None:
    put_into_project([make_analysis(member)], "Thesis")
    assert 'data-label="Project">Thesis</td>' in history_of(page, columns=["project"])
    (row,) = csv.DictReader(io.StringIO(exported(page, "csv", columns=["project"])))
    assert row["project"] == "Thesis"
