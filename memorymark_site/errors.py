"""What the site answers where no view did: a page, or under ``/api/`` problem details."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views import defaults

from analyses.api.problems import problem_page


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """A request that Django itself refuses."""
    if _is_of_api(request):
        return problem_page(request, 400, "This request cannot be read.")
    return defaults.bad_request(request, exception)


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """An address that leads nowhere."""
    if _is_of_api(request):
        return problem_page(request, 404, "There is nothing at this address; see /api/docs/")
    return defaults.page_not_found(request, exception)


def failed(request: HttpRequest) -> HttpResponse:
    """A fault of the site."""
    return problem_page(request, 500) if _is_of_api(request) else defaults.server_error(request)


def _is_of_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")
