"""The page on which members make and revoke their API tokens."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_variables
from django.views.decorators.http import require_http_methods, require_POST

from memorymark_site.accounts import tokens
from memorymark_site.accounts.forms import TokenForm
from memorymark_site.accounts.roles import Role, needs


@needs(Role.VIEWER)
@never_cache  # it shows a new token, this once
@sensitive_variables("token")
@require_http_methods(["GET", "HEAD", "POST"])
def tokens_page(request: HttpRequest) -> HttpResponse:
    """One's tokens and the form of a new one.

    A new token is in the answer to the form itself: to keep it for a next page would be to store
    it. Sent twice, the form is refused, as there is a token of that name then.
    """
    member = cast(User, request.user)  # who is not signed in never gets here
    form = TokenForm(member, request.POST if request.method == "POST" else None)
    token = form.make() if form.is_bound and form.is_valid() else None
    context = {
        "form": TokenForm(member) if token else form,
        "token": token,
        "tokens": tokens.tokens_of(member),
        "now": timezone.now(),
        "nav": "tokens",
    }
    return render(request, "accounts/tokens.html", context)


@needs(Role.VIEWER)
@require_POST
def revoke(request: HttpRequest, token_key: str) -> HttpResponse:
    """End a token of one's own."""
    if tokens.revoke(cast(User, request.user), token_key):
        messages.success(request, f"The token {token_key}… is revoked: nothing can use it now.")
    else:
        messages.warning(request, f"You have no token {token_key}….")
    return redirect("accounts:tokens")
