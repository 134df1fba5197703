"""Who did what: one line for each change that a lab may want to ask about later.

Entries are only ever added. A change and its entry are written in one transaction, so that
neither is there without the other.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection

from memorymark_site.accounts.models import Action, AuditEntry


def note(
    actor: User | None, action: Action, what: str, *, before: object = "", after: object = ""
) -> None:
    """Write an entry, in the transaction of the change itself.

    Args:
        actor: Who did it; ``None`` for whoever runs the machine, by a command in its terminal.
        action: What kind of change it is.
        what: The thing that was changed, in words that last longer than the thing.
        before: What held until now.
        after: What holds from now on.

    Raises:
        RuntimeError: If no transaction is open.
    """
    if not connection.in_atomic_block:
        raise RuntimeError(f"{action} of {what} is noted outside the transaction of the change")
    longest = AuditEntry.LONGEST
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username() if actor else "",
        action=action,
        what=what[:longest],
        before=str(before)[:longest],
        after=str(after)[:longest],
    )
