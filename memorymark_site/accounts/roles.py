"""The roles of the lab, and which of them a page needs: the one place that decides.

A viewer reads everything and changes nothing but personal settings; a member submits analyses and
changes their own; an admin changes everybody's, the lab's settings and the members. A view says by
:func:`needs` which role it takes. One that says nothing takes a viewer to look, and a member to do
something, so that a new view never lets a viewer change anything by mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.contrib.auth.models import AnonymousUser, User
from django.db import models

V = TypeVar("V", bound=Callable[..., object])

SAFE_METHODS = ("GET", "HEAD", "OPTIONS", "TRACE")
"""Those that change nothing, as HTTP has it."""

_MARK = "needs_role"


class Role(models.TextChoices):
    """What somebody is in the lab, the least first."""

    VIEWER = "viewer", "Viewer"
    MEMBER = "member", "Member"
    ADMIN = "admin", "Admin"

    def includes(self, other: Role) -> bool:
        """Whether who has this role may do all that the other one may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


def role_of(user: User | AnonymousUser) -> Role | None:
    """The role of a user; ``None`` where it has none: not signed in, or deactivated."""
    return stored_role(user) if isinstance(user, User) and user.is_active else None


def stored_role(user: User) -> Role:
    """The role that an account has whenever it is active."""
    if user.is_staff:
        return Role.ADMIN
    return Role.VIEWER if hasattr(user, "viewer") else Role.MEMBER


def has_role(user: User | AnonymousUser, role: Role) -> bool:
    """Whether the user has this role or a greater one."""
    own = role_of(user)
    return own is not None and own.includes(role)


def needs(role: Role) -> Callable[[V], V]:
    """Mark a view: this role and greater ones may use it, whatever the method.

    :class:`memorymark_site.middleware.RoleMiddleware` holds it. A view of the API has it as its
    attribute ``needs_role``, and :class:`memorymark_site.accounts.permissions.RoleAllows` holds it.
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
    """What to say to somebody who has not this role."""
    if role is Role.ADMIN:
        return "Only an admin of the lab may do this."
    return "Your account may look at everything and change nothing. Ask an admin for more."
