"""``manage.py recover``: does manually what the cluster does at its start."""

from django.core.management.base import BaseCommand

from analyses.jobs.recovery import recover


class Command(BaseCommand):
    """Cleans up after workers that were killed; silent if there is nothing to do."""

    help = "Take jobs from dead workers, and drop queries that no page waits for."

    def handle(self, **_options: object) -> None:
        recover()
