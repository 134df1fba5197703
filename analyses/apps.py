"""The app's configuration, and what a worker process does when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from django.db.models import Model

    from analyses.models import InboxEntry


class AnalysesConfig(AppConfig):
    """Analyses, the workers that run them, the pages and the API."""

    name = "analyses"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect to new inbox entries, the start of workers, and the restore of a backup."""
        from django.db.models.signals import post_save
        from django_q.signals import post_spawn

        from analyses.gpus import added_gpus
        from memorymark_site.operations.restore import before_restore, restored

        added_gpus.offer_in_requests()
        post_spawn.connect(_worker_started, dispatch_uid="analyses.worker_started")
        before_restore.connect(_no_worker_alive, dispatch_uid="analyses.no_worker_alive")
        post_save.connect(
            _entry_added, sender="analyses.InboxEntry", dispatch_uid="analyses.entry_added"
        )
        restored.connect(_release_work, dispatch_uid="analyses.release_work")


def _entry_added(instance: InboxEntry, created: bool, raw: bool, **_signal: object) -> None:
    """Notify of an inbox entry, in its transaction.

    By a signal, as entries are added by what the queue itself imports.
    """
    from analyses.jobs import notifications

    if created and not raw:
        notifications.note_entry(instance)


def _worker_started(**_kwargs: object) -> None:
    """Tie a fresh worker process to its node process, and have an engine ready in it."""
    from analyses.jobs import supervisor, worker

    supervisor.end_with_node_process()
    worker.start()


def _no_worker_alive(models: Mapping[str, type[Model]], **_signal: object) -> str:
    """Why a restore must wait; a worker would go on with rows that the restore replaces.

    ``models`` are those of the backup.
    """
    from django.db.models.functions import Now

    from analyses.jobs import timeouts

    node = models.get("analyses.node")
    stale = timeouts.STALE_AFTER
    if node is None or not node._base_manager.filter(heartbeat_at__gte=Now() - stale).exists():
        return ""
    return (
        "workers are running on this database; stop the site and its workers, wait "
        f"{stale.total_seconds():.0f} s, and try again"
    )


def _release_work(**_signal: object) -> list[str]:
    """Release work that was running when the backup was made."""
    from analyses.jobs import recovery

    return list(recovery.release_all().messages())
