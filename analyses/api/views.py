"""What every part of the API has: fields to choose, and versions to ask for."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import get_conditional_response, patch_cache_control, set_response_etag
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ListSerializer, Serializer

M = TypeVar("M", bound=Model)


class ApiView(GenericAPIView[M]):
    """A view whose answers have an ``ETag``, and of which ``?fields=`` chooses the fields.

    The ``ETag`` is that of the body, which saves sending it, unless the view has set one that is
    cheaper to come by.
    """

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[M]:
        """The serializer with the fields that the address asks for.

        Raises:
            ValidationError: It asks for one that there is not.
        """
        serializer = super().get_serializer(*args, **kwargs)
        one = serializer.child if isinstance(serializer, ListSerializer) else serializer
        wanted = fields_wanted(self.request)
        if wanted is not None and isinstance(one, Serializer):
            _choose(one, wanted)
        return serializer

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        """The response, or 304 where the client has it already."""
        final = super().finalize_response(request, response, *args, **kwargs)
        if request.method in ("GET", "HEAD") and final.status_code == 200:
            patch_cache_control(final, private=True, no_cache=True)
            final.add_post_render_callback(partial(_unless_known, request._request))
        return final


def fields_wanted(request: Request) -> set[str] | None:
    """The names in the address's ``fields``; ``None`` where all are wanted."""
    text = request.query_params.get("fields")
    if request.method not in ("GET", "HEAD") or text is None:
        return None
    return {name.strip() for name in text.split(",")}


def _choose(serializer: Serializer[Any], wanted: set[str]) -> None:
    known = list(serializer.fields)
    if unknown := sorted(wanted.difference(known)):
        raise ValidationError(
            {"fields": [f"unknown: {', '.join(unknown)}; known are {', '.join(known)}"]}
        )
    for name in known:
        if name not in wanted:
            serializer.fields.pop(name)


def not_modified(
    request: HttpRequest, etag: str | None, response: HttpResponse | None = None
) -> HttpResponseNotModified | None:
    """304 where the client has this version; other conditions are for writes, and not looked at."""
    answer = get_conditional_response(request, etag=etag, response=response)
    return answer if isinstance(answer, HttpResponseNotModified) else None


def _unless_known(request: HttpRequest, response: Response) -> HttpResponseNotModified | None:
    if not response.has_header("ETag"):
        set_response_etag(response)
    return not_modified(request, response["ETag"], response)
