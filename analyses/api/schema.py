"""The API's own description (OpenAPI), from the code that answers.

What every operation has in common is put in here, once: its tag, its summary, the problems it may
answer with. What is particular to one stands at its view, by :func:`described`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers

from analyses.api.problems import KINDS, MEDIA_TYPE, Kind
from analyses.api.waiting import LONGEST_WAIT_SECONDS

View = TypeVar("View", bound=Callable[..., Any])

WAIT = OpenApiParameter(
    "wait",
    {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_SECONDS},
    description="Seconds to wait for the end. It answers at once with what there is where too "
    "many wait already.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    OpenApiTypes.STR,
    OpenApiParameter.HEADER,
    description="The `ETag` of an earlier answer: 304 without a body where it still holds.",
)
PROBLEM = "Problem"


def described(**words: Any) -> Callable[[View], View]:
    """:func:`drf_spectacular.utils.extend_schema` with its type kept."""
    decorate: Callable[[View], View] = extend_schema(**words)
    return decorate


def results_of(
    one: type[serializers.BaseSerializer[Any]], name: str
) -> type[serializers.Serializer[Any]]:
    """The serializer of a list that has no pages, for the schema."""
    body = {"__doc__": "All there are.", "results": one(many=True)}
    return type(f"{name}Serializer", (serializers.Serializer,), body)


class Schema(AutoSchema):
    """Reads summary and description from the docstring of the method that answers."""

    def get_summary(self) -> str | None:
        """The first sentence."""
        first = re.split(r"[.;:](?:\s|$)", _docstring(self))[0]
        return first.replace("`", "") or None

    def get_description(self) -> str:  # type: ignore[override]  # drf-spectacular's signature
        """All of it."""
        return _docstring(self)

    def get_override_parameters(
        self,
    ) -> list[OpenApiParameter | serializers.Serializer[Any] | type[serializers.Serializer[Any]]]:
        """What each read takes."""
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
        description="Only these are sent, whatever else is required; all if left out.",
    )


def _docstring(schema: Schema) -> str:
    method = getattr(schema.view, schema.method.lower(), None)
    return inspect.getdoc(method) or ""


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # its hook for subclasses has no annotations
    """How a script signs in."""

    target_class = "memorymark_site.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: AutoSchema) -> dict[str, Any]:
        """A header with a word before the token, which OpenAPI has no other name for."""
        return {
            "type": "apiKey",
            "in": "header",
            "name": "Authorization",
            "description": "`Token mm_…`, made on the page API tokens: to read, or to write too.",
        }


def with_problems(result: dict[str, Any], **_: object) -> dict[str, Any]:
    """Give each operation the errors that it may answer with; a hook of drf-spectacular."""
    result["components"]["schemas"][PROBLEM] = _problem_schema()
    result["components"]["responses"] = {kind.name: _response(kind) for kind in KINDS.values()}
    for name, schema in result["components"]["schemas"].items():
        if name.endswith("Request"):  # what is sent: a field that is not known is refused
            schema["additionalProperties"] = False
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            _add_problems(path, method, operation)
    return result


def _add_problems(path: str, method: str, operation: dict[str, Any]) -> None:
    responses: dict[str, Any] = operation["responses"]
    is_for_members = bool(operation.get("security"))
    # What a view has named without a body is a problem that only it knows of.
    statuses = {int(code) for code, said in responses.items() if "content" not in said}
    statuses |= {400, 401, 406, 429, 500, 503} if is_for_members else {406, 500}
    if is_for_members and method != "get":
        statuses |= {403}
    if "{" in path or any(taken["name"] == "page" for taken in operation.get("parameters", [])):
        statuses |= {404}
    if "requestBody" in operation:
        statuses |= {413, 415}
    for status in statuses & KINDS.keys():
        if "content" not in responses.get(str(status), {}):
            responses[str(status)] = {"$ref": f"#/components/responses/{KINDS[status].name}"}
    if is_for_members and method == "get":
        responses["304"] = {"description": "Nothing has changed, as `If-None-Match` says."}
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
            "title": text | {"description": "The kind in words."},
            "status": {"type": "integer"},
            "detail": text | {"description": "What happened this time."},
            "instance": text | {"description": "The address that was asked for."},
            "errors": {
                "type": "object",
                "description": "By field, what is wrong with it and what to do.",
                "additionalProperties": {"type": "array", "items": text},
            },
        },
        "example": {
            "type": "/api/docs/problems/#invalid",
            "title": "The request is wrong",
            "status": 400,
            "detail": "current_batch_size: 0 is not possible here; give a whole number from 1 to "
            "65,536.",
            "instance": "/api/v1/analyses/",
            "errors": {
                "current_batch_size": [
                    "0 is not possible here; give a whole number from 1 to 65,536"
                ]
            },
        },
    }
