"""The work of a member who leaves, and its new owner."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet

from analyses.models import FINAL_STATUSES, Analysis, Job, SavedView, TrainingRun
from analyses.notifications import inbox
from analyses.savings.aggregation import recounting
from memorymark_site.accounts import members, tokens
from memorymark_site.accounts.roles import Role, has_role


class CannotTakeOver(Exception):
    """This account cannot have what is handed over."""


@dataclass(frozen=True)
class Holdings:
    """A member's possessions.

    Attributes:
        undecided: Analyses that somebody has to look after: not finished yet, or with a gain that
            nobody has adopted. They can be handed over, with the training runs reported to them.
        kept: The number of the other analyses, which stay the member's.
        shared_views: Views that the lab uses; they can be handed over.
        own_views: The number of views that nobody else sees.
        tokens: Names of API tokens that are deleted; programs that use them stop.
    """

    undecided: QuerySet[Analysis]
    kept: int
    shared_views: QuerySet[SavedView]
    own_views: int
    tokens: list[str]

    @property
    def can_be_handed_over(self) -> bool:
        return self.undecided.exists() or self.shared_views.exists()


def holdings_of(member: User) -> Holdings:
    own = Analysis.objects.filter(owner=member)
    open_ones = Q(adopted_at__isnull=True, has_gain=True) | ~Q(status__in=FINAL_STATUSES)
    undecided = own.filter(open_ones).order_by("-pk")
    views = SavedView.objects.filter(owner=member)
    return Holdings(
        undecided=undecided,
        kept=own.count() - undecided.count(),
        shared_views=views.filter(is_shared=True),
        own_views=views.filter(is_shared=False).count(),
        tokens=[token.name or f"{token.token_key}…" for token in tokens.tokens_of(member)],
    )


def heirs_of(member: User) -> QuerySet[User]:
    """The members who can take over, admins first."""
    others = User.objects.filter(is_active=True, viewer__isnull=True).exclude(pk=member.pk)
    return others.order_by("-is_staff", "username")


def leave(admin: User, member: User, heir: User | None) -> None:
    """Deactivate a member, and hand over what needs a decision; both or neither.

    Args:
        admin: Who does it.
        member: Who leaves.
        heir: Who takes over; ``None`` leaves everything as it is.

    Raises:
        CannotTakeOver: The heir is the member, or may not run analyses.
        LastAdmin: No admin would be left.
    """
    if heir is not None and (heir.pk == member.pk or not has_role(heir, Role.MEMBER)):
        raise CannotTakeOver
    said = ""
    with transaction.atomic():
        if heir is not None:
            said = _hand_over(member, heir)
        members.deactivate(admin, member, said)


def _hand_over(member: User, heir: User) -> str:
    """Hand over; returns what went to whom, for the audit."""
    found = holdings_of(member)
    pks = list(found.undecided.values_list("pk", flat=True))
    analyses = Analysis.objects.filter(pk__in=pks)
    with recounting(analyses):
        analyses.update(owner=heir)
        Job.objects.filter(analysis__in=pks).update(owner=heir)
        TrainingRun.objects.filter(analysis__in=pks, owner=member).update(owner=heir)
        inbox.hand_over(pks, member, heir)
    taken = set(SavedView.objects.filter(owner=heir).values_list("name", flat=True))
    views = list(found.shared_views)
    for view in views:
        view.owner, view.name = heir, _free_name(view.name, member.username, taken)
        view.save(update_fields=["owner", "name"])
        taken.add(view.name)
    counts = f"{len(pks)} analyses and {len(views)} shared views"
    return f"{counts} handed over to {heir.username}"


def _free_name(name: str, former: str, taken: set[str]) -> str:
    """The name of a view, with that of its former owner where the new one has such a view."""
    number = 1
    free = name
    while free in taken:
        suffix = f" ({former[:20]}{'' if number == 1 else f' {number}'})"
        free, number = f"{name[: SavedView.MAX_NAME_LENGTH - len(suffix)]}{suffix}", number + 1
    return free
