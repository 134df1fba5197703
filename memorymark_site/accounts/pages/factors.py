"""Pages of second factors, and the addresses where passkeys work.

A passkey belongs to the name under which the site was opened. Browsers have them on pages that come
over HTTPS, or from this very machine by the name ``localhost``, and never under an IP address.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from allauth.account.views import ReauthenticateView
from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.base.views import ReauthenticateView as ReauthenticateByCodeView
from allauth.mfa.recovery_codes import views as recovery_codes
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy

from memorymark_site.accounts import audit, throttle
from memorymark_site.accounts.factor_forms import PasswordAgainForm
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.roles import member
from memorymark_site.accounts.second_factors import factors_of
from memorymark_site.accounts.throttle import BoundedGuesses, too_many
from memorymark_site.operations.prometheus import count_sign_in_failure

THIS_MACHINE = "localhost"


def passkeys_work(request: HttpRequest) -> bool:
    """Whether browsers offer passkeys at the address the site was opened at."""
    host = _opened_at(request).hostname or ""
    return host == THIS_MACHINE or (request.is_secure() and not _is_address(host))


def where_they_work(request: HttpRequest) -> str:
    """The same page at an address where they work; empty where that takes a certificate."""
    opened_at = _opened_at(request)
    host = opened_at.hostname or ""
    if not _is_address(host) or not ip_address(host).is_loopback:
        return ""
    port = f":{opened_at.port}" if opened_at.port else ""
    return f"http://{THIS_MACHINE}{port}{request.path}"


def _opened_at(request: HttpRequest) -> SplitResult:
    return urlsplit(f"//{request.get_host()}")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


APP = "authenticator app"


class SecondStep(BoundedGuesses, AuthenticateView):  # type: ignore[misc]  # allauth has no types
    """The code after the password."""

    template_name = "accounts/second_step.html"
    wrong = "wrong_code"

    def limits(self) -> list[throttle.Limit]:
        return throttle.of_second_factor(self.stage.login.user)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {
            "has_passkeys": bool(factors_of(self.stage.login.user).passkeys),
            "passkeys_work": passkeys_work(self.request),
        }


class PasswordAgain(BoundedGuesses, ReauthenticateView):  # type: ignore[misc]  # allauth has no types
    """Asks for the password again, before changes that an open browser must not suffice for."""

    template_name = "accounts/confirm.html"
    form_class = PasswordAgainForm

    def limits(self) -> list[throttle.Limit]:
        return throttle.of_sign_in(self.request, member(self.request).username)


class CodeAgain(BoundedGuesses, ReauthenticateByCodeView):  # type: ignore[misc]  # allauth has no types
    """Asks for a code again."""

    template_name = "accounts/confirm.html"
    wrong = "wrong_code"

    def limits(self) -> list[throttle.Limit]:
        return throttle.of_second_factor(member(self.request))


class AddApp(totp.ActivateTOTPView):  # type: ignore[misc]  # allauth has no types
    """Shows the key of a new authenticator app, and checks its first code."""

    template_name = "accounts/app.html"

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it, with recovery codes if there are none."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_added(self.request, APP, with_codes=self.did_generate_recovery_codes)
        return response

    def get_success_url(self) -> str:
        return after_adding(with_codes=self.did_generate_recovery_codes)


class RemoveApp(totp.DeactivateTOTPView):  # type: ignore[misc]  # allauth has no types
    """Removes the authenticator app."""

    template_name = "accounts/remove_factor.html"
    success_url = reverse_lazy("accounts:account")
    extra_context = {"what": f"the {APP}"}  # noqa: RUF012  # Django's own way to give it

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_removed(self.request, APP)
        return response


class RecoveryCodes(recovery_codes.ViewRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """The unused codes."""

    template_name = "accounts/recovery_codes.html"


class NewRecoveryCodes(recovery_codes.GenerateRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """Replaces the codes."""

    template_name = "accounts/new_recovery_codes.html"

    def form_valid(self, form: Any) -> HttpResponse:
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            user = member(self.request)
            audit.note(user, Action.RECOVERY_CODES_MADE, user.username, before="the old ones end")
        return response


class DownloadRecoveryCodes(recovery_codes.DownloadRecoveryCodesView):  # type: ignore[misc]  # allauth has no types
    """The same codes as a file."""

    template_name = "accounts/recovery_codes.txt"


def note_added(request: HttpRequest, what: str, *, with_codes: bool) -> None:
    """Audit a new factor, and the recovery codes created with it."""
    user = member(request)
    audit.note(user, Action.FACTOR_ADDED, user.username, after=what)
    if with_codes:
        audit.note(user, Action.RECOVERY_CODES_MADE, user.username)
    messages.success(request, f"You will need the {what} from your next sign-in on.")


def note_removed(request: HttpRequest, what: str) -> None:
    user = member(request)
    audit.note(user, Action.FACTOR_REMOVED, user.username, before=what)
    messages.success(request, f"The {what} was removed.")


def after_adding(*, with_codes: bool) -> str:
    """The next page: the recovery codes if they are new, else the account."""
    return reverse("mfa_view_recovery_codes" if with_codes else "accounts:account")


class AddPasskey(views.AddWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Stores a passkey that the browser created, and its name."""

    template_name = "accounts/add_passkey.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form, or where to go if browsers offer no passkeys here."""
        if not passkeys_work(request):
            context = {"address": where_they_work(request)}
            return render(request, "accounts/no_passkeys.html", context)
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it, with recovery codes if there are none."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            what = f"passkey {form.cleaned_data['name']}"
            note_added(self.request, what, with_codes=self.did_generate_recovery_codes)
        return response

    def get_success_url(self) -> str:
        return after_adding(with_codes=self.did_generate_recovery_codes)


class RenamePasskey(views.EditWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Renames a passkey."""

    template_name = "accounts/rename_passkey.html"
    success_url = reverse_lazy("accounts:account")


class RemovePasskey(views.RemoveWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Removes a passkey."""

    template_name = "accounts/remove_factor.html"
    success_url = reverse_lazy("accounts:account")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "what": f"the {_name(self.object)}"}

    def form_valid(self, form: Any) -> HttpResponse:
        what = _name(self.object)
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_removed(self.request, what)
        return response


class PasskeyAgain(views.ReauthenticateWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Asks for a passkey again."""

    template_name = "accounts/confirm_passkey.html"

    def form_invalid(self, form: Any) -> HttpResponse:
        messages.error(self.request, _wrong(form))
        return redirect(self.request.get_full_path())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        return {**context, "passkeys_work": passkeys_work(self.request)}


class SignInByPasskey(views.LoginWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Signs in with a passkey alone: its device has checked a fingerprint, face or PIN."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The challenge for the passkey to sign, kept in a new session."""
        if seconds := throttle.take(throttle.of_beginning(request)):
            return too_many(request, seconds)
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        count_sign_in_failure("wrong_passkey")
        response: HttpResponse = super().form_invalid(form)
        return response


def _name(authenticator: Any) -> str:
    return f"passkey {authenticator.wrap().name}"


def _wrong(form: Any) -> str:
    return " ".join(str(error) for errors in form.errors.values() for error in errors)
