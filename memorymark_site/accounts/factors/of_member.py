"""Second factors of members: an authenticator app, passkeys, and recovery codes for their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User

SECOND = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)
"""The kinds that are asked for at sign-in; recovery codes stand in for these."""


@dataclass(frozen=True)
class Factors:
    """What somebody has besides the password.

    Attributes:
        app: The authenticator app; ``None`` where there is none.
        passkeys: The oldest first.
        codes_left: Recovery codes that have not been used; ``None`` where none were made.
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
    """All of somebody's."""
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
    """Whether a sign-in of somebody takes more than the password."""
    return bool(Authenticator.objects.filter(user=user, type__in=SECOND).exists())
