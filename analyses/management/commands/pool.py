"""``manage.py pool NAME``: a django-q2 cluster; the node process starts and watches it."""

import os
import signal
import sys
from argparse import ArgumentParser

from django.core.management.base import BaseCommand, CommandError
from django.db import connections
from django_q.cluster import Cluster
from django_q.conf import Conf

from analyses.jobs import nodes, queue
from analyses.jobs.supervisor import LIFELINE, end_with_node_process
from memorymark_site.environment import MANAGE

INTERACTIVE_POLL_SECONDS = 0.05
"""Short, since a person waits while typing."""


class Command(BaseCommand):
    """Runs until the node process ends it, or the cluster's guard dies."""

    help = "Part of the cluster command; not to be started by hand."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("pool", choices=queue.POOLS)

    def handle(self, *, pool: str, **_options: object) -> None:
        """Start one worker for each job that may run in this pool at the same time."""
        if LIFELINE not in os.environ:
            raise CommandError(f"start the workers with: {MANAGE} cluster")
        end_with_node_process()
        Conf.CLUSTER_NAME = pool
        Conf.WORKERS = queue.workers_of(pool, nodes.here())
        if pool == queue.INTERACTIVE:
            Conf.POLL = INTERACTIVE_POLL_SECONDS
        connections.close_all()  # child processes must not share a connection
        cluster = Cluster()
        cluster.start()
        # The signal goes to the whole group; each process ends itself, and the node process waits.
        signal.signal(signal.SIGTERM, lambda _number, _frame: os._exit(0))
        cluster.sentinel.join()
        self.stderr.write("The guard of the workers has died.")
        sys.stderr.flush()
        os._exit(1)  # a normal exit would wait for the guard's children
