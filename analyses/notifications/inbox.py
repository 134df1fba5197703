"""The inbox: what concerns a member, each about one analysis, until the member has read it."""

from __future__ import annotations

from collections.abc import Collection

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.db.models.functions import Now

from analyses.figures.columns import change_of, stored
from analyses.models import Analysis, Concern, InboxEntry, Mention, Status
from analyses.selectors import can_be_adopted
from engine.core.numbers import usd

MAX_COUNTED = 99
"""The badge counts no further."""

_OPEN = (Concern.DECISION, Concern.MENTION, Concern.ADVICE)
"""The kinds that ask for a decision, which an adoption makes."""


def entries_of(member: User) -> QuerySet[InboxEntry]:
    """A member's entries, newest first, with what their texts are made from."""
    found = InboxEntry.objects.filter(member=member)
    found = found.select_related("analysis__decided", "mention__by")
    return found.defer("analysis__request", "analysis__result", "analysis__decided__before")


def unread_of(member: User) -> QuerySet[InboxEntry]:
    return InboxEntry.objects.filter(member=member, read_at=None)


def count_unread(member: User) -> int:
    """Unread entries, up to one more than :data:`MAX_COUNTED`; read from an index."""
    return unread_of(member).order_by().values("pk")[: MAX_COUNTED + 1].count()


def sentence(entry: InboxEntry) -> str:
    """The content of an entry, in a sentence."""
    analysis = entry.analysis
    match entry.kind:
        case Concern.MENTION if entry.mention:
            worth = f"{usd(entry.mention.usd_per_year)} per year at assumed hours and prices"
            return f"{entry.mention.by.get_username()}: {entry.mention.change} would save {worth}."
        case Concern.DECISION:
            worth = f"{stored(analysis, 'speedup')} ({analysis.source})"
            if analysis.usd_per_year:
                worth += f", {usd(analysis.usd_per_year)} a year at assumed hours and prices"
            return f"{change_of(analysis)}: {worth}."
        case Concern.FAILED:
            return _failure(analysis)
        case _:
            return entry.text


def title(entry: InboxEntry) -> str:
    """The kind of an entry; of an analysis that ended without its own answer, how it ended."""
    if entry.kind == Concern.FAILED:
        return entry.analysis.outcome_label
    return str(entry.get_kind_display())


def _failure(analysis: Analysis) -> str:
    reason = analysis.failure_reason.split("\n")[0] or analysis.outcome_label
    return f"{reason} It fits with {change_of(analysis)}." if analysis.has_answer else reason


# What puts entries there


def note_mention(mention: Mention) -> InboxEntry:
    """Add a mention to the inbox of the analysis's owner."""
    return InboxEntry.objects.create(
        member_id=mention.analysis.owner_id,
        kind=Concern.MENTION,
        analysis=mention.analysis,
        mention=mention,
    )


def note_ended(analysis: Analysis) -> None:
    """Add an analysis that has ended, if its owner has something to decide."""
    if analysis.status in (Status.FAILED, Status.LOST):
        add(analysis, Concern.FAILED)
    else:
        note_decision(analysis)


def note_decision(analysis: Analysis) -> None:
    """Add a decision that waits; it stands for those of earlier analyses of the workload."""
    if not (analysis.has_gain and can_be_adopted(analysis)) or analysis.adopted_at:
        return
    if add(analysis, Concern.DECISION):
        earlier = unread_of(analysis.owner).filter(kind=Concern.DECISION)
        same = earlier.filter(analysis__workload_key=analysis.workload_key)
        same.exclude(analysis=analysis).update(read_at=Now())


def add(analysis: Analysis, kind: Concern, text: str = "") -> bool:
    """Add an entry for the owner of an analysis; false where there is one of this kind."""
    if not analysis.owner.is_active:
        return False
    _, is_new = InboxEntry.objects.get_or_create(
        member=analysis.owner,
        kind=kind,
        analysis=analysis,
        mention=None,
        defaults={"text": text[: InboxEntry.MAX_TEXT_LENGTH]},
    )
    return is_new


# What takes them off


def decided(analysis: Analysis) -> None:
    """Mark what waited for a decision on a workload as read, once one is adopted."""
    waiting = InboxEntry.objects.filter(
        analysis__workload_key=analysis.workload_key, kind__in=_OPEN, read_at=None
    )
    waiting.update(read_at=Now())


def seen(member: User, analysis: Analysis) -> None:
    """Mark a member's entries about an analysis as read, as the member looks at it."""
    if member.pk == analysis.owner_id:  # all entries are for owners: others need no query
        mark_read(member, list(unread_of(member).filter(analysis=analysis)))


def mark_read(member: User, entries: Collection[InboxEntry | int] | None = None) -> None:
    """Mark a member's entries as read.

    Args:
        member: Those of others are left alone.
        entries: The entries or their ids; ``None`` for all.
    """
    if entries is None:
        unread_of(member).update(read_at=Now())
    elif entries:  # a write would wait for other writers
        pks = [one.pk if isinstance(one, InboxEntry) else one for one in entries]
        unread_of(member).filter(pk__in=pks).update(read_at=Now())


def hand_over(analyses: Collection[int], member: User, heir: User) -> None:
    """Give a member's entries about these analyses to their new owner."""
    InboxEntry.objects.filter(analysis__in=analyses, member=member).update(member=heir)
