"""Signing in, signing out, and the set-up page of a new lab."""

from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView as DjangoLoginView
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from memorymark_site.accounts import setup_link
from memorymark_site.accounts.forms import AccountForm

_CLOSED = "MemoryMark is set up already, so this link has done its work. Sign in instead."
_WRONG = "This set-up link is not the newest one. Use the link printed by the last start."


@method_decorator(require_http_methods(["GET", "HEAD", "POST"]), name="dispatch")
class LoginView(DjangoLoginView):
    """The login page; members who are signed in already go on."""

    template_name = "accounts/login.html"
    redirect_authenticated_user = True


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
