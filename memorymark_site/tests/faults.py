"""The site's addresses, and one for each error page, under ``/faults/``.

The errors are raised by views, so each page comes by the way that a real one would.
"""

from __future__ import annotations

from typing import Never

from django import db
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import BadRequest, DisallowedHost, RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.urls import path

from memorymark_site import urls
from memorymark_site.operations import downloads, error_pages

handler400, handler404, handler500 = urls.handler400, urls.handler404, urls.handler500

RAISED = {
    "invalid": BadRequest("Choose another month."),
    "unknown-host": DisallowedHost("secret"),
    "too-large": RequestDataTooBig("secret"),
    "failure": RuntimeError("secret"),
    "away": db.OperationalError("secret"),
}
"""By the end of the address.

What they answer with is in :mod:`.fault_statuses`, which needs no settings.
"""


@login_not_required
def fault(request: HttpRequest, name: str) -> Never:
    raise RAISED[name]


@login_not_required
def busy(request: HttpRequest) -> HttpResponse:
    return downloads.refusal(request)


@login_not_required
def form_expired(request: HttpRequest) -> HttpResponse:
    return error_pages.form_expired(request)


urlpatterns = [
    *urls.urlpatterns,
    path("faults/busy/", busy),
    path("faults/form-expired/", form_expired),
    *(
        path(f"{start}faults/{name}/", fault, {"name": name})
        for name in RAISED
        for start in ("", "api/")
    ),
]
