"""Who may change what: pure questions about a user and a thing, for pages and API alike.

What a whole page needs stands with its view: see :mod:`memorymark_site.accounts.roles`.
"""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User

from analyses.models import Analysis, SavedView
from memorymark_site.accounts.roles import Role, has_role


def may_see_lab(user: User | AnonymousUser) -> bool:
    """Whether this user sees what the lab has: everybody does who has a role in it."""
    return has_role(user, Role.VIEWER)


def may_work(user: User | AnonymousUser) -> bool:
    """Whether this user may submit analyses, label them, save views."""
    return has_role(user, Role.MEMBER)


def may_administer(user: User | AnonymousUser) -> bool:
    """Whether this user may change what holds for the whole lab."""
    return has_role(user, Role.ADMIN)


def may_change(user: User | AnonymousUser, analysis: Analysis) -> bool:
    """Whether this user may cancel, adopt, share or delete it: its owner may, and an admin."""
    return may_administer(user) or (analysis.owner_id == user.pk and may_work(user))


def may_delete_view(user: User | AnonymousUser, view: SavedView) -> bool:
    """Whether the saved view is the user's own, or the user is an admin who may see it."""
    own = view.owner_id == user.pk and may_work(user)
    return own or (view.is_shared and may_administer(user))
