"""The site's own middleware: headers, login, second factors, roles."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import (
    HttpRequest,
    HttpResponseBase,
    HttpResponseNotAllowed,
    HttpResponseRedirect,
)
from django.shortcuts import render, resolve_url
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from memorymark_site.accounts import second_factors
from memorymark_site.accounts.roles import has_role, needed, refusal


class PrivateMiddleware:
    """Has no response kept, unless a view says otherwise.

    Without ``Cache-Control``, a proxy may cache a member's page by its own rules and show it to the
    next one, and a browser shows it to anyone who goes back after the member has signed out.
    ``Cross-Origin-Resource-Policy`` keeps other sites from loading files from here.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-store")
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


class NotAPageMiddleware:
    """Explains a 405 to a person, whom the browser would show an error page of its own.

    One gets there by signing in again after the session expired before a button was selected.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        is_bare = isinstance(response, HttpResponseNotAllowed) and not response.content
        if not is_bare or request.method != "GET" or not request.accepts("text/html"):
            return response
        page = render(request, "405.html", status=405)
        page["Allow"] = response["Allow"]
        return page


class HtmxLoginRedirectMiddleware:
    """Sends the whole page to the login page when an htmx request meets an expired session.

    Otherwise the browser follows the redirect and htmx swaps the login form into the page. It
    stands before ``LoginRequiredMiddleware``, whose response it rewrites.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response, with a redirect to the login page turned into one that htmx follows."""
        response = self.get_response(request)
        htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
        target = urlsplit(response.headers.get("Location", "")).path
        if not htmx or response.status_code != 302 or target != resolve_url(settings.LOGIN_URL):
            return response
        return HttpResponseClientRedirect(redirect_to_login(_page(htmx)).url)


def _page(htmx: HtmxDetails) -> str:
    """The page in the browser, not the requested fragment."""
    try:
        return htmx.current_url_abs_path or settings.LOGIN_REDIRECT_URL
    except ValueError:  # the browser sent no address
        return settings.LOGIN_REDIRECT_URL


class LoginUnlessOpenMiddleware(LoginRequiredMiddleware):
    """Requires login, without reading the session for views that are open to all.

    Django's own reads it first, so for a signed-in browser ``/health`` would fail just when the
    database is down.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        if not getattr(view_func, "login_required", True):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class _BeforeViews:
    """Middleware that acts before the view and leaves the response alone."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self.get_response(request)


class SecondFactorMiddleware(_BeforeViews):
    """Enforces the lab's rule for second factors on pages that need a login.

    For the API, :class:`memorymark_site.accounts.tokens.FactorAsRuled` does.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        _view_args: tuple[Any, ...],
        _view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """A redirect to the account page for members who lack a factor."""
        if not getattr(view_func, "login_required", True) or second_factors.is_open_without_factor(
            view_func
        ):
            return None
        if not second_factors.lacks_factor(request.user):
            return None
        htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
        address = reverse("accounts:account")
        return HttpResponseClientRedirect(address) if htmx else HttpResponseRedirect(address)


class RoleMiddleware(_BeforeViews):
    """Enforces the role that each view needs; see :mod:`memorymark_site.accounts.roles`.

    It skips views that need no login here: those open to all, and the API's, which authenticate
    members themselves.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        _view_args: tuple[Any, ...],
        _view_kwargs: dict[str, Any],
    ) -> None:
        """Check the role.

        Raises:
            PermissionDenied: With what is missing.
        """
        if not getattr(view_func, "login_required", True):
            return
        role = needed(view_func, request.method)
        if not has_role(request.user, role):
            raise PermissionDenied(refusal(role))
