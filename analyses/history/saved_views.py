"""Views of the history that members have saved: which there are, saving and deleting one."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q, QuerySet

from analyses.models import SavedView
from analyses.permissions import may_see_lab


def views_of(user: User | AnonymousUser) -> QuerySet[SavedView]:
    """The views this member may use: their own, and those that others share."""
    if not (user.is_authenticated and may_see_lab(user)):
        return SavedView.objects.none()
    return SavedView.objects.filter(Q(owner=user) | Q(is_shared=True)).select_related("owner")


def save(owner: User, name: str, query: str, *, is_shared: bool) -> SavedView:
    """Save a view, in place of the owner's view of the same name."""
    view, _ = SavedView.objects.update_or_create(
        owner=owner, name=name, defaults={"query": query, "is_shared": is_shared}
    )
    return view
