"""The whole API under generated requests: whatever is sent, it does what its description says."""

from __future__ import annotations

from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import hypothesis
import pytest
import schemathesis
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone
from schemathesis import Case, HookContext
from schemathesis.specs.openapi import checks

from analyses.api import waiting
from analyses.models import Analysis, Node, Status
from analyses.tests.factories import add_log, make_analysis, make_user
from memorymark_site.accounts.models import ApiToken
from memorymark_site.wsgi import application

pytestmark = pytest.mark.slow

JUDGED = {
    "POST /api/v1/analyses/",  # which settings go together, the engine knows
    "GET /api/v1/analyses/{id}/events/",  # a cursor is one that was given
    "GET /api/v1/compare/",  # the numbers of analyses that there are
}
"""Where a description cannot say all that makes a request right."""

described = schemathesis.openapi.from_path(Path(settings.BASE_DIR) / "docs" / "openapi.yaml")
described.app = application


@described.hook
def map_path_parameters(
    _context: HookContext, parameters: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Some of what is made up becomes the number of an analysis, or a GPU's name."""
    if parameters and len(str(parameters.get("gpu", ""))) % 2:
        parameters["gpu"] = "a10"
    number = (parameters or {}).get("id")
    if isinstance(number, int) and parameters and number > 0 and number % 3:
        ids = list(Analysis.objects.values_list("pk", flat=True))
        parameters["id"] = ids[number % len(ids)] if ids else number
    return parameters


@pytest.fixture(params=["member", "admin"])
def role(request: pytest.FixtureRequest, db: None, monkeypatch: pytest.MonkeyPatch) -> User:
    """Who asks, in a lab with analyses of theirs and of another's."""
    monkeypatch.setattr(waiting, "seats", BoundedSemaphore(0))  # nobody has a minute here
    Node.objects.create(name="lab-1", heartbeat_at=timezone.now())
    asks = make_user("grace", is_staff=request.param == "admin")
    for owner in (asks, make_user("alan")):
        for status in Status:
            add_log(make_analysis(owner, status), "tracing")
    return asks


@described.parametrize()
@hypothesis.settings(max_examples=40, suppress_health_check=list(hypothesis.HealthCheck))
def test_it_does_what_its_description_says(case: Case[Any], role: User) -> None:
    token = ApiToken.objects.create(user=role)[1]
    excluded = []
    if "fields" in case.query:  # then an answer lacks what its description requires
        excluded.append(checks.response_schema_conformance)
    if "" in case.query.values():  # the same as left out, as a form sends it
        excluded.append(checks.negative_data_rejection)
    if case.operation.label in JUDGED:
        excluded.append(checks.positive_data_acceptance)
    case.call_and_validate(headers={"Authorization": f"Token {token}"}, excluded_checks=excluded)
