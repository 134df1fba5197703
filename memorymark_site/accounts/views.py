"""Signing in, signing out, and the set-up page of a new lab."""

from __future__ import annotations

from typing import Any

from allauth.account.internal.stagekit import clear_login
from allauth.account.views import LoginView
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_safe

from memorymark_site.accounts import setup_link, throttle
from memorymark_site.accounts.bounded import BoundedGuesses
from memorymark_site.accounts.entrance import check_passwords_sign_in, enter
from memorymark_site.accounts.factors.forms import SignInForm
from memorymark_site.accounts.factors.passkeys import passkeys_work
from memorymark_site.accounts.forms import AccountForm
from memorymark_site.accounts.roles import Role, needs, refusal
from memorymark_site.accounts.single_sign_on import identities

_CLOSED = "MemoryMark is set up already, so this link has done its work. Sign in instead."
_WRONG = "This set-up link is not the newest one. Use the link printed by the last start."


class SignIn(BoundedGuesses, LoginView):  # type: ignore[misc]  # allauth has no types
    """The sign-in page; members who are signed in already go on."""

    template_name = "accounts/login.html"
    form_class = SignInForm

    def limits(self) -> list[throttle.Limit]:
        """Of the account that is named, and of the address."""
        return throttle.of_sign_in(self.request, self.request.POST.get("login", ""))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With the ways in that there are."""
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {
            "passkeys_work": passkeys_work(self.request),
            "oidc": identities.provider(),
            "password_sign_in": settings.PASSWORD_SIGN_IN,
        }

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Look at the password, where passwords sign in at all."""
        check_passwords_sign_in()
        return super().post(request, *args, **kwargs)

    def _redirect_to_pending_stage(self, request: HttpRequest, stage: object) -> None:
        """Begin anew: who comes back from the page for a code may want another account."""
        clear_login(request)


@login_not_required
@require_safe
def admin_login(request: HttpRequest) -> HttpResponse:
    """The way into Django's admin site: the one login page, with all that guards it."""
    if request.user.is_authenticated:  # and no admin, or would not have come here
        raise PermissionDenied(refusal(Role.ADMIN))
    return redirect_to_login(request.GET.get("next", reverse("admin:index")))


@login_not_required
@never_cache
@sensitive_post_parameters("password1", "password2")
def setup(request: HttpRequest, token: str) -> HttpResponse:
    """Make the first admin of the lab and sign it in."""
    link = setup_link.find(token)
    if link is None:
        return _closed(request)
    form = AccountForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            user = setup_link.use(link, data["username"], data["email"], data["password1"])
        except setup_link.SetupClosed:
            return _closed(request)
        return enter(request, user)
    return render(request, "accounts/setup.html", {"form": form})


@needs(Role.ADMIN)
def admin_password(request: HttpRequest) -> HttpResponse:
    """A new password from within it: on the one page that counts guesses and notes the change."""
    return redirect("accounts:password")


def _closed(request: HttpRequest) -> HttpResponse:
    reason = _WRONG if setup_link.is_open() else _CLOSED
    return render(request, "404.html", {"exception": reason}, status=404)
