"""The API's OpenAPI description: complete, up to date and checked in."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from drf_spectacular.validation import validate_schema
from rest_framework.test import APIClient

from analyses.api.problems import KINDS
from engine.interface.assumptions import Assumptions
from engine.interface.request import AnalysisRequest
from engine.interface.texts import Texts
from engine.interface.workload import Workload

CHECKED_IN = Path(settings.BASE_DIR) / "docs" / "openapi.yaml"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]  # drf-spectacular has no annotations there
    return generated


def test_the_description_is_valid_openapi(schema: dict[str, Any]) -> None:
    validate_schema(schema)  # type: ignore[no-untyped-call]  # drf-spectacular has no annotations there


def test_the_file_checked_in_matches_the_code(schema: dict[str, Any]) -> None:
    now = OpenApiYamlRenderer().render(schema, renderer_context={}).decode()  # type: ignore[no-untyped-call]  # nor has its renderer
    assert now == CHECKED_IN.read_text(), "the API has changed; if that is meant: make openapi"


def test_every_operation_is_described_with_its_errors(schema: dict[str, Any]) -> None:
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            responses = operation["responses"]
            assert operation["summary"], (path, method)
            assert operation["description"], (path, method)
            assert {"200", "201", "204"} & responses.keys(), (path, method)
            if path != "/api/v1/health":
                assert {"401", "429", "500"} <= responses.keys(), (path, method)
                assert operation["security"] == [{"token": []}, {"cookieAuth": []}]


def test_every_kind_of_problem_is_listed(schema: dict[str, Any]) -> None:
    assert {kind.name for kind in KINDS.values()} == schema["components"]["responses"].keys()


def test_the_request_has_every_field_of_the_engine(schema: dict[str, Any]) -> None:
    known = {
        field.name
        for kind in (Workload, AnalysisRequest, Texts, Assumptions)
        for field in fields(kind)
    }
    question = schema["components"]["schemas"]["QuestionRequest"]["properties"]
    known |= {"recipe", "framework"}  # in the place of those that a recipe sets
    assert question.keys() == known - {"workload", "texts", "assumptions"}
    assert question["sequence_length"]["description"].startswith("Tokens per sample")


def test_the_description_is_served_to_members(api: APIClient, client: Client) -> None:
    served = api.get("/api/v1/schema/", headers={"Accept": "application/vnd.oai.openapi"})
    assert (served.content, served["Content-Type"]) == (CHECKED_IN.read_bytes(), "application/yaml")
    assert client.get("/api/v1/schema/").status_code == 401


@pytest.mark.parametrize("address", ["/api/docs/", "/api/docs/problems/"])
def test_the_api_pages_are_only_for_members(client: Client, member: User, address: str) -> None:
    assert client.get(address).status_code == 302
    client.force_login(member)
    assert client.get(address).status_code == 200


def test_the_api_page_names_where_the_first_services_numbers_are_explained(
    client: Client, member: User
) -> None:
    client.force_login(member)
    assert "docs/first-service.md" in client.get("/api/docs/").content.decode()
    assert (CHECKED_IN.parent / "first-service.md").exists()


def test_each_problem_type_links_to_its_description(client: Client, member: User) -> None:
    client.force_login(member)
    page = client.get("/api/docs/problems/").content.decode()
    for kind in KINDS.values():
        assert kind.address == f"/api/docs/problems/#{kind.name}"
        assert f'id="{kind.name}"' in page
