"""The whole API under generated requests: it always conforms to its description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.conf import settings
from django.contrib.auth.models import User
from django.core.signals import request_finished, request_started
from django.db import close_old_connections
from django.utils import timezone
from schemathesis import Case, HookContext
from schemathesis.specs.openapi import checks

from analyses.api import views
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import add_log, make_analysis, make_user, make_viewer
from memorymark_site.accounts.models import ApiToken
from memorymark_site.wsgi import application

pytest_plugins = ["schemathesis.pytest.plugin"]
pytestmark = pytest.mark.slow

_POSITIVE = (checks.positive_data_acceptance,)
_BOTH = (checks.positive_data_acceptance, checks.negative_data_rejection)
JUDGED: dict[str, tuple[Any, ...]] = {
    "GET /api/v1/analyses/{id}/events/": _POSITIVE,
    "GET /api/v1/compare/": _POSITIVE,
    "GET /api/v1/savings/": _POSITIVE,
    "PATCH /api/v1/analyses/{id}/": _BOTH,
    "POST /api/v1/analyses/": _BOTH,
    "POST /api/v1/analyses/import/": _BOTH,
    "POST /api/v1/plan/": _BOTH,
    "POST /api/v1/predict/": _BOTH,
    "POST /api/v1/training-jobs/": (checks.negative_data_rejection,),  # it lists wrong jobs
    "POST /api/v1/trainings/": _BOTH,
}
"""Checks of what a description cannot say: which settings go together, that their numbers may be
text, what follows from trials, which days are a period, that a cursor is one that was given, which
analyses there are, which version of one, how long a tag is without its spaces."""

THERE: list[int] = []
"""The numbers of the analyses; none while examples are collected, when no database is at hand."""

described = schemathesis.openapi.from_path(Path(settings.BASE_DIR) / "docs" / "openapi.yaml")
described.app = application


@described.hook
def map_path_parameters(
    _context: HookContext, parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Replace some generated values by the number of an analysis, or a GPU's name."""
    if parameters and len(str(parameters.get("gpu", ""))) % 2:
        parameters["gpu"] = "a10"
    number = (parameters or {}).get("id")
    if isinstance(number, int) and parameters and number > 0 and number % 3:
        parameters["id"] = THERE[number % len(THERE)] if THERE else number
    return parameters


@pytest.fixture
def _one_connection(db: None) -> Iterator[None]:
    """Keep the application from closing the connection whose transaction the test uses."""
    for signal in (request_started, request_finished):
        signal.disconnect(close_old_connections)
    yield
    for signal in (request_started, request_finished):
        signal.connect(close_old_connections)


@pytest.fixture(
    params=[
        *(pytest.param(role, marks=pytest.mark.full) for role in ("viewer", "admin")),
        "member",
        "nobody",
    ]
)
def token(
    request: pytest.FixtureRequest, _one_connection: None, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The caller's token, empty for none, in a lab with analyses of theirs and of another's."""
    monkeypatch.setattr(views, "seats", BoundedSemaphore(0))  # no request may wait
    Node.objects.create(name="lab-1", heartbeat_at=timezone.now())
    is_viewer, is_admin = request.param == "viewer", request.param == "admin"
    asks: User = make_viewer("grace") if is_viewer else make_user("grace", is_staff=is_admin)
    for owner in (asks, make_user("alan")):
        for status in Status:
            add_log(make_analysis(owner, status), "tracing")
    THERE[:] = Analysis.objects.values_list("pk", flat=True)
    return "" if request.param == "nobody" else str(ApiToken.objects.create(user=asks)[1])


# The same requests each time, so that unchanged code does not fail by chance.
@described.parametrize()
@hypothesis.settings(
    max_examples=10, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)
def test_the_api_conforms_to_its_description(case: Case[Any], token: str) -> None:
    excluded: set[Any] = set(JUDGED.get(case.operation.label, ()))
    if "fields" in case.query:  # the response then lacks required fields
        excluded.add(checks.response_schema_conformance)
    sent = [value if isinstance(value, list) else [value] for value in case.query.values()]
    if any("" in values for values in sent):
        excluded.add(checks.negative_data_rejection)  # empty means missing, as in a form
    headers = {"Accept-Encoding": "identity"}  # schemathesis reads no compressed answers
    headers |= {"Authorization": f"Token {token}"} if token else {}
    response = case.call_and_validate(headers=headers, excluded_checks=list(excluded))

    if not token and "security" in case.operation.definition.raw:
        assert response.status_code == 401
