"""Addresses of the API that there are not."""

from __future__ import annotations

from django.http import HttpResponseBase, HttpResponsePermanentRedirect
from django.urls import Resolver404, resolve
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.views import APIView

ANYTHING = "<path:address>"


class _SameAgain(HttpResponsePermanentRedirect):
    """A redirect that keeps method and body; Django's own would make a ``GET`` of a ``POST``."""

    status_code = 308


class Elsewhere(APIView):
    """Nothing is here; an address that lacks its last slash, or has one too many, is put right."""

    schema = None

    def answer(self, request: Request, address: str) -> HttpResponseBase:
        """Where to go instead, or that there is nothing."""
        path = request.path
        other = path.removesuffix("/") if path.endswith("/") else f"{path}/"
        if not _leads_somewhere(other):
            raise NotFound("There is nothing at this address; /api/docs/ lists what there is.")
        query = request.META.get("QUERY_STRING", "")
        return _SameAgain(f"{other}?{query}" if query else other)

    get = post = put = patch = delete = answer


def _leads_somewhere(path: str) -> bool:
    try:
        found = resolve(path)
    except Resolver404:
        return False
    return getattr(found.func, "view_class", None) is not Elsewhere
