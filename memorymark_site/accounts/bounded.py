"""Views that take a guess of a secret: a password, a code. Each guess counts in the database."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from memorymark_site.accounts import throttle


class BoundedGuesses(ABC):
    """What stands before a form view whose form has a secret in it; see :mod:`.throttle`."""

    request: HttpRequest

    @abstractmethod
    def limits(self) -> Sequence[throttle.Limit]:
        """The limits of what is tried; the first is that of the account."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Look at the guess, unless there have been too many wrong ones."""
        if seconds := throttle.take(self.limits()):
            return too_many(request, seconds)
        response: HttpResponse = super().post(request, *args, **kwargs)  # type: ignore[misc]  # of the view
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        """Go on: it was right."""
        throttle.was_right(self.limits())
        response: HttpResponse = super().form_valid(form)  # type: ignore[misc]  # of the view
        return response


def too_many(request: HttpRequest, seconds: int) -> HttpResponse:
    """Say how long to wait."""
    response = render(request, "accounts/too_many.html", {"minutes": -(-seconds // 60)}, status=429)
    response["Retry-After"] = str(seconds)
    return response
