"""``manage.py cluster``: starts this machine's workers and keeps them alive."""

from django.core.management.base import BaseCommand

from analyses.jobs.node_process import NodeProcess


class Command(BaseCommand):
    """One per machine; a second one needs another NODE_NAME."""

    help = "Start the workers that run analyses, and start them again when they die."

    def handle(self, **_options: object) -> None:
        NodeProcess().run()
