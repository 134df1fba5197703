"""What one does with several analyses at once: which they are, and what deleting them takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser, User

from analyses.history.labels import TAGGINGS
from analyses.models import FINAL_STATUSES, Analysis, LogLine, Note, ShareLink, Trial
from analyses.permissions import may_change
from analyses.savings.counting import counted_anew
from analyses.selectors import visible_to
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

MOST_SELECTED = 200
"""Analyses in one selection: more than anybody ticks, and few enough for one statement."""


class BadSelection(Exception):
    """An address does not name analyses that one can select; the message says which."""


@dataclass(frozen=True)
class Deletion:
    """What would be deleted.

    Attributes:
        gone: The analyses that go.
        kept: Those that stay, each with the reason.
        trials: How many go with their analyses; as the next ones.
    """

    gone: list[Analysis]
    kept: list[tuple[Analysis, str]]
    trials: int
    log_lines: int
    notes: int
    tags: int
    share_links: int


def ids_from(text: str) -> list[int]:
    """The numbers in a text such as ``1,2,3``, each once, in their order.

    Raises:
        BadSelection: It names none or too many, or something else than numbers.
    """
    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    wrong = [word for word in words if not (word.isascii() and word.isdigit() and len(word) < 19)]
    if wrong:
        raise BadSelection(f"“{wrong[0][:20]}” is no number of an analysis.")
    if not words:
        raise BadSelection("Select one analysis or more first.")
    if len(words) > MOST_SELECTED:
        raise BadSelection(f"These are {len(words)} analyses; select at most {MOST_SELECTED}.")
    return list(dict.fromkeys(map(int, words)))


def selected(user: User | AnonymousUser, ids: Sequence[int]) -> list[Analysis]:
    """The analyses with these numbers, in their order.

    Raises:
        BadSelection: Some are not there, or the user may not see them.
    """
    found = visible_to(user).defer("result").in_bulk(list(ids))
    missing = [str(pk) for pk in ids if pk not in found]
    if missing:
        verb = "is no analysis" if len(missing) == 1 else "are no analyses"
        raise BadSelection(f"There {verb} {', '.join(missing)}.")
    return [found[pk] for pk in ids]


def deletion_of(user: User, analyses: Iterable[Analysis]) -> Deletion:
    """What deleting the analyses takes, as far as the user may."""
    reasons = {analysis: _reason_to_keep(user, analysis) for analysis in analyses}
    kept = [(analysis, reason) for analysis, reason in reasons.items() if reason]
    gone = [analysis for analysis, reason in reasons.items() if not reason]
    return Deletion(
        gone=gone,
        kept=kept,
        trials=Trial.objects.filter(analysis__in=gone).count(),
        log_lines=LogLine.objects.filter(analysis__in=gone).count(),
        notes=Note.objects.filter(analysis__in=gone).count(),
        tags=TAGGINGS.filter(analysis__in=gone).count(),
        share_links=ShareLink.objects.filter(analysis__in=gone).count(),
    )


def delete(analyses: Sequence[Analysis], member: User) -> None:
    """Delete analyses that have ended, with all that belongs to them.

    A final state is never left, so no worker can hold one of them.
    """
    pks = [analysis.pk for analysis in analyses]
    ended = Analysis.objects.filter(pk__in=pks, status__in=FINAL_STATUSES)
    with counted_anew(ended):
        for analysis in ended.select_related("owner").defer("result", "request"):
            note_deletion(member, analysis)
        ended.delete()


def note_deletion(member: User, analysis: Analysis) -> None:
    """Note that an analysis goes, in words that tell which it was."""
    was = f"{analysis.model} on {analysis.gpu} by {analysis.owner.get_username()}"
    audit.note(member, Action.ANALYSIS_DELETED, f"analysis {analysis.pk}", before=was)


def _reason_to_keep(user: User, analysis: Analysis) -> str:
    if not may_change(user, analysis):
        return f"only {analysis.owner.get_username()}, or an admin, may delete it"
    if not analysis.is_final:
        return "it has not ended; cancel it first"
    return ""
