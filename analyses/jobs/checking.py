"""Self-checks of a node: once for its GPU, driver and versions, and on an admin's request."""

from __future__ import annotations

from django.db import transaction

from analyses.gpus import self_checks
from analyses.jobs import nodes, queue
from analyses.models import FINAL_STATUSES, Job, Node


def ask_if_due() -> None:
    """Queue the self-check of this node, at its start, unless its result still holds.

    A node without a GPU only predicts, which needs no check; an admin may start one.
    """
    here = nodes.here()
    node = Node.objects.filter(name=here.name).first()
    if node is not None and here.gpu and self_checks.is_due(node, nodes.identity()):
        ask(node)


@transaction.atomic
def ask(node: Node) -> bool:
    """Queue a self-check of a node, in place of its last one that has ended.

    Returns:
        Whether it did; not where one waits or runs already.
    """
    Node.objects.select_for_update(no_key=True).get(pk=node.pk)  # one after the other
    jobs = Job.objects.filter(checked_node=node)
    jobs.filter(state__in=FINAL_STATUSES).delete()
    if jobs.exists():
        return False
    queue.enqueue(node)
    return True
