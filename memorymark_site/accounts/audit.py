"""The audit log: who changed what.

Entries are only ever added, in the transaction of the change itself.
"""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import connection

from memorymark_site.accounts.models import Action, AuditEntry


def note(
    actor: User | None, action: Action, what: str, *, before: object = "", after: object = ""
) -> None:
    """Add an entry, in the transaction of the change itself.

    Args:
        actor: The user who did it; ``None`` for a command on the server.
        action: The kind of change.
        what: A description of its target that outlives the target.
        before: The old value.
        after: The new value.

    Raises:
        RuntimeError: If no transaction is open.
    """
    if not connection.in_atomic_block:
        raise RuntimeError(f"{action} of {what} is audited outside the transaction of the change")
    longest = AuditEntry.MAX_LENGTH
    AuditEntry.objects.create(
        actor=actor,
        actor_name=actor.get_username() if actor else "",
        action=action,
        what=what[:longest],
        before=str(before)[:longest],
        after=str(after)[:longest],
    )
