"""Second factors of members, and the lab's rule for who must have one.

The rule applies to browsers, on pages and in the API. API tokens are random keys that nobody can
guess or reuse like a password, so they need no second factor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User

SECOND = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""The kinds asked for at sign-in; recovery codes replace them."""


@dataclass(frozen=True)
class Factors:
    """A member's second factors.

    Attributes:
        app: The authenticator app, if any.
        passkeys: Oldest first.
        codes_left: Unused recovery codes; ``None`` if none were created.
    """

    app: Any
    passkeys: list[Any]
    codes_left: int | None

    def __bool__(self) -> bool:
        return bool(self.app or self.passkeys)

    def __str__(self) -> str:
        app = ["authenticator app"] if self.app else []
        return ", ".join([*app, *(f"passkey {key.wrap().name}" for key in self.passkeys)])


def factors_of(user: User) -> Factors:
    stored = list(Authenticator.objects.filter(user=user).order_by("pk"))

    def of(kind: str) -> list[Any]:
        return [authenticator for authenticator in stored if authenticator.type == kind]

    codes = of(Authenticator.Type.RECOVERY_CODES)
    return Factors(
        app=next(iter(of(Authenticator.Type.TOTP)), None),
        passkeys=of(Authenticator.Type.WEBAUTHN),
        codes_left=len(codes[0].wrap().get_unused_codes()) if codes else None,
    )


def has_factor(user: User) -> bool:
    """Whether signing in takes more than the password."""
    return bool(Authenticator.objects.filter(user=user, type__in=SECOND).exists())


V = TypeVar("V", bound=Callable[..., object])

FACTOR_MISSING = "Your lab requires a second factor. Set one up on your account page first."

_MARK = "needs_no_factor"


def lacks_factor(user: User | AnonymousUser) -> bool:
    """Whether the lab requires a factor that the user lacks; no query where it requires none."""
    if settings.REQUIRE_MFA == "none" or not isinstance(user, User):
        return False
    if settings.REQUIRE_MFA == "admins" and not user.is_staff:
        return False
    return not has_factor(user)


def needs_no_factor(view: V) -> V:
    """Mark a view for setting a factor up or signing out: open to members who lack one."""
    setattr(view, _MARK, True)
    return view


def is_open_without_factor(view: object) -> bool:
    return bool(getattr(view, _MARK, False))
