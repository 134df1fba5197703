"""``manage.py desk``: answers lookups; the node process starts and watches it."""

import os
import signal
from threading import Event

from django.core.management.base import BaseCommand, CommandError

from analyses import nodes
from analyses.bound_process import LIFELINE, end_with_node_process
from analyses.lookups import desk


class Command(BaseCommand):
    """Runs until the node process ends it."""

    help = "Part of the cluster command; not to be started by hand."

    def handle(self, **_options: object) -> None:
        """Answer until TERM."""
        if LIFELINE not in os.environ:
            raise CommandError("start the workers with: python manage.py cluster")
        end_with_node_process()
        stopping = Event()
        signal.signal(signal.SIGTERM, lambda _number, _frame: stopping.set())
        desk.work(nodes.here().name, stopping.is_set)
