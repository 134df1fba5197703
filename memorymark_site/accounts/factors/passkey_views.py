"""Passkeys: added, renamed, removed, and signing in with one, alone or after the password."""

from __future__ import annotations

from typing import Any

from allauth.mfa.webauthn import views
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse_lazy

from memorymark_site.accounts import throttle
from memorymark_site.accounts.bounded import too_many
from memorymark_site.accounts.factors.passkeys import passkeys_work, where_they_work
from memorymark_site.accounts.factors.views import after_adding, note_added, note_removed


class AddPasskey(views.AddWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Takes a passkey that the browser has made, and a name for it."""

    template_name = "accounts/add_passkey.html"

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """The form; or where to go, since here the browser would make none."""
        if not passkeys_work(request):
            context = {"address": where_they_work(request)}
            return render(request, "accounts/no_passkeys.html", context)
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it, with recovery codes where there are none."""
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            what = f"passkey {form.cleaned_data['name']}"
            note_added(self.request, what, with_codes=self.did_generate_recovery_codes)
        return response

    def get_success_url(self) -> str:
        """The recovery codes, where they are new."""
        return after_adding(with_codes=self.did_generate_recovery_codes)


class RenamePasskey(views.EditWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Another name for it."""

    template_name = "accounts/rename_passkey.html"
    success_url = reverse_lazy("accounts:account")


class RemovePasskey(views.RemoveWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Takes one of one's own away."""

    template_name = "accounts/remove_factor.html"
    success_url = reverse_lazy("accounts:account")

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With what it is called."""
        return {**super().get_context_data(**kwargs), "what": f"the {_name(self.object)}"}

    def form_valid(self, form: Any) -> HttpResponse:
        """Remove it."""
        what = _name(self.object)
        with transaction.atomic():
            response: HttpResponse = super().form_valid(form)
            note_removed(self.request, what)
        return response


class PasskeyAgain(views.ReauthenticateWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Asks for a passkey before something that an open browser must not be enough for."""

    template_name = "accounts/confirm_passkey.html"

    def form_invalid(self, form: Any) -> HttpResponse:
        """Say what is wrong, and let the member try again."""
        messages.error(self.request, _wrong(form))
        return redirect(self.request.get_full_path())

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With whether it can work here."""
        context = super().get_context_data(**kwargs)
        return {**context, "passkeys_work": passkeys_work(self.request)}


class SignInByPasskey(views.LoginWebAuthnView):  # type: ignore[misc]  # allauth has no types
    """Signs in with a passkey alone: it is held by a device that has asked who is there."""

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """What the passkey is to sign, noted in a session."""
        if seconds := throttle.take(throttle.of_beginning(request)):
            return too_many(request, seconds)
        response: HttpResponse = super().get(request, *args, **kwargs)
        return response


def _name(authenticator: Any) -> str:
    return f"passkey {authenticator.wrap().name}"


def _wrong(form: Any) -> str:
    return " ".join(str(error) for errors in form.errors.values() for error in errors)
