"""Analyses with a decision, and the decision that is stored."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.test import Client

from analyses import services
from analyses.figures.decision import DecisionFigures, decision_figures
from analyses.jobs import lease
from analyses.models import Analysis, QueryKind
from analyses.tests.factories import lease_on, make_request, make_result
from analyses.tests.query_answers import answer_next, plan_with_answers
from analyses.training_runs.tests.recorded_runs import recorded_run, report_of
from engine.interface.result import AnalysisResult


def finish(owner: User, result: AnalysisResult | None = None, **fields: Any) -> Analysis:
    """An analysis that a worker has just finished."""
    submitted = services.submit(owner, make_request(**fields))
    lease.finish(lease_on(submitted), result or make_result())
    return Analysis.objects.get(pk=submitted.pk)


def decided(owner: User, **fields: Any) -> Analysis:
    """The same, once its plan is answered too."""
    analysis = finish(owner, **fields)
    answer_next(QueryKind.PLAN, plan_with_answers())
    return Analysis.objects.get(pk=analysis.pk)


def figures(analysis: Analysis) -> DecisionFigures:
    found = decision_figures(analysis)
    assert found is not None
    return found


def export_of(page: Client, address: str) -> str:
    """The text of an export."""
    response = page.get(address)
    return b"".join(response).decode() if response.streaming else response.content.decode()


def report_run(page: Client, analysis: Analysis, **changes: Any) -> None:
    """Report a run as the page's lines do."""
    record = recorded_run(analysis_id=analysis.pk, **changes)
    response = page.post("/api/v1/trainings/", report_of(record), "application/json")
    assert response.status_code == 201, response.content
