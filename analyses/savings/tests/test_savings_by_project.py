"""Savings by project: the breakdown, the filter, and what moves an analysis to another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.models import Analysis, CountedSavings, Project, RunSavings, Status
from analyses.savings.aggregation import recounting
from analyses.services import put_into_project
from analyses.tests.factories import make_analysis, make_request, make_result
from analyses.training_runs.services import store_report
from analyses.training_runs.tests.recorded_runs import recorded_run

pytestmark = pytest.mark.database


def counted(owner: User, gpu: str, project: str) -> Analysis:
    """An analysis that counts, on a GPU that makes it a workload of its own."""
    request = make_request(gpu=gpu)
    analysis = make_analysis(owner, Status.SUCCEEDED, make_result(gpu=gpu), request=request)
    with recounting(Analysis.objects.filter(pk=analysis.pk)):
        pass
    put_into_project([analysis], project)
    return analysis


def totals(page: Client, **query: str) -> dict[str, Any]:
    body: dict[str, Any] = page.get("/api/v1/savings/", query).json()
    return body


def test_totals_are_by_project_and_each_row_filters_the_page(page: Client, member: User) -> None:
    for gpu, project in (("a10", "thesis"), ("t4", "Thesis"), ("l4", "")):
        counted(member, gpu, project)
    rows = {row["value"]: row for row in totals(page, by="project")["results"]}
    workloads = {name: row["potential"]["workloads"] for name, row in rows.items()}
    assert workloads == {"thesis": 2, "none": 1}
    assert rows["none"]["label"] == "no project"

    html = page.get("/savings/?by=project").content.decode()
    assert "project=thesis" in html
    assert "project=none" in html
    for project, count in workloads.items():
        shown = page.get(f"/savings/?project={project}").content.decode()
        assert f"{count} anal" in shown.split('id="behind-title">')[1]
        assert totals(page, project=project)["totals"]["potential"]["workloads"] == count
    assert "no project" in page.get("/savings/?project=none").content.decode()
    csv = b"".join(page.get("/savings/totals.csv?by=project")).decode()
    assert {line.split(",")[0] for line in csv.splitlines()} == {"project", "thesis", "no project"}


def test_another_project_moves_the_savings_at_once(page: Client, member: User) -> None:
    analysis = counted(member, "a10", "thesis")
    assert totals(page, project="thesis")["totals"]["potential"]["workloads"] == 1
    put_into_project([analysis], "paper")
    assert totals(page, project="thesis")["totals"]["potential"]["workloads"] == 0
    assert totals(page, project="paper")["totals"]["potential"]["workloads"] == 1


def test_recorded_runs_are_in_the_project_of_their_workload(page: Client, member: User) -> None:
    analysis = counted(member, "a10", "thesis")
    services.adopt(analysis, member)
    record = replace(recorded_run(), analysis_id=analysis.pk)
    store_report(member, {"id": str(uuid4()), "host": "node-1", "record": record.to_dict()})
    for found in (CountedSavings.objects.get(), RunSavings.objects.first()):
        assert found is not None
        assert found.project == Project.objects.get(name="thesis")
    put_into_project([analysis], "")
    assert not RunSavings.objects.exclude(project=None).exists()
