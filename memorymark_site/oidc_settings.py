"""What the environment says of single sign-on by OpenID Connect, checked; no Django model in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

_PREFIX = "MEMORYMARK_OIDC_"
_NEEDED = ("ISSUER", "CLIENT_ID", "CLIENT_SECRET")
_NEW = ("nobody", "viewer", "member")
_LONGEST_ISSUER = 200
"""Characters; what the column has in which a linked account names its provider."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class OidcSettings:
    """One provider of identities.

    Attributes:
        issuer: Its address, exactly as it calls itself.
        client_id: What it calls this site.
        client_secret: What this site proves that with.
        name: What the button on the sign-in page calls it.
        new: What somebody becomes who has no account: ``viewer``, ``member`` or ``nobody``.
    """

    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    name: str
    new: str


def from_environment(environment: Mapping[str, str]) -> OidcSettings | None:
    """The provider that the environment names; ``None`` where it names none.

    Raises:
        ImproperlyConfigured: Something is missing or wrong.
    """
    given = {
        name.removeprefix(_PREFIX): value.strip()
        for name, value in environment.items()
        if name.startswith(_PREFIX) and value.strip()
    }
    if not given:
        return None
    missing = [f"{_PREFIX}{name}" for name in _NEEDED if name not in given]
    if missing:
        raise ImproperlyConfigured(
            f"single sign-on lacks {', '.join(missing)}; set all of "
            f"{', '.join(_PREFIX + name for name in _NEEDED)}, or none"
        )
    new = given.get("NEW", "nobody").lower()
    if new not in _NEW:
        raise ImproperlyConfigured(
            f"{_PREFIX}NEW={new} is nothing that somebody new can become; give one of "
            f"{', '.join(_NEW)}. Admins are made by admins"
        )
    return OidcSettings(
        issuer=_checked(given["ISSUER"]),
        client_id=given["CLIENT_ID"],
        client_secret=given["CLIENT_SECRET"],
        name=given.get("NAME", "single sign-on"),
        new=new,
    )


def is_safe(url: object) -> bool:
    """Whether what is sent there stays secret on its way: over HTTPS, or on this machine."""
    if not isinstance(url, str):
        return False
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    )


def _checked(issuer: str) -> str:
    if not is_safe(issuer) or len(issuer) > _LONGEST_ISSUER:
        raise ImproperlyConfigured(
            f"{_PREFIX}ISSUER={issuer} is not the address of a provider; give one such as "
            f"https://login.lab.example/realms/lab, of at most {_LONGEST_ISSUER} characters"
        )
    return issuer
