"""Pages on which one changes the e-mail address of one's account."""

from __future__ import annotations

import logging

from allauth.account.decorators import reauthentication_required
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from analyses.notifications.channels import sends_email
from memorymark_site.accounts import address as addresses
from memorymark_site.accounts import mail, throttle
from memorymark_site.accounts.bounded import too_many
from memorymark_site.accounts.factors.rule import needs_no_factor
from memorymark_site.accounts.factors.views import member
from memorymark_site.accounts.forms import AddressForm
from memorymark_site.accounts.roles import Role, needs

logger = logging.getLogger(__name__)

_ENDED = (
    "This link has been used, its time is over, or it is for another account than the one that is "
    "signed in. Ask for a new one on the page Account."
)


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@reauthentication_required  # type: ignore[untyped-decorator]  # allauth has no types
def ask(request: HttpRequest) -> HttpResponse:
    """Take a new address and send a link to it; an empty one is taken away at once."""
    user = member(request)
    form = AddressForm(user, request.POST if request.method == "POST" else None)
    if request.method == "POST" and sends_email() and form.is_valid():
        return _asked(request, user, form)
    return _page(request, form)


@needs_no_factor
@needs(Role.VIEWER)
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def confirm(request: HttpRequest, token: str) -> HttpResponse:
    """What the link leads to: shows the address, and takes it."""
    user = member(request)
    try:
        new = addresses.read(token, user)
        if request.method != "POST":
            context = {"new": new, "nav": "account"}
            return render(request, "accounts/confirm_address.html", context)
        before = addresses.change(token, user)
    except addresses.LinkEnded:
        return render(request, "404.html", {"exception": _ENDED}, status=404)
    _tell_the_old_one(user, before, new)
    messages.success(request, f"Your e-mail address is {new} now.")
    return redirect("accounts:account")


def _page(request: HttpRequest, form: AddressForm) -> HttpResponse:
    context = {"form": form, "sends_email": sends_email(), "nav": "account"}
    return render(request, "accounts/address.html", context)


def _asked(request: HttpRequest, user: User, form: AddressForm) -> HttpResponse:
    new, before = form.cleaned_data["email"], user.email
    if not new:
        addresses.remove(user)
        _tell_the_old_one(user, before, "none")
        messages.success(request, "Your account has no e-mail address any more.")
        return redirect("accounts:account")
    if seconds := throttle.take([throttle.of_new_address(user)]):
        return too_many(request, seconds)
    path = reverse("accounts:confirm-address", args=[addresses.token_for(user, new)])
    context = {"user": user, "new": new, "address": settings.PUBLIC_URL + path}
    text = render_to_string("accounts/address.txt", context)
    try:
        mail.send("Your e-mail address on MemoryMark", text, new)
    except mail.NotSent as why:
        form.add_error(None, f"The mail server did not take it: {why}. Nothing has changed.")
        return _page(request, form)
    messages.success(request, f"Open the link that is on its way to {new}: it holds from then on.")
    return redirect("accounts:account")


def _tell_the_old_one(user: User, before: str, new: str) -> None:
    """Tell whoever reads the old address, so that a change they did not make does not pass by."""
    if not before:
        return
    text = render_to_string("accounts/address_changed.txt", {"user": user, "new": new})
    try:
        mail.send("Your e-mail address on MemoryMark has changed", text, before)
    except mail.NotSent as why:
        logger.warning("the change of an address was not told to the old one: %s", why)
