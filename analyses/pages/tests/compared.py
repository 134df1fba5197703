"""Comparisons for tests: analyses with answers, and the page of some of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from analyses.models import Analysis, Status
from analyses.pages.compare.columns import Column, columns_of
from analyses.pages.compare.rows import ComparisonRow, answer_rows
from analyses.tests.factories import make_analysis, make_request, make_result, make_user
from engine.interface.result import AnalysisResult
from engine.interface.trial import Source


def make(owner: User, gpu: str = "a10", recommended: int = 64, **asked: Any) -> Analysis:
    """A succeeded analysis."""
    result = make_result(gpu=gpu, recommended=recommended)
    return make_analysis(owner, Status.SUCCEEDED, result, request=make_request(gpu=gpu, **asked))


def make_three(member: User) -> list[Analysis]:
    """On three GPUs, the second of another member."""
    return [make(member), make(make_user("alan"), "a100-80gb"), make(member, "h100")]


def html_of(page: Client, query: str) -> str:
    """The page, without the space before a badge that a cell lacks."""
    response = page.get(reverse("analyses:compare") + query)
    assert response.status_code == 200
    return re.sub(r"\s+</th>", "</th>", response.content.decode())


def ids(analyses: list[Analysis]) -> str:
    return ",".join(str(analysis.pk) for analysis in analyses)


def columns(member: User, *gpus: str, source: Source = Source.PREDICTED) -> list[Column]:
    results = [make_result(gpu=gpu, recommended=64, source=source) for gpu in gpus]
    return columns_of(
        [
            make_analysis(member, Status.SUCCEEDED, result, request=make_request(gpu=gpu))
            for result, gpu in zip(results, gpus, strict=True)
        ]
    )


def with_result(column: Column, result: AnalysisResult) -> Column:
    return replace(column, answered=replace(column.answered, result=result))


def row(found: list[Column], label: str) -> ComparisonRow:
    return next(row for row in answer_rows(found, found[0].pk) if row.label == label)
