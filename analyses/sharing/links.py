"""Making, finding and ending the links that show one analysis.

Who has the address sees the page, so a link is a key: its token has 256 random bits and is known
to nobody but whom it is given to, it always ends, and whoever may change the analysis can end it
sooner. It ends with the account of its maker too: a member who leaves takes no window along.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from analyses.lab.selectors import lab_settings
from analyses.models import Analysis, ShareLink, Status
from analyses.permissions import may_change
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

LIFETIMES_DAYS = (1, 7, 30, 90)
"""How long a link may work; none works for ever."""

_TOKEN_BYTES = 32


def sharing_allowed() -> bool:
    """Whether this instance has share links at all: by its settings, and by the lab's."""
    return bool(settings.SHARE_LINKS and lab_settings().sharing_allowed)


def can_be_shared(analysis: Analysis) -> bool:
    """Whether there is an answer to show; a final state never changes, nor does this."""
    return analysis.status == Status.SUCCEEDED


def may_share(user: User | AnonymousUser, analysis: Analysis) -> bool:
    """Whether this user may make and end links of the analysis: its owner, and an admin.

    Every member sees every analysis, but to show one to the world is for whose work it is.
    """
    return sharing_allowed() and can_be_shared(analysis) and may_change(user, analysis)


def make(analysis: Analysis, member: User, days: int) -> tuple[ShareLink, str]:
    """Make a link.

    Args:
        analysis: One that can be shared.
        member: Who makes it, and may.
        days: How long it works; one of :data:`LIFETIMES_DAYS`.

    Returns:
        The link and its token, which is known here and now only.

    Raises:
        ValueError: If the link would be of another lifetime, or show nothing.
    """
    if days not in LIFETIMES_DAYS or not can_be_shared(analysis):
        raise ValueError(f"no link of {days} days to {analysis}, which is {analysis.status}")
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    with transaction.atomic():
        link = ShareLink.objects.create(
            analysis=analysis,
            digest=_digest(token),
            created_by=member,
            expires_at=timezone.now() + timedelta(days=days),
        )
        audit.note(member, Action.SHARE_LINK_MADE, str(analysis), after=f"for {days} days")
    return link, token


def revoke(link: ShareLink, member: User) -> bool:
    """End a link now.

    Returns:
        Whether that changed anything.
    """
    with transaction.atomic():
        changed = bool(live_links().filter(pk=link.pk).update(revoked_at=Now()))
        if changed:
            audit.note(member, Action.SHARE_LINK_REVOKED, str(link.analysis))
    return changed


def live_links() -> QuerySet[ShareLink]:
    """The links that show something, by the database's clock."""
    return ShareLink.objects.filter(
        revoked_at__isnull=True,
        expires_at__gt=Now(),
        created_by__is_active=True,
        analysis__status=Status.SUCCEEDED,
    )


def links_of(analysis: Analysis) -> QuerySet[ShareLink]:
    """The live links of one analysis, the one that ends first at the top."""
    return live_links().filter(analysis=analysis).select_related("created_by")


def find(token: str) -> ShareLink | None:
    """The live link with this token, its analysis at hand; ``None`` for whatever reason."""
    if not sharing_allowed():
        return None
    return live_links().filter(digest=_digest(token)).select_related("analysis").first()


def note_seen(link: ShareLink) -> None:
    """Count that its page is shown."""
    seen = ShareLink.objects.filter(pk=link.pk)
    seen.update(times_seen=F("times_seen") + 1, last_seen_at=Now())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
