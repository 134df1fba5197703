"""Takes analyses from workers that have gone, and queues those whose queue entry is lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import F
from django_q.models import OrmQ

from analyses import claims, log_context, queue, selectors
from analyses.lifecycle import move
from analyses.lookups import services as lookups
from analyses.models import Analysis, Status
from analyses.notifications import delivery

logger = logging.getLogger(__name__)

MOST_LOSSES = 2
"""An analysis that has taken two workers with it is not given to a third."""

LOST = "worker_lost"


@dataclass(frozen=True)
class LetGo:
    """What was in somebody's hands in another instance, and what it is in this one.

    Attributes:
        queued: The numbers of the analyses that were running; they wait for a worker again.
        cancelled: How many were being cancelled; they are.
        lookups: How many lookups were being answered; they wait again.
        notifications: How many notifications were being sent; they are sent again.
    """

    queued: Sequence[int]
    cancelled: int
    lookups: int
    notifications: int

    def told(self) -> Iterator[str]:
        """It in words; nothing of what there was none of."""
        if self.queued:
            numbers = ", ".join(f"{number}" for number in self.queued)
            yield f"Queued again, since they were running when the backup was made: {numbers}."
        if self.cancelled:
            yield f"Cancelled, since they were being cancelled: {self.cancelled:,} analyses."
        if self.lookups:
            yield f"To be answered again: {self.lookups:,} lookups."
        if self.notifications:
            yield f"To be sent, perhaps a second time: {self.notifications:,} notifications."


@transaction.atomic
def let_go() -> LetGo:
    """Take everything from the workers of the instance that a backup was made of.

    None of them works here, so it is no loss that counts; what they had reported stays.
    """
    cancelled = move(Analysis.objects.all(), Status.CANCELLING, Status.CANCELLED)
    running = list(Analysis.objects.filter(status=Status.RUNNING).order_by("pk"))
    for analysis in running:
        claims.say(analysis, "Restored from a backup while this was running; it is queued again.")
    move(Analysis.objects.all(), Status.RUNNING, Status.QUEUED)
    return LetGo(
        [analysis.pk for analysis in running], cancelled, lookups.let_go(), delivery.let_go()
    )


def recover() -> None:
    """Put right what was left behind; any node may do it at any time, as often as it likes."""
    reap()
    requeue_lost()
    delivery.recover()
    lookups.recover()


def reap() -> int:
    """End the hold of workers without a recent heartbeat; returns how many.

    An analysis to be cancelled is cancelled. A running one is queued once more; what its worker had
    reported stays, and the next one goes on from there. The second time it is lost.
    """
    gone = selectors.without_heartbeat()
    count = move(gone, Status.CANCELLING, Status.CANCELLED)
    for pk, token in list(gone.values_list("pk", "claim_token")):
        with transaction.atomic():
            count += _lose(pk, token)
    return count


def _lose(pk: int, token: str) -> int:
    stale = selectors.without_heartbeat().filter(pk=pk, claim_token=token)
    analysis = Analysis.objects.get(pk=pk)
    reason = (
        f"The worker on {analysis.node or 'a node'} stopped without finishing this: the machine "
        "was switched off, or the process was killed."
    )
    end, words = Status.QUEUED, {}
    if analysis.losses + 1 < MOST_LOSSES:
        reason += " It is tried once more."
    else:
        reason += " It happened twice, so it is not tried again by itself."
        end, words = Status.LOST, {"failure_code": LOST, "failure_reason": reason}
    if not move(stale, Status.RUNNING, end, losses=F("losses") + 1, **words):
        return 0
    with log_context.of_analysis(pk, analysis.request_id):
        logger.warning("analysis %d was lost by its worker on %s", pk, analysis.node)
    claims.say(analysis, reason)
    if end == Status.QUEUED:
        queue.enqueue(analysis)
    return 1


def requeue_lost() -> int:
    """Queue again what waits without a queue entry; returns how many.

    A row and its entry are written together, so there are none but where somebody emptied the
    queue, the site's secret key changed, or a GPU was taken when its measurement was to begin.
    """
    waiting = Analysis.objects.filter(status=Status.QUEUED)
    if not waiting.exists():
        return 0
    with transaction.atomic():
        # Rows first: an entry is never seen missing that was written with a row seen here.
        rows = list(waiting.select_for_update().order_by("pk"))
        with_entry = queue.queued(queue.ANALYSIS, OrmQ.objects.all())
        lost = [analysis for analysis in rows if analysis.pk not in with_entry]
        for analysis in lost:
            queue.enqueue(analysis)
    return len(lost)
