"""The roles of lab members, and which role each view needs.

A viewer reads everything and changes only personal settings. A member also runs analyses and
changes their own. An admin also changes everyone's, the lab's settings and the members. A view
declares its role by :func:`needs`. Without it, safe methods need a viewer and others a member, so a
new view never lets viewers change anything by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from django.contrib.auth.models import AnonymousUser, User
from django.db import models
from django.http import HttpRequest

V = TypeVar("V", bound=Callable[..., object])

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Methods that change nothing."""

_MARK = "needs_role"


class Role(models.TextChoices):
    """Roles, from the least to the greatest."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMIN = "admin", "Admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do everything the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


def role_of(user: User | AnonymousUser) -> Role | None:
    """The role of a user; ``None`` if not signed in or deactivated."""
    return stored_role(user) if isinstance(user, User) and user.is_active else None


def stored_role(user: User) -> Role:
    """The role of an account while it is active."""
    if user.is_staff:
        return Role.ADMIN
    return Role.VIEWER if hasattr(user, "viewer") else Role.MEMBER


def has_role(user: User | AnonymousUser, role: Role) -> bool:
    """Whether the user has this role or a greater one."""
    own = role_of(user)
    return own is not None and own.includes(role)


def needs(role: Role) -> Callable[[V], V]:
    """Mark a view as open to this role and greater ones, whatever the method.

    :class:`memorymark_site.middleware.RoleMiddleware` enforces it for pages. API views have an
    attribute ``needs_role``, which :class:`memorymark_site.accounts.tokens.RoleAllows` enforces.
    """

    def mark(view: V) -> V:
        setattr(view, _MARK, role)
        return view

    return mark


def needed(view: object, method: str | None) -> Role:
    """The least role that may call a view by this method."""
    default = Role.VIEWER if method in SAFE_METHODS else Role.MEMBER
    role: Role = getattr(view, _MARK, default)
    return role


def refusal(role: Role) -> str:
    """The message for members without this role."""
    if role is Role.ADMIN:
        return "Only a lab admin can do this."
    return "Your account is read-only. Ask an admin to change your role."


def member(request: HttpRequest) -> User:
    """The signed-in member; only for views that need a login."""
    return cast(User, request.user)
