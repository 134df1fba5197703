"""allauth's OpenID Connect client, with ID tokens verified.

allauth trusts an ID token because it comes over TLS, and prefers the unsigned user info. Here the
token's signature, issuer, audience, times and nonce are checked, and user info counts only if it is
about the same subject.
"""

from __future__ import annotations

import time
from typing import Any

import jwt
from allauth.socialaccount.adapter import get_adapter
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from memorymark_site.accounts.identities import Identity
from memorymark_site.environment import OidcSettings
from memorymark_site.variable_types import is_safe

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Signatures with a public key; one with the client's secret proves nothing to others."""

_TOLD = ("email", "email_verified", "preferred_username")
"""Claims taken from user info; some providers write ``"true"`` for true."""

_LEEWAY_SECONDS = 60.0
"""Accepted difference between the provider's clock and ours."""

RECENT_SECONDS = 600.0
"""Maximum age of the provider's sign-in when members have to confirm who they are."""


class Client(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth has no types
    """Fetches from the provider, and verifies.

    Attributes:
        state: Stored when the browser was sent to the provider.
    """

    state: dict[str, Any]

    @property
    def openid_config(self) -> dict[str, Any]:
        """The provider's own description.

        Raises:
            OAuth2Error: It is another provider's, or names an address without TLS.
        """
        described: dict[str, Any] = super().openid_config
        if described.get("issuer") != self.provider_id:
            raise OAuth2Error(f"it calls itself {described.get('issuer')}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not is_safe(described.get(name)):
                raise OAuth2Error(f"its {name} is not an https address")
        return described

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """The address the provider sends the browser back to."""
        return request.build_absolute_uri(reverse("accounts:sso-callback"))

    def complete_login(
        self, request: HttpRequest, app: SocialApp, token: Any, **kwargs: Any
    ) -> Any:
        """The verified identity, as allauth has it.

        Raises:
            OAuth2Error: The provider's answer is not valid.
        """
        claims = self._claims(app, kwargs["response"].get("id_token"))
        if not claims.get("email") and is_safe(self.openid_config.get("userinfo_endpoint")):
            told = self._fetch_user_info(token.token)
            if told.get("sub") != claims["sub"]:
                raise OAuth2Error("its user info is about someone else")
            claims |= {name: told.get(name) for name in _TOLD}
        # allauth lower-cases it, which beyond ASCII can turn it into someone else's address
        is_plain = str(claims.get("email")).isascii()
        claims["email_verified"] = is_plain and claims.get("email_verified") in (True, "true")
        return self.get_provider().sociallogin_from_response(request, {"id_token": claims})

    def _claims(self, app: SocialApp, id_token: object) -> dict[str, Any]:
        """The verified claims of the ID token."""
        if not isinstance(id_token, str):
            raise OAuth2Error("it has sent no ID token")
        try:
            claims: dict[str, Any] = jwt.decode(
                id_token,
                key=self._key(jwt.get_unverified_header(id_token)),
                algorithms=list(_ALGORITHMS),
                issuer=self.provider_id,
                audience=app.client_id,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat", "nonce"]},
            )
        except jwt.PyJWTError as error:
            raise OAuth2Error(f"its ID token is not valid: {error}") from error
        if claims["nonce"] != self.state.get("nonce"):
            raise OAuth2Error("its ID token belongs to another sign-in")
        if claims.get("azp", app.client_id) != app.client_id:
            raise OAuth2Error("its ID token was issued to another client")
        if self.state.get("anew") and not _is_recent(claims.get("auth_time")):
            raise OAuth2Error("it did not ask for the sign-in again")
        return claims

    def _key(self, header: dict[str, Any]) -> Any:
        """The provider's public key that the token names."""
        with get_adapter().get_requests_session() as session:
            response = session.get(self.openid_config["jwks_uri"])
            response.raise_for_status()
        keys = [
            key
            for key in jwt.PyJWKSet.from_dict(response.json()).keys
            if key.public_key_use in (None, "sig")
        ]
        named = [key for key in keys if key.key_id == header.get("kid")]
        if not named and "kid" not in header and len(keys) == 1:
            named = keys
        if not named:
            raise OAuth2Error("its ID token names no key that it has")
        return named[0]


class Provider(OpenIDConnectProvider):  # type: ignore[misc]  # allauth has no types
    """The lab's provider; nothing but the subject is stored."""

    oauth2_adapter_class = Client

    def extract_extra_data(self, data: dict[str, Any]) -> dict[str, Any]:
        return {}


class Callback(OAuth2CallbackView):  # type: ignore[misc]  # allauth has no types
    """Receives the browser back from the provider."""

    def _get_state(
        self, request: HttpRequest, provider: Provider
    ) -> tuple[dict[str, Any] | None, HttpResponse | None]:
        """The state stored at the start, which the ID token has to match."""
        state, response = super()._get_state(request, provider)
        self.adapter.state = state or {}
        return state, response


def app_of(oidc: OidcSettings) -> SocialApp:
    """The provider as allauth has it, named by its issuer, as linked identities are."""
    return SocialApp(
        provider=OpenIDConnectProvider.id,
        provider_id=oidc.issuer,
        name=oidc.name,
        client_id=oidc.client_id,
        secret=oidc.client_secret,
        settings={"server_url": oidc.issuer.rstrip("/"), "oauth_pkce_enabled": True},
    )


def identity_of(login: Any) -> Identity:
    """The identity in allauth's login."""
    verified = [address.email for address in login.email_addresses if address.verified]
    return Identity(
        issuer=login.account.provider,
        subject=login.account.uid,
        email=verified[0] if verified else "",
        name=login.user.username,
    )


def _is_recent(auth_time: object) -> bool:
    return isinstance(auth_time, int) and time.time() - auth_time < RECENT_SECONDS
