"""``manage.py cluster``: the queue's workers, started and stopped in good order."""

import logging
import os
import select
import signal
import sys
from types import FrameType

from django import db
from django.conf import settings
from django.core.management.base import BaseCommand
from django.db import connections
from django_q.cluster import Cluster

from analyses import selectors
from analyses.recovery import recover

logger = logging.getLogger(__name__)

STOP_SECONDS = 4.5
"""For the workers to end their analyses; honcho waits 5 seconds before it kills everything."""


class Command(BaseCommand):
    """Django-q2's cluster with recovery before it and a stop that comes to an end.

    It also starts itself again where its workers hang, see ``selectors.queue_stands_still``.

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
        while cluster.sentinel.is_alive():
            cluster.sentinel.join(settings.QUEUE_STANDSTILL_SECONDS / 2)
            if _hangs():
                self._start_again(cluster)
        self.stderr.write("The cluster of workers has died; stopping.")
        self._end_all()
        sys.exit(1)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._end_all()
        os._exit(0)  # the usual way out would wait for a process that did not go through join()

    def _start_again(self, cluster: Cluster) -> None:
        self.stderr.write("Nothing takes what waits in the queue; starting the workers again.")
        self._end_all()
        cluster.sentinel.join()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # what is ignored stays so in the new program
        os.execv(sys.executable, sys.orig_argv)  # noqa: S606  # this very program, by no shell

    def _end_all(self) -> None:
        """Ends every process of the group but this one: TERM, then KILL."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        if not select.select([self._alive], [], [], STOP_SECONDS)[0]:
            os.killpg(0, signal.SIGKILL)


def _hangs() -> bool:
    try:
        return selectors.queue_stands_still()
    except db.Error:
        logger.exception("the queue could not be looked at; trying again")
        return False
    finally:
        connections.close_all()  # a broken one must not be used for the next look
