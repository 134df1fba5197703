"""``manage.py recover``: by hand, what the cluster does when it starts."""

from django.core.management.base import BaseCommand

from analyses.recovery import recover


class Command(BaseCommand):
    """Puts right what a worker that was killed left behind."""

    help = "Take analyses from workers that have gone; queue those without a queue entry."

    def handle(self, **_options: object) -> None:
        """Do it, silently where there is nothing to do."""
        recover()
