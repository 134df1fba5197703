"""Training jobs that reported themselves, and full inboxes, of the members of a filled lab."""

from __future__ import annotations

from datetime import UTC, datetime

from django.contrib.auth.models import User

from analyses.models import Analysis, Concern, InboxEntry
from analyses.training_jobs.services import MAX_JOBS, import_jobs
from demo.jobs import jobs_until

MEMBERS = 50
"""The members whose jobs these are, at most."""

_CHUNK = 5000


def fill(count: int) -> dict[str, int]:
    """Import ``count`` jobs of the last year, and note all that waits for a decision.

    Returns:
        The numbers of jobs and of unread entries.
    """
    members = list(User.objects.filter(username__startswith="member-").order_by("pk")[:MEMBERS])
    names = [member.username for member in members]
    jobs = [job.to_dict() for job in jobs_until(datetime.now(UTC).date(), names, count)]
    for first in range(0, count, MAX_JOBS):
        imported = import_jobs(members[0], {"jobs": jobs[first : first + MAX_JOBS]})
        if imported.refused:
            raise RuntimeError(f"the lab refuses a job: {imported.refused[0]}")
    waiting = Analysis.objects.filter(has_gain=True, adopted_at=None, owner__in=members)
    InboxEntry.objects.bulk_create(
        (
            InboxEntry(member_id=owner, kind=Concern.DECISION, analysis_id=pk)
            for pk, owner in waiting.values_list("pk", "owner_id")
        ),
        batch_size=_CHUNK,
    )
    return {"imported jobs": count, "unread entries": InboxEntry.objects.count()}
