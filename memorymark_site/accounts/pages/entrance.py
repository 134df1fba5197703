"""The pages for people who are not signed in: sign-in, set-up, invitation, password reset."""

from __future__ import annotations

from typing import Any, cast

from allauth.account.internal.flows.login import record_authentication
from allauth.account.internal.stagekit import clear_login
from allauth.account.utils import perform_login
from allauth.account.views import LoginView
from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse, reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from memorymark_site.accounts import (
    audit,
    guessing,
    identities,
    invitations,
    links,
    mail,
    networks,
    sessions,
    throttle,
)
from memorymark_site.accounts.factor_forms import SignInForm
from memorymark_site.accounts.forms import AccountForm, ForgottenForm
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.pages.factors import passkeys_work
from memorymark_site.accounts.roles import Role, needs, refusal
from memorymark_site.accounts.throttle import BoundedGuesses

_CLOSED = "MemoryMark is already set up. Sign in instead."
_ENDED = (
    "This invitation has expired, was revoked or was already used. Ask an admin for a new one, or "
    "sign in if you have an account."
)
_WRONG = "This is not the latest set-up link. Use the one printed when the site last started."


def enter(request: HttpRequest, user: User) -> HttpResponse:
    """Sign in someone who has just chosen a password; returns the redirect."""
    record_authentication(request, user, method="password")
    response: HttpResponse = perform_login(request, user, redirect_url="/")
    return response


def link_ended(request: HttpRequest, why: str) -> HttpResponse:
    """The page of a link that no longer works; ``why`` also says what to do."""
    context = {"heading": "This link no longer works", "exception": why}
    return render(request, "404.html", context, status=404)


def check_passwords_sign_in() -> None:
    """Refuse passwords where the lab signs in with its provider only.

    Raises:
        PermissionDenied: Passwords don't sign in.
    """
    if not settings.PASSWORD_SIGN_IN:
        raise PermissionDenied("Password sign-in is disabled here. Go back and choose another way.")


class SignIn(BoundedGuesses, LoginView):  # type: ignore[misc]  # allauth has no types
    """The sign-in page; members who are already signed in are redirected."""

    template_name = "accounts/login.html"
    form_class = SignInForm

    def limits(self) -> list[throttle.Limit]:
        return throttle.of_sign_in(self.request, self.request.POST.get("login", ""))

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context_data(**kwargs)
        return context | {
            "passkeys_work": passkeys_work(self.request),
            "oidc": identities.provider(),
            "password_sign_in": settings.PASSWORD_SIGN_IN,
        }

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Check the password, if passwords sign in at all."""
        check_passwords_sign_in()
        response = super().post(request, *args, **kwargs)
        name = request.POST.get("login", "")
        if any(map(throttle.is_full, throttle.of_account(name, networks.address_of(request)))):
            guessing.tell(name)
        return response

    def _redirect_to_pending_stage(self, request: HttpRequest, stage: object) -> None:
        """Start again: someone who comes back from the code page may want another account."""
        clear_login(request)


@login_not_required
@require_safe
def admin_login(request: HttpRequest) -> HttpResponse:
    """Send the admin site's sign-in to ours, which counts guesses and asks for second factors."""
    if request.user.is_authenticated:  # but no admin, or they would not be here
        raise PermissionDenied(refusal(Role.ADMIN))
    return redirect_to_login(request.GET.get("next", reverse("admin:index")))


@login_not_required
@never_cache
@sensitive_post_parameters("password1", "password2")
def setup(request: HttpRequest, token: str) -> HttpResponse:
    """Create the first admin, and sign in."""
    link = invitations.find_setup_link(token)
    if link is None:
        return _closed(request)
    form = AccountForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            user = invitations.use_setup_link(
                link, data["username"], data["email"], data["password1"]
            )
        except invitations.SetupClosed:
            return _closed(request)
        return enter(request, user)
    return render(request, "accounts/setup.html", {"form": form})


@needs(Role.ADMIN)
def admin_password(request: HttpRequest) -> HttpResponse:
    """Send the admin site's password change to ours, which counts guesses and is audited."""
    return redirect("accounts:password")


def _closed(request: HttpRequest) -> HttpResponse:
    reason = _WRONG if invitations.setup_is_open() else _CLOSED
    return link_ended(request, reason)


@login_not_required
@never_cache
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def accept(request: HttpRequest, key: str) -> HttpResponse:
    """Create the account of an invited member, and sign in."""
    invitation = invitations.find(key)
    if invitation is None:
        return _ended(request)
    if request.method == "POST":
        check_passwords_sign_in()
    form = AccountForm(request.POST or None, initial={"email": invitation.email})
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        try:
            user = invitations.accept(
                invitation, data["username"], data["email"], data["password1"]
            )
        except invitations.InvitationEnded:
            return _ended(request)
        return enter(request, user)
    context = {
        "form": form,
        "role": Role(invitation.role),
        "key": key,
        "oidc": identities.provider(),
        "password_sign_in": settings.PASSWORD_SIGN_IN,
    }
    return render(request, "accounts/accept.html", context)


def _ended(request: HttpRequest) -> HttpResponse:
    return link_ended(request, _ENDED)


class Forgotten(auth.PasswordResetView):
    """Sends a password reset link; names the people to ask where e-mail is not set up."""

    template_name = "accounts/forgotten.html"
    form_class = ForgottenForm
    email_template_name = "accounts/reset.txt"
    subject_template_name = "accounts/reset_subject.txt"
    success_url = reverse_lazy("account_login")

    @method_decorator(login_not_required)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page, if passwords sign in at all."""
        check_passwords_sign_in()
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return {**super().get_context_data(**kwargs), "sends_email": mail.sends_email()}

    @property
    def extra_email_context(self) -> dict[str, str]:  # type: ignore[override]  # read, as Django does
        """The host of the link, never taken from the request, which can claim any."""
        protocol, _, domain = settings.PUBLIC_URL.partition("://")
        return {"protocol": protocol, "domain": domain}

    def form_valid(self, form: Any) -> HttpResponse:
        """Send it, with the same response whether or not an account has the address."""
        if not mail.sends_email():
            return self.form_invalid(form)
        if seconds := throttle.take(throttle.of_forgotten(self.request)):
            form.add_error(None, f"Too many requests. Wait {-(-seconds // 60)} min.")
            response = self.form_invalid(form)
            response.status_code, response["Retry-After"] = 429, str(seconds)
            return response
        messages.success(self.request, "If an account uses this address, we have sent it a link.")
        return super().form_valid(form)


class Reset(auth.PasswordResetConfirmView):
    """Sets a new password by a link that works once; see :mod:`.links`."""

    template_name = "accounts/password.html"
    token_generator = links.ResetTokens()
    success_url = reverse_lazy("account_login")

    def form_valid(self, form: SetPasswordForm[User]) -> HttpResponse:
        """Store it and end all sessions: someone else may have known the old one."""
        user = cast(User, self.user)
        with transaction.atomic():
            response = super().form_valid(form)
            sessions.end_all(user)
            audit.note(user, Action.PASSWORD_CHANGED, user.username, after="by a link")
            throttle.forget(user.username)
        messages.success(self.request, "Your password was changed. Sign in with the new one.")
        return response
