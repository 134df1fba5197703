"""The second step of signing in, showing once more who one is, and one's second factors."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.views import ReauthenticateView
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.base.views import ReauthenticateView as ReauthenticateByCodeView
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from django.contrib import messages
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse, reverse_lazy

from memorymark_site.accounts import audit, throttle
from memorymark_site.accounts.bounded import BoundedGuesses
from memorymark_site.accounts.factors.forms import PasswordAgainForm
from memorymark_site.accounts.factors.of_member import factors_of
from memorymark_site.accounts.factors.passkeys import passkeys_work
from memorymark_site.accounts.models import Action

APP = "authenticator app"


class SecondStep(BoundedGuesses, AuthenticateView):  # type: ignore[misc]  # allauth has no types
    """What comes after the password, where an account has a second factor."""

    template_name = "accounts/second_step.html"

    def limits(self) -> list[throttle.Limit]:
        """Of the account whose password was right."""
        return throttle.of_second_factor(self.stage.login.user)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With whether there is a passkey to use, and whether it can be used here."""
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {
            "has_passkeys": bool(factors_of(self.stage.login.user).passkeys),
            "passkeys_work": passkeys_work(self.request),
        }


class PasswordAgain(BoundedGuesses, ReauthenticateView):  # type: ignore[misc]  # allauth has no types
    """Asks for the password before something that an open browser must not be enough for."""

    template_name = "accounts/confirm.html"
    form_class = PasswordAgainForm

    def limits(self) -> list[throttle.Limit]:
        """As at sign-in."""
        return throttle.of_sign_in(self.request, member(self.request).username)


class CodeAgain(BoundedGuesses, ReauthenticateByCodeView):  # type: ignore[misc]  # allauth has no types
    """The same by a code."""

    template_name = "accounts/confirm.html"

    def limits(self) -> list[throttle.Limit]:
        """As at the second step of signing in."""
        return throttle.of_second_factor(member(self.request))


class AddApp(totp.ActivateTOTPView):  # type: ignore[misc]  # allauth has no types
    """Shows the key of an authenticator app, and takes the first code."""

    template_name = "accounts/app.html"

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it, with recovery codes where there are none."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_added(self.request, APP, with_codes=self.did_generate_recovery_codes)
        return response

    def get_success_url(self) -> str:
        """The recovery codes, where they are new."""
        return after_adding(with_codes=self.did_generate_recovery_codes)


class RemoveApp(totp.DeactivateTOTPView):  # type: ignore[misc]  # allauth has no types
    """Takes the authenticator app away."""

    template_name = "accounts/remove_factor.html"
    success_url = reverse_lazy("accounts:account")
    extra_context = {"what": f"the {APP}"}  # noqa: RUF012  # Django's own way to give it

    def form_valid(self, form: Any) -> HttpResponse:
        """Remove it."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_removed(self.request, APP)
        return response


class RecoveryCodes(recovery_codes.ViewRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """The codes that have not been used."""

    template_name = "accounts/recovery_codes.html"


class NewRecoveryCodes(recovery_codes.GenerateRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """New codes in place of the old ones."""

    template_name = "accounts/new_recovery_codes.html"

    def form_valid(self, form: Any) -> HttpResponse:
        """Make them."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            user = member(self.request)
            audit.note(user, Action.RECOVERY_CODES_MADE, user.username, before="the old ones end")
        return response


class DownloadRecoveryCodes(recovery_codes.DownloadRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """The same codes as a file."""

    template_name = "accounts/recovery_codes.txt"


def member(request: HttpRequest) -> User:
    """Who is signed in."""
    return cast(User, request.user)  # nobody else gets past needs()


def note_added(request: HttpRequest, what: str, *, with_codes: bool) -> None:
    """Note a new factor, and the recovery codes that came with it."""
    user = member(request)
    audit.note(user, Action.FACTOR_ADDED, user.username, after=what)
    if with_codes:
        audit.note(user, Action.RECOVERY_CODES_MADE, user.username)
    messages.success(request, f"The {what} is asked for from your next sign-in on.")


def note_removed(request: HttpRequest, what: str) -> None:
    """Note that a factor is gone."""
    user = member(request)
    audit.note(user, Action.FACTOR_REMOVED, user.username, before=what)
    messages.success(request, f"The {what} is removed.")


def after_adding(*, with_codes: bool) -> str:
    """Where to go with a new factor: to the recovery codes, where they are new too."""
    return reverse("mfa_view_recovery_codes" if with_codes else "accounts:account")
