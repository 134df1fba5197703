"""``manage.py drain NODE``: lets a node finish its work, take nothing new, and stop."""

from argparse import ArgumentParser
from time import monotonic, sleep

from django.core.management.base import BaseCommand, CommandError

from analyses.jobs import nodes, queue
from analyses.models import Node

LOOK_EVERY_SECONDS = 1.0


class Command(BaseCommand):
    """Drain a node for an upgrade or a reboot; the process manager then restarts its workers."""

    help = "Let a node finish its analyses and stop. It rejoins the lab when you start it again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("node", nargs="?", help="its name (default: this machine)")
        parser.add_argument("--wait", type=float, default=0.0, metavar="SECONDS")

    def handle(self, *, node: str | None, wait: float, **_options: object) -> None:
        """Mark the node; with ``--wait``, also wait until it has finished its work."""
        name = node or nodes.here().name
        if not Node.objects.filter(name=name).update(draining=True):
            known = ", ".join(Node.objects.values_list("name", flat=True)) or "none"
            raise CommandError(f"there is no node {name}; known nodes: {known}")
        until = monotonic() + wait
        while (left := queue.at_work_on(name).count()) and monotonic() < until:
            sleep(LOOK_EVERY_SECONDS)
        if left:
            self.stdout.write(f"{name} takes no new work; still running: {left}.")
        else:
            self.stdout.write(f"{name} has finished its work and is stopping.")
