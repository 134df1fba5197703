"""Permissions to see and change things, for pages and API alike.

The role that a whole page needs is declared at its view; see :mod:`memorymark_site.accounts.roles`.
"""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User

from analyses.models import Analysis, SavedView
from memorymark_site.accounts.roles import Role, has_role


def may_see_lab(user: User | AnonymousUser) -> bool:
    return has_role(user, Role.VIEWER)


def may_work(user: User | AnonymousUser) -> bool:
    """Whether this user may submit and label analyses and save views."""
    return has_role(user, Role.MEMBER)


def may_administer(user: User | AnonymousUser) -> bool:
    """Whether this user may change the lab's settings and prices."""
    return has_role(user, Role.ADMIN)


def may_change(user: User | AnonymousUser, analysis: Analysis) -> bool:
    """Whether this user, its owner or an admin, may cancel, adopt, share or delete it."""
    return may_administer(user) or (analysis.owner_id == user.pk and may_work(user))


def may_delete_view(user: User | AnonymousUser, view: SavedView) -> bool:
    """Whether the view is the user's own, or shared and the user an admin."""
    own = view.owner_id == user.pk and may_work(user)
    return own or (view.is_shared and may_administer(user))
