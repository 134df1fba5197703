"""Every read of a lookup: who may see which, and waiting for an answer."""

from __future__ import annotations

from time import monotonic, sleep

from django.contrib.auth.models import AnonymousUser
from django.contrib.auth.models import User as Member
from django.db.models import QuerySet

from analyses import selectors
from analyses.lookups.questions import lookup_question
from analyses.models import Ask, Lookup
from analyses.permissions import may_administer, may_see_lab
from engine.request import AnalysisRequest

_LOOK_EVERY_SECONDS = 0.03
_LONGEST_LOOK_SECONDS = 0.5

NOBODY_WORKS = (
    "No worker is online, so nothing is predicted now. Analyze works all the same: the analysis "
    "waits until a worker starts."
)


def visible_to(user: Member | AnonymousUser) -> QuerySet[Lookup]:
    """The lookups this user may see: their own, and an admin everybody's."""
    if may_administer(user):
        return Lookup.objects.all()
    if user.is_authenticated and may_see_lab(user):
        return Lookup.objects.filter(askers=user)
    return Lookup.objects.none()


def somebody_works() -> bool:
    """Whether a node is online, and so a desk."""
    return selectors.nodes_online().exists()


def wait_for(lookup: Lookup, seconds: float) -> None:
    """Wait until a lookup is final, or the time is over; it is fresh afterwards."""
    until = monotonic() + seconds
    pause = _LOOK_EVERY_SECONDS
    while not lookup.is_final and monotonic() < until:
        sleep(min(pause, max(0.0, until - monotonic())))
        pause = min(1.3 * pause, _LONGEST_LOOK_SECONDS)
        lookup.refresh_from_db()


def latest(member: Member, ask: Ask, request: AnalysisRequest) -> Lookup | None:
    """The latest lookup of a question, whoever has asked it.

    Where answers may change from one time to the next, only a member's own.
    """
    question = lookup_question(ask, request)
    alike = Lookup.objects.filter(ask=ask, question=question)
    if not question:
        alike = alike.filter(askers=member, request=request.to_dict())
    return alike.first()
