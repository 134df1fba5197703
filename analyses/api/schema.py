"""The API's description: the OpenAPI schema, made from the views, and the pages that show it.

Summaries, shared parameters and problems are added here; what is specific to an operation is in
:func:`described` at its view.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.extensions import OpenApiAuthenticationExtension, OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic.json_schema import GenerateJsonSchema
from rest_framework import serializers
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from analyses.api.problems import KINDS, MEDIA_TYPE, Kind
from analyses.api.serializers import stored_serializer
from analyses.api.views import MAX_WAIT_SECONDS
from analyses.bodies import Stored

View = TypeVar("View", bound=Callable[..., Any])

WAIT = OpenApiParameter(
    "wait",
    {"type": "number", "minimum": 0, "maximum": MAX_WAIT_SECONDS},
    description="Seconds to wait for it: of an analysis, until its decision is final. The response "
    "comes at once if too many requests are waiting already.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of an earlier response: 304 without a body if nothing has changed.",
)
PROBLEM = "Problem"


def described(**words: Any) -> Callable[[View], View]:
    """:func:`drf_spectacular.utils.extend_schema` with its type kept."""
    decorate: Callable[[View], View] = extend_schema(**words)
    return decorate


def results_of(
    one: type[serializers.BaseSerializer[Any]], name: str
) -> type[serializers.Serializer[Any]]:
    """The serializer of a list without pages, for the schema."""
    body = {"__doc__": "The whole list.", "results": one(many=True)}
    return type(f"{name}Serializer", (serializers.Serializer,), body)


class Schema(AutoSchema):
    """Takes summary and description from the docstring of the view's method."""

    def get_summary(self) -> str | None:
        first = re.split(r"[.;:](?:\s|$)", _docstring(self))[0]
        return first.replace("`", "") or None

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's signature
        return _docstring(self)

    def get_override_parameters(
        self,
    ) -> list[OpenApiParameter | serializers.Serializer[Any] | type[serializers.Serializer[Any]]]:
        if self.method != "GET" or not hasattr(self.view, "get_serializer_class"):
            return []
        known = list(self.view.get_serializer_class()().fields)
        return [_fields_parameter(known), IF_NONE_MATCH]


def _fields_parameter(known: list[str]) -> OpenApiParameter:
    return OpenApiParameter(
        "fields",
        {"type": "array", "minItems": 1, "items": {"type": "string", "enum": known}},
        style="form",
        explode=False,
        description="Send only these fields; all if left out.",
    )


def _docstring(schema: Schema) -> str:
    name = getattr(schema.view, "action", None) or schema.method.lower()
    method = getattr(schema.view, name, None)
    return inspect.getdoc(method) or ""


class _BodySchema(GenerateJsonSchema):
    """JSON schema as OpenAPI 3.0 has it: ``nullable`` instead of a union, no titles or defaults."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"]) | {"nullable": True}

    def default_schema(self, schema: Any) -> dict[str, Any]:
        return self.generate_inner(schema["schema"])

    def float_schema(self, schema: Any) -> dict[str, Any]:
        return super().float_schema(schema) | {"format": "double"}

    def model_schema(self, schema: Any) -> dict[str, Any]:
        found = super().model_schema(schema)
        return {name: value for name, value in found.items() if name != "title"}


class BodyExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # its hook for subclasses has no annotations
    """Describes a body by its pydantic model, whose name ends in ``Body``."""

    target_class = "pydantic.BaseModel"
    match_subclasses = True
    priority = 1  # before the one that comes with drf-spectacular, which writes OpenAPI 3.1

    def get_name(self, auto_schema: Any, direction: str) -> str:
        return str(self.target.__name__.removesuffix("Body"))

    def map_serializer(self, auto_schema: Any, direction: str) -> dict[str, Any]:
        schema: dict[str, Any] = self.target.model_json_schema(
            ref_template="#/components/schemas/{model}Request", schema_generator=_BodySchema
        )
        for name, inner in schema.pop("$defs", {}).items():
            auto_schema.registry.register_on_missing(
                ResolvedComponent(  # type: ignore[no-untyped-call]  # drf-spectacular has no annotations there
                    f"{name}Request", ResolvedComponent.SCHEMA, schema=inner, object=name
                )
            )
        for name, field in self.target.model_fields.items():
            for stored in field.metadata:
                if isinstance(stored, Stored):
                    refs = [
                        auto_schema.resolve_serializer(stored_serializer(kind), direction).ref
                        for kind in stored.kinds
                    ]
                    schema["properties"][name] = {
                        "allOf" if len(refs) == 1 else "anyOf": refs,
                        "description": field.description,
                    }
        return schema


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its hook for subclasses has no annotations
    """Token authentication, for scripts."""

    target_class = "memorymark_site.accounts.tokens.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """An ``apiKey``: OpenAPI has no other type for a header with a word before the token."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token mm_…`, created on the API tokens page.",
        }


SELECTED = "Selected"
"""Ends the name of a component with any of the fields of another."""


