"""Middleware of our own."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import resolve_url
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from memorymark_site.accounts.factors import rule
from memorymark_site.accounts.roles import has_role, needed, refusal


class PrivateMiddleware:
    """Says of each answer that it is for whoever asked, where a view says nothing else.

    Without ``Cache-Control`` a proxy between the site and its members may keep a page by a rule of
    its own and show it to the next one; with ``Cross-Origin-Resource-Policy`` no other site has the
    browser of a member load a picture or a file from here.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response with both headers."""
        response = self.get_response(request)
        response.headers.setdefault("Cache-Control", "private, no-cache")
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        return response


class HtmxLoginRedirectMiddleware:
    """Sends the whole page to the login page when an htmx request meets an expired session.

    Without it, the browser follows the redirect on its own and htmx puts the login form into the
    middle of the page. Stands before ``LoginRequiredMiddleware``, whose answer it rewrites.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response, with a redirect to the login page turned into one htmx obeys."""
        response = self.get_response(request)
        htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
        target = urlsplit(response.headers.get("Location", "")).path
        if not htmx or response.status_code != 302 or target != resolve_url(settings.LOGIN_URL):
            return response
        return HttpResponseClientRedirect(redirect_to_login(_page(htmx)).url)


def _page(htmx: HtmxDetails) -> str:
    """The page the person was looking at, not the fragment it asked for."""
    try:
        return htmx.current_url_abs_path or settings.LOGIN_REDIRECT_URL
    except ValueError:  # what the browser sent is no address
        return settings.LOGIN_REDIRECT_URL


class LoginUnlessOpenMiddleware(LoginRequiredMiddleware):
    """Requires login everywhere, without looking up the session where a view is open to all.

    Django's own looks first, so that ``/health`` would fail for a signed-in browser in the very
    moment when the database is down.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """A redirect to the login page, or nothing."""
        if not getattr(view_func, "login_required", True):
            return None
        return super().process_view(request, view_func, view_args, view_kwargs)


class _BeforeViews:
    """Middleware that has a say before the view, and none in its response."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The response as it is."""
        return self.get_response(request)


class SecondFactorMiddleware(_BeforeViews):
    """Holds the lab's rule for second factors, where pages need a login at all.

    The API has :class:`memorymark_site.accounts.permissions.FactorAsRuled` for it.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        _view_args: tuple[Any, ...],
        _view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """A redirect to where one sets a factor up, for who lacks one; else nothing."""
        if not getattr(view_func, "login_required", True) or rule.is_open(view_func):
            return None
        if not rule.lacks_factor(request.user):
            return None
        htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
        address = reverse("accounts:account")
        return HttpResponseClientRedirect(address) if htmx else HttpResponseRedirect(address)


class RoleMiddleware(_BeforeViews):
    """Holds what :mod:`memorymark_site.accounts.roles` says each view needs.

    Views that are open to all, and those of the API, which looks up the member on its own, are
    not its business; they are those that need no login by this project's middleware either.
    """

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        _view_args: tuple[Any, ...],
        _view_kwargs: dict[str, Any],
    ) -> None:
        """Nothing, where the user has the role that the view needs.

        Raises:
            PermissionDenied: With what is missing.
        """
        if not getattr(view_func, "login_required", True):
            return
        role = needed(view_func, request.method)
        if not has_role(request.user, role):
            raise PermissionDenied(refusal(role))
