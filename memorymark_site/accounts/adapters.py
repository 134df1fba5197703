"""Adapters for django-allauth: who may sign in, what counts as recent, and our texts."""

from __future__ import annotations

import time
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.account.authentication import get_authentication_records
from allauth.account.internal.flows.reauthentication import get_reauthentication_flows
from allauth.core.exceptions import ImmediateHttpResponse, ReauthenticationRequired
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from allauth.socialaccount.providers.base.constants import AuthError
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from memorymark_site.accounts import devices, guessing, identities, networks
from memorymark_site.accounts.oidc import Provider, app_of, identity_of
from memorymark_site.accounts.pages import single_sign_on as sso

_NO_WAY = "Ask a lab admin for a link to set a password, and sign in with it first."
_LOCKED = "Your account is deactivated. Ask a lab admin."
_WAYS = {
    "mfa_reauthenticate": "Use a code from your authenticator app, or a recovery code",
    "mfa_reauthenticate:webauthn": "Use a passkey",
}


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Sign-in by user name."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "username_password_mismatch": "Wrong username or password. Both are case-sensitive.",
        "incorrect_password": "Wrong password.",
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Never: members come by invitation."""
        return False

    def is_safe_url(self, url: str) -> bool:
        """Whether a sign-in may redirect there: only to this site, by the name it was opened by."""
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={self.request.get_host()}, require_https=self.request.is_secure()
        )

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        """Say so; the password has shown that the account is theirs."""
        messages.error(request, _LOCKED)
        return redirect("account_login")

    def login(self, request: HttpRequest, user: User) -> None:
        """Sign in, and warn members whose password someone has guessed at since the last time."""
        last_time = user.last_login
        super().login(request, user)
        if guessing.was_guessed_at(user, last_time):
            messages.warning(request, guessing.AT_SIGN_IN)

    def post_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse:
        """Make browser and network known, whichever way it has signed in."""
        response: HttpResponse = super().post_login(request, user, **kwargs)
        devices.remember(request, response, user.username)
        networks.remember(request)
        return response

    def is_reauthentication_required(self, *, app: str, **_more: object) -> bool:
        """Whether the last sign-in or confirmation is too long ago.

        allauth's own rule does not count the sign-in.
        """
        user = self.request.user
        records = get_authentication_records(self.request, user)
        oldest = time.time() - settings.ACCOUNT_REAUTHENTICATION_TIMEOUT
        if any(record["at"] > oldest for record in records):
            return False
        if not get_reauthentication_flows(user):  # allauth would let them pass
            if not self.get_reauthentication_methods(user):
                raise PermissionDenied(_NO_WAY)
            raise ReauthenticationRequired
        return True

    def get_reauthentication_methods(self, user: User) -> list[dict[str, str]]:
        """The ways to confirm, with our labels and single sign-on."""
        ways = super().get_reauthentication_methods(user)
        oidc = identities.provider()
        if oidc and user.is_authenticated and identities.linked(user):
            url = reverse("accounts:sso")
            ways.append({"id": "sso", "description": f"Use {oidc.name}", "url": url})
        return [way | {"description": _WAYS.get(way["id"], way["description"])} for way in ways]

    def add_message(
        self, request: HttpRequest, level: int, *args: Any, message: str | None = None, **kw: Any
    ) -> None:
        """Pass on errors; our own views report success."""
        if message:
            super().add_message(request, level, message=message)


class SignOnAdapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Single sign-on with the lab's one provider."""

    def get_provider(
        self, request: HttpRequest, provider: str, client_id: str | None = None
    ) -> Provider:
        oidc = identities.provider()
        if oidc is None:
            raise PermissionDenied("Single sign-on isn't set up here.")
        return Provider(request, app=app_of(oidc))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Never: :func:`.identities.member_for` has decided who may join."""
        return False

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        """Find or link the account; allauth then signs in to it, second factor included."""
        identity = identity_of(sociallogin)
        if pk := sociallogin.state.get("member"):
            raise ImmediateHttpResponse(sso.finish_link(request, identity, pk))
        try:
            if digest := sociallogin.state.get("invitation"):
                sociallogin.user = identities.join(digest, identity)
            else:
                sociallogin.user = identities.member_for(identity)
        except identities.Refused as why:
            raise ImmediateHttpResponse(sso.refused(request, str(why))) from why

    def on_authentication_error(
        self,
        request: HttpRequest,
        provider: Provider,
        error: str = AuthError.UNKNOWN,
        exception: Exception | None = None,
        extra_context: object = None,
    ) -> None:
        """Explain on a page of ours."""
        raise ImmediateHttpResponse(sso.failed(request, error=error, exception=exception))


class FactorAdapter(DefaultMFAAdapter):  # type: ignore[misc]  # allauth has no types
    """Second factors: their names, here and on the member's device.

    The secret of an authenticator app is stored in the clear, since it has to be used. Encrypted
    with ``SECRET_KEY``, a new key or a backup restored elsewhere would lock the whole lab out.
    """

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": "Wrong or already used. Try a new one.",
    }

    def get_totp_label(self, user: User) -> str:
        return user.get_username()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """The host name, which a passkey belongs to, and our name."""
        return {**super().get_public_key_credential_rp_entity(), "name": "MemoryMark"}

    def get_public_key_credential_user_entity(self, user: User) -> dict[str, Any]:
        """The user name, which distinguishes several accounts."""
        entity: dict[str, Any] = super().get_public_key_credential_user_entity(user)
        return entity | {"name": user.get_username(), "display_name": user.get_username()}

    def generate_authenticator_name(self, user: User, type: Authenticator.Type) -> str:
        """A number, if no name is given."""
        count = Authenticator.objects.filter(user=user, type=type).count()
        return f"no. {count + 1}"
