"""``manage.py cluster``: the queue's workers, started and stopped in good order."""

import os
import select
import signal
import sys
from types import FrameType

from django.core.management.base import BaseCommand
from django.db import connections
from django_q.cluster import Cluster

from analyses.recovery import recover

STOP_SECONDS = 4.5
"""For the workers to end their analyses; honcho waits 5 seconds before it kills everything."""


class Command(BaseCommand):
    """Django-q2's cluster with recovery before it and a stop that comes to an end.

    Its own stop waits for tasks to finish, which here may take minutes, and it waits for ever
    where the signal reached its child processes as well, as one sent to a process group does.
    """

    help = "Start the workers that run analyses."

    def handle(self, **_options: object) -> None:
        """Run until a signal comes, or until the cluster dies."""
        recover()
        connections.close_all()  # a connection must not be shared with the processes below
        if os.getpgrp() != os.getpid():
            os.setpgrp()
        # Every process of the cluster inherits the pipe's writing end, so its reading end is at
        # its end once all of them have gone.
        self._alive, inherited = os.pipe()
        cluster = Cluster()
        cluster.start()
        os.close(inherited)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        cluster.sentinel.join()
        self.stderr.write("The cluster of workers has died; stopping.")
        self._end_all()
        sys.exit(1)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._end_all()
        os._exit(0)  # the usual way out would wait for a process that did not go through join()

    def _end_all(self) -> None:
        """Ends every process of the group but this one: TERM, then KILL."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        if not select.select([self._alive], [], [], STOP_SECONDS)[0]:
            os.killpg(0, signal.SIGKILL)
