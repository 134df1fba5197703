"""Signing in, signing out, and the set-up page of a new lab."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from memorymark_site.accounts import setup_link, throttle
from memorymark_site.accounts.forms import AccountForm
from memorymark_site.accounts.roles import Role, refusal

_CLOSED = "MemoryMark is set up already, so this link has done its work. Sign in instead."
_WRONG = "This set-up link is not the newest one. Use the link printed by the last start."


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class LoginView(DjangoLoginView):
    """The login page; members who are signed in already go on."""

    template_name = "accounts/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Look at the password, unless there have been too many wrong ones."""
        if seconds := throttle.take(self._limits()):
            context = self.get_context_data(
                form=AuthenticationForm(request, initial={"username": self._name()}),
                minutes=-(-seconds // 60),
            )
            headers = {"Retry-After": str(seconds)}
            return self.render_to_response(context, status=429, headers=headers)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Sign in."""
        throttle.was_right(self._limits())
        return super().form_valid(form)

    def _limits(self) -> list[throttle.Limit]:
        return throttle.of_sign_in(self.request, self._name())

    def _name(self) -> str:
        return self.request.POST.get("username", "")


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
        login(request, user)
        return redirect("/")
    return render(request, "accounts/setup.html", {"form": form})


def _closed(request: HttpRequest) -> HttpResponse:
    reason = _WRONG if setup_link.is_open() else _CLOSED
    return render(request, "404.html", {"exception": reason}, status=404)
