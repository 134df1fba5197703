"""What somebody does with an account of their own: accept, change the password, sign out."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views as auth
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from analyses.notifications.channels import sends_email
from memorymark_site.accounts import audit, invitations, reset_links, sessions, throttle
from memorymark_site.accounts.bounded import BoundedGuesses
from memorymark_site.accounts.entrance import check_passwords_sign_in, enter
from memorymark_site.accounts.factors.of_member import factors_of
from memorymark_site.accounts.factors.rule import lacks_factor, needs_no_factor
from memorymark_site.accounts.forms import AccountForm, ForgottenForm
from memorymark_site.accounts.models import Action
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.accounts.single_sign_on import identities

_ENDED = (
    "This invitation has been used or revoked, or its time is over. Ask an admin for a new one, or "
    "sign in if you have an account."
)


@login_not_required
@never_cache
@sensitive_post_parameters("password1", "password2")
@require_http_methods(["GET", "HEAD", "POST"])
def accept(request: HttpRequest, key: str) -> HttpResponse:
    """Make the account that one was invited to, and sign in."""
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
    return render(request, "404.html", {"exception": _ENDED}, status=404)


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_safe
def account(request: HttpRequest) -> HttpResponse:
    """One's account: role, password, second factors, and where one is signed in."""
    context = {
        "sessions": sessions.sessions_of(_member(request)),
        "current_key": request.session.session_key,
        "factors": factors_of(_member(request)),
        "lacks_factor": lacks_factor(request.user),
        "oidc": identities.provider(),
        "linked": identities.linked(_member(request)),
        "nav": "account",
    }
    return render(request, "accounts/account.html", context)


@needs_no_factor
@needs(Role.VIEWER)
@require_POST
def end_session(request: HttpRequest, pk: int) -> HttpResponse:
    """Sign out another browser."""
    if sessions.end(_member(request), pk):
        messages.success(request, "That browser is signed out.")
    else:
        messages.warning(request, "That session had ended already.")
    return redirect("accounts:account")


@needs_no_factor
@needs(Role.VIEWER)
@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """Sign out every other browser."""
    count = sessions.end_others(_member(request), request.session.session_key)
    messages.success(request, f"{count} other session{'' if count == 1 else 's'} ended.")
    return redirect("accounts:account")


class PasswordChange(BoundedGuesses, auth.PasswordChangeView):
    """A new password in place of the old; other browsers are signed out by it."""

    template_name = "accounts/password.html"
    success_url = reverse_lazy("accounts:account")

    def limits(self) -> list[throttle.Limit]:
        """As at sign-in: the old password is guessed here as well."""
        return throttle.of_sign_in(self.request, _member(self.request).username)

    def form_valid(self, form: Any) -> HttpResponse:
        """Store it."""
        user, old_key = _member(self.request), self.request.session.session_key
        with transaction.atomic():
            response = super().form_valid(form)
            sessions.note_new_key(user, old_key, self.request.session.session_key)
            sessions.end_all(user, but=self.request.session.session_key)
            audit.note(user, Action.PASSWORD_CHANGED, user.username)
        messages.success(self.request, "Your password is changed; other browsers are signed out.")
        return response


class Forgotten(auth.PasswordResetView):
    """Asks where to send the link for a new password; says whom to ask where nothing is sent."""

    template_name = "accounts/forgotten.html"
    form_class = ForgottenForm
    email_template_name = "accounts/reset.txt"
    subject_template_name = "accounts/reset_subject.txt"
    success_url = reverse_lazy("account_login")

    @method_decorator(login_not_required)
    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """The page, where passwords sign in at all."""
        check_passwords_sign_in()
        return super().dispatch(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """With whether anything can be sent at all."""
        return {**super().get_context_data(**kwargs), "sends_email": sends_email()}

    @property
    def extra_email_context(self) -> dict[str, str]:  # type: ignore[override]  # read, as Django does
        """Where the link leads: never to the host, or the port of it, that the request claims."""
        protocol, _, domain = settings.PUBLIC_URL.partition("://")
        return {"protocol": protocol, "domain": domain}

    def form_valid(self, form: Any) -> HttpResponse:
        """Send it, and say the same whether there is such an account or not."""
        if not sends_email():
            return self.form_invalid(form)
        if seconds := throttle.take(throttle.of_forgotten(self.request)):
            form.add_error(None, f"Too many in a short time. Wait {-(-seconds // 60)} min.")
            response = self.form_invalid(form)
            response.status_code, response["Retry-After"] = 429, str(seconds)
            return response
        messages.success(
            self.request, "If there is an account with this address, a link is on its way to it."
        )
        return super().form_valid(form)


class Reset(auth.PasswordResetConfirmView):
    """Sets a new password by a link that works once; see :mod:`.reset_links`."""

    template_name = "accounts/password.html"
    token_generator = reset_links.Tokens()
    success_url = reverse_lazy("account_login")

    def form_valid(self, form: SetPasswordForm[User]) -> HttpResponse:
        """Store it; whoever knew the old one is signed out."""
        user = cast(User, self.user)
        with transaction.atomic():
            response = super().form_valid(form)
            sessions.end_all(user)
            audit.note(user, Action.PASSWORD_CHANGED, user.username, after="by a link")
            throttle.forget(throttle.of_account(user.username))
        messages.success(self.request, "Your new password holds. Sign in with it.")
        return response


def _member(request: HttpRequest) -> User:
    return cast(User, request.user)  # nobody else gets past needs()
