"""How a script signs in to the API."""

from typing import Any

from knox.auth import TokenAuthentication as KnoxTokenAuthentication
from rest_framework.exceptions import AuthenticationFailed

from memorymark_site.accounts.tokens import note_use


class TokenAuthentication(KnoxTokenAuthentication):  # type: ignore[misc]  # knox has no types
    """``Authorization: Token mm_…``, refusing bytes that no token has before they are decoded."""

    def authenticate_credentials(self, token: bytes) -> tuple[Any, Any]:
        """The member and the token.

        Raises:
            AuthenticationFailed: If there is no such token.
        """
        if not (token.isascii() and token.replace(b"_", b"").isalnum()):
            raise AuthenticationFailed("Invalid token.")
        found: tuple[Any, Any] = super().authenticate_credentials(token)
        note_use(found[1])
        return found
