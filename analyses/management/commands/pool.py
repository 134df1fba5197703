"""``manage.py pool``: django-q2's cluster; the node process starts and watches it."""

import os
import signal
import sys

from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django_q.cluster import Cluster
from django_q.conf import Conf

from analyses import nodes
from analyses.bound_process import LIFELINE, end_with_node_process


class Command(BaseCommand):
    """Runs until the node process ends it, or until the cluster's guard has died."""

    help = "Part of the cluster command; not to be started by hand."

    def handle(self, **_options: object) -> None:
        """Start the workers, one for each analysis that may run here at the same time."""
        if LIFELINE not in os.environ:
            raise CommandError("start the workers with: python manage.py cluster")
        end_with_node_process()
        Conf.WORKERS = nodes.here().workers
        connections.close_all()  # a connection must not be shared with the processes below
        cluster = Cluster()
        cluster.start()
        # The signal goes to the whole group; each ends by itself, and the node process waits.
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
        cluster.sentinel.join()
        self.stderr.write("The guard of the workers has died.")
        sys.stderr.flush()
        os._exit(1)  # the usual way out would wait for the guard's children
