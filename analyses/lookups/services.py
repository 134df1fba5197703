"""Every write to a lookup, and so its life.

::

    waiting ──> running ──> answered | failed
       │           └──────> waiting (its desk was stopped or vanished; another one goes on)
       └──────────────────> dropped (nobody looks at the page any more that asked)

A desk holds a lookup by a token, as a worker holds an analysis: one that was given up for lost can
change nothing any more.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.db.models.functions import Now

from analyses import pace
from analyses.engine_events import Failure
from analyses.lookups.questions import lookup_question
from analyses.models import SHARED, Ask, Lookup, LookupStatus, Node
from engine.request import AnalysisRequest

WANTED_FOR = timedelta(seconds=10)
"""So long after a page has last asked, it is taken to be gone; it asks several times a second."""

KEPT_FOR = timedelta(days=settings.LOOKUPS_KEPT_DAYS)
"""After the last time somebody asked."""

MOST_TRIES = 2
"""A lookup that has taken two desks with it is not given to a third."""

LOST = "worker_lost"
_CANDIDATES = 5


@dataclass(frozen=True)
class Hold:
    """A desk's hold on a running lookup."""

    pk: int
    token: str
    request: Mapping[str, object]


def put(member: User, ask: Ask, request: AnalysisRequest, *, for_page: bool = False) -> Lookup:
    """Ask something, or join those who have asked the same: an answer that is known is there.

    Args:
        member: Who asks.
        ask: What.
        request: About what; on a GPU that can be predicted.
        for_page: Whether only a page wants to know: then it is dropped when the page has gone. A
            page's newer prediction takes the place of its older ones that still wait.
    """
    question = lookup_question(ask, request)
    with transaction.atomic():
        lookup = None
        while lookup is None:  # a second time only if somebody else has asked the same just now
            lookup = _join(question, for_page) or _new(ask, question, request, for_page)
        lookup.askers.add(member)
        if for_page and ask == Ask.PREDICT:
            _drop_older(member, lookup)
    return lookup


def _join(question: str, for_page: bool) -> Lookup | None:
    if not question:
        return None
    alike = Lookup.objects.filter(question=question, status__in=SHARED)
    stays = {} if for_page else {"for_pages": False}
    # A conditional update locks the row, so that it is not dropped before the asker stands in it.
    return alike.first() if alike.update(asked_at=Now(), **stays) else None


def _new(ask: Ask, question: str, request: AnalysisRequest, for_page: bool) -> Lookup | None:
    try:
        with transaction.atomic():
            return Lookup.objects.create(
                ask=ask, question=question, request=request.to_dict(), for_pages=for_page
            )
    except IntegrityError:
        return None


def _drop_older(member: User, newer: Lookup) -> None:
    """Take a member's earlier questions back; those that somebody else asked too stay."""
    older = Lookup.objects.filter(
        askers=member, ask=Ask.PREDICT, for_pages=True, status=LookupStatus.WAITING
    ).exclude(pk=newer.pk)
    for lookup in list(older.select_for_update(of=("self",)).order_by("pk")):
        if not lookup.askers.exclude(pk=member.pk).exists():
            _move(Lookup.objects.filter(pk=lookup.pk), LookupStatus.WAITING, LookupStatus.DROPPED)


def still_wanted(lookup: Lookup) -> None:
    """Note that a page still waits for the answer."""
    Lookup.objects.filter(pk=lookup.pk, status=LookupStatus.WAITING).update(asked_at=Now())


def take(ask: Ask, node: str) -> Hold | None:
    """Take the next lookup that waits: one that somebody looks for first, else the oldest.

    Returns:
        ``None`` where there is none, and where the node takes nothing new.
    """
    seen = Q(for_pages=False) | Q(asked_at__gte=Now() - WANTED_FOR)
    waiting = Lookup.objects.filter(seen, status=LookupStatus.WAITING, ask=ask)
    first = waiting.order_by("-for_pages", "pk").values_list("pk", flat=True)[:_CANDIDATES]
    candidates = list(first)
    if not candidates or Node.objects.filter(name=node, draining=True).exists():
        return None
    token = uuid.uuid4().hex
    for pk in candidates:
        this = Lookup.objects.filter(pk=pk)
        held = {"claim_token": token, "node": node, "taken_at": Now(), "heartbeat_at": Now()}
        more = {"tries": F("tries") + 1, "progress": ""}
        if _move(this, LookupStatus.WAITING, LookupStatus.RUNNING, **held, **more):
            return Hold(pk, token, this.values_list("request", flat=True).get())
    return None


def beat(hold: Hold, progress: str) -> bool:
    """Say that it is still worked on, and how far it is; whether it still is this desk's."""
    return bool(_held(hold).update(heartbeat_at=Now(), progress=progress))


def answer(hold: Hold, body: Mapping[str, object]) -> bool:
    """Store the answer; whether the lookup was still this desk's."""
    return bool(_move(_held(hold), LookupStatus.RUNNING, LookupStatus.ANSWERED, answer=body))


def fail(hold: Hold, failure: Failure) -> bool:
    """Store why there is none; whether the lookup was still this desk's."""
    told = _told(failure)
    return bool(_move(_held(hold), LookupStatus.RUNNING, LookupStatus.FAILED, failure=told))


def give_back(hold: Hold) -> None:
    """Let another desk take it; that this one has to stop does not count as a try."""
    _move(_held(hold), LookupStatus.RUNNING, LookupStatus.WAITING, tries=F("tries") - 1)


def release(node: str) -> None:
    """Let what a node's desk before this one left behind be taken at once."""
    _lose(Lookup.objects.filter(status=LookupStatus.RUNNING, node=node))


def let_go() -> int:
    """Take all lookups from their desks, which are another instance's; returns how many."""
    return _move(
        Lookup.objects.all(), LookupStatus.RUNNING, LookupStatus.WAITING, claim_token="", tries=0
    )


def recover() -> None:
    """Put right what was left behind; any node may do it at any time, as often as it likes."""
    running = Lookup.objects.filter(status=LookupStatus.RUNNING)
    _lose(running.filter(heartbeat_at__lt=Now() - pace.SILENT_AFTER))
    gone = Lookup.objects.filter(for_pages=True, asked_at__lt=Now() - WANTED_FOR)
    _move(gone, LookupStatus.WAITING, LookupStatus.DROPPED)
    old = Lookup.objects.filter(asked_at__lt=Now() - KEPT_FOR)
    old.exclude(status=LookupStatus.RUNNING).delete()


def _lose(left: QuerySet[Lookup]) -> None:
    """Give lookups to another desk, or up if they were lost too often."""
    reason = (
        f"The worker stopped {MOST_TRIES} times without finishing this: its process was killed, or "
        "the machine was switched off. An analysis may still succeed; it says more where it fails."
    )
    told = _told(Failure(LOST, reason))
    _move(
        left.filter(tries__gte=MOST_TRIES),
        LookupStatus.RUNNING,
        LookupStatus.FAILED,
        failure=told,
    )
    _move(left, LookupStatus.RUNNING, LookupStatus.WAITING, claim_token="")


def _told(failure: Failure) -> dict[str, object]:
    return {"code": failure.code, "reason": failure.message, "fields": dict(failure.fields)}


def _held(hold: Hold) -> QuerySet[Lookup]:
    return Lookup.objects.filter(pk=hold.pk, claim_token=hold.token, status=LookupStatus.RUNNING)


def _move(
    lookups: QuerySet[Lookup], start: LookupStatus, end: LookupStatus, **values: object
) -> int:
    """One conditional update: of several who try the same at once, one succeeds."""
    return lookups.filter(status=start).update(status=end, **values)
