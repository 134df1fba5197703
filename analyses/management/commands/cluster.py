"""``manage.py cluster``: this machine's workers, kept alive."""

from django.core.management.base import BaseCommand

from analyses.node_process import NodeProcess


class Command(BaseCommand):
    """One for each machine; a second one under another NODE_NAME does no harm."""

    help = "Start the workers that run analyses, and start them again when they die."

    def handle(self, **_options: object) -> None:
        """Run until a signal comes, or until the node has been drained."""
        NodeProcess().run()