def with_selected_fields(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Describe what ``?fields=`` answers: any of the fields; a hook of drf-spectacular."""
    schemas = result["components"]["schemas"]
    for operations in result["paths"].values():
        operation = operations.get("get", {})
        for parameter in operation.get("parameters", ()):
            if parameter["name"] == "fields":
                known = frozenset(parameter["schema"]["items"]["enum"])
                for media in operation["responses"]["200"]["content"].values():
                    selected = _selected(media["schema"], known, schemas)
                    media["schema"] = {"anyOf": [media["schema"], selected]}
    return result


def _selected(
    whole: dict[str, str], known: frozenset[str], schemas: dict[str, Any]
) -> dict[str, str]:
    """A reference to a copy of a component that requires none of the known fields.

    In a list they are those of its rows; where rows are of several kinds, those of each kind.
    """
    name = whole["$ref"].rpartition("/")[2] + SELECTED
    if name not in schemas:
        copy = schemas[name] = deepcopy(schemas[name.removesuffix(SELECTED)])
        properties = copy.get("properties", {})
        if rows := None if known <= properties.keys() else properties.get("results"):
            rows["items"] = _selected(rows["items"], known, schemas)
        elif "oneOf" in copy:
            copy["oneOf"] = [_selected(kind, known, schemas) for kind in copy["oneOf"]]
            copy.pop("discriminator", None)
        else:
            copy.pop("required", None)
    return {"$ref": f"#/components/schemas/{name}"}


def with_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Add the possible problems to each operation; a hook of drf-spectacular."""
    result["components"]["schemas"][PROBLEM] = _problem_schema()
    result["components"]["responses"] = {kind.name: _response(kind) for kind in KINDS.values()}
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Request"):  # unknown fields are refused
            schema["additionalProperties"] = False
        if "oneOf" in schema:  # one stored by another version may lack what tells them apart
            schema["anyOf"] = schema.pop("oneOf")
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _add_problems(path, method, operation)
    return result


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    is_for_members = bool(operation.get("security"))
    # A view lists the problems that only it has as responses without a body.
    statuses = {int(code) for code, response in responses.items() if "content" not in response}
    statuses |= {400, 401, 406, 429, 500, 503} if is_for_members else {406, 500}
    if is_for_members and method != "get":
        statuses |= {403}
    if "{" in path or any(each["name"] == "page" for each in operation.get("parameters", [])):
        statuses |= {404}
    if "requestBody" in operation:
        statuses |= {413, 415}
    for status in statuses & KINDS.keys():
        if "content" not in responses.get(str(status), {}):
            responses[str(status)] = {"$ref": f"#/components/responses/{KINDS[status].name}"}
    if is_for_members and method == "get":
        responses["304"] = {"description": "Not changed since the version in `If-None-Match`."}
    operation["responses"] = dict(sorted(responses.items()))


def _response(kind: Kind) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{PROBLEM}"}
    response: dict[str, Any] = {
        "description": f"{kind.title}. {kind.meaning}",
        "content": {MEDIA_TYPE: {"schema": schema}},
    }
    if kind.status in (429, 503):
        response["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}
        }
    return response


def _problem_schema() -> dict[str, Any]:
    text = {"type": "string"}
    return {
        "type": "object",
        "description": "What went wrong (RFC 9457).",
        "required": ["type", "title", "status", "detail", "instance"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference", "description": "The kind."},
            "title": text | {"description": "The kind, for people."},
            "status": {"type": "integer"},
            "detail": text | {"description": "What happened this time."},
            "instance": text | {"description": "The address of the request."},
            "errors": {
                "type": "object",
                "description": "What is wrong and what to do, by field.",
                "additionalProperties": {"type": "array", "items": text},
            },
        },
        "example": {
            "type": "/api/docs/problems/#invalid",
            "title": "Invalid request",
            "status": 400,
            "detail": "current_batch_size: enter a whole number from 1 to 65,536.",
            "instance": "/api/v1/analyses/",
            "errors": {"current_batch_size": ["enter a whole number from 1 to 65,536"]},
        },
    }


class SchemaFile(APIView):
    """The schema as it is checked in; generating it takes a second."""

    schema = None

    def perform_content_negotiation(
        self, request: Request, force: bool = False
    ) -> tuple[BaseRenderer, str]:
        """The file is YAML, whatever ``Accept`` is; problems are JSON."""
        return super().perform_content_negotiation(request, force=True)

    def get(self, _request: Request) -> HttpResponse:
        return HttpResponse(_checked_in(), content_type="application/yaml")


@cache
def _checked_in() -> bytes:
    return (Path(settings.BASE_DIR) / "docs" / "openapi.yaml").read_bytes()


@require_safe
def docs(request: HttpRequest) -> HttpResponse:
    return render(request, "api/docs.html", {"nav": "api"})


@require_safe
def problems(request: HttpRequest) -> HttpResponse:
    """The kinds of problems; the ``type`` of a problem links here."""
    return render(request, "api/problems.html", {"kinds": KINDS.values(), "nav": "api"})
