"""Shared parts of all endpoints: member, body, ``?fields=``, ``?wait=``, ``ETag`` and pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from threading import BoundedSemaphore
from time import monotonic, sleep
from typing import Any, TypeVar, cast

from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import get_conditional_response, patch_cache_control, set_response_etag
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.generics import GenericAPIView
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ListSerializer, Serializer

from analyses.bodies import storable
from analyses.jobs.plans import Awaited, awaited
from analyses.models import FINAL_STATUSES, Analysis
from analyses.selectors import exact_count, slice_of
from engine.core.errors import InvalidInput

M = TypeVar("M", bound=Model)

MAX_WAIT_SECONDS = 60.0
FIRST_PAUSE_SECONDS = 0.03
MAX_PAUSE_SECONDS = 1.0

seats = BoundedSemaphore(2)
"""Places for waiting scripts among a process's four threads; the others serve pages."""


class ApiView(GenericAPIView[M]):
    """A view whose responses have an ``ETag``, and whose fields ``?fields=`` selects.

    The ``ETag`` is computed from the body, unless the view has set a cheaper one.
    """

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[M]:
        """Serializer of the selected fields only; :exc:`ValidationError` if one is unknown."""
        serializer = super().get_serializer(*args, **kwargs)
        one = serializer.child if isinstance(serializer, ListSerializer) else serializer
        wanted = selected_fields(self.request)
        if wanted is not None and isinstance(one, Serializer):
            _select(one, wanted)
        return serializer

    def finalize_response(
        self, request: Request, response: Response, *args: Any, **kwargs: Any
    ) -> Response:
        final = super().finalize_response(request, response, *args, **kwargs)
        if request.method in ("GET", "HEAD") and final.status_code == 200:
            patch_cache_control(final, private=True, no_cache=True)
            final.add_post_render_callback(partial(_not_modified_after_render, request._request))
        return final


def member_of(request: Request) -> User:
    user = request.user
    assert isinstance(user, User)  # noqa: S101  # IsAuthenticated let it through
    return user


def body_of(request: Request) -> Mapping[str, Any]:
    """The fields in the body; :exc:`ValidationError` if it is not a JSON object."""
    if not isinstance(request.data, Mapping):
        raise ValidationError({"non_field_errors": ["send one JSON object with the fields"]})
    return request.data


def refusal(error: InvalidInput) -> ValidationError:
    """The response to invalid input: 400 with a list of messages for each wrong field."""
    return ValidationError(
        {storable(name): [storable(text)] for name, text in error.fields.items()}
    )


def selected_fields(request: Request) -> set[str] | None:
    """The names in ``?fields=``; ``None`` selects all."""
    text = request.query_params.get("fields")
    if request.method not in ("GET", "HEAD") or text is None:
        return None
    return {name.strip() for name in text.split(",")}


def _select(serializer: Serializer[Any], wanted: set[str]) -> None:
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
    """304 if the client has this version; conditions for writes are ignored."""
    answer = get_conditional_response(request, etag=etag, response=response)
    return answer if isinstance(answer, HttpResponseNotModified) else None


def _not_modified_after_render(
    request: HttpRequest, response: Response
) -> HttpResponseNotModified | None:
    if not response.has_header("ETag"):
        set_response_etag(response)
    return not_modified(request, response["ETag"], response)


def seconds_to_wait(request: Request, default: float = 0.0) -> float:
    """The seconds in ``?wait=``; :exc:`ValidationError` if they are invalid."""
    text = request.query_params.get("wait")
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise ValidationError({"wait": [f"enter seconds from 0 to {MAX_WAIT_SECONDS:.0f}"]})
    return seconds


def wait_until(is_over: Callable[[], bool], seconds: float) -> None:
    """Return when it is over or the time is up; at once if too many requests wait already.

    Polls often at first and then less: a warm engine answers within a second or two, a measurement
    takes minutes.
    """
    if seconds <= 0 or not seats.acquire(blocking=False):
        return
    try:
        until, pause = monotonic() + seconds, FIRST_PAUSE_SECONDS
        while not is_over() and (left := until - monotonic()) > 0:
            sleep(min(pause, left))
            pause = min(1.3 * pause, MAX_PAUSE_SECONDS)
    finally:
        seats.release()


def wait_for_decision(pk: int, seconds: float) -> None:
    """Wait until an analysis has ended and no plan may change its decision, or it was deleted.

    A plan that no worker online can take is not waited for.
    """
    wait_until(lambda: _is_decided(pk), seconds)


def _is_decided(pk: int) -> bool:
    if Analysis.objects.filter(pk=pk).exclude(status__in=FINAL_STATUSES).exists():
        return False
    analysis = Analysis.objects.filter(pk=pk).defer("result", "recipe").first()
    return analysis is None or awaited(analysis) in (None, Awaited.WORKER)


class PagesByIds(Paginator[Analysis]):
    """Finds the ids of a page first, so that the long JSON of skipped rows is not read."""

    @cached_property
    def count(self) -> int:
        return exact_count(cast("QuerySet[Analysis]", self.object_list))

    def page(self, number: int | str) -> Page[Analysis]:
        valid = self.validate_number(number)
        analyses = cast("QuerySet[Analysis]", self.object_list)
        first = (valid - 1) * self.per_page
        ids = slice_of(analyses, first, first + self.per_page).ids
        return Page(analyses.filter(pk__in=ids), valid, self)


class Pages(PageNumberPagination):
    """Pages of 50 rows, or of ``?page_size=``."""

    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 200
    invalid_page_message = "There is no such page; read it without page to see how many rows are."

    def get_page_size(self, request: Request) -> int | None:
        text = request.query_params.get("page_size")
        if text is None:
            return self.page_size
        if text.isascii() and text.isdigit() and len(text) < 9:
            size = int(text)
            if 1 <= size <= self.max_page_size:
                return size
        raise ValidationError({"page_size": [f"enter a number from 1 to {self.max_page_size}"]})

    def get_schema_operation_parameters(self, _view: object) -> list[dict[str, Any]]:
        """None: views list :data:`PAGE`, which is more precise."""
        return []


PAGE = (
    OpenApiParameter("page", OpenApiTypes.INT, description="Page number, from 1."),
    OpenApiParameter(
        "page_size",
        {"type": "integer", "minimum": 1, "maximum": Pages.max_page_size},
        description="Rows per page; 50 if left out.",
    ),
)


class AnalysisPages(Pages):
    """Pages of analyses."""

    django_paginator_class = PagesByIds
