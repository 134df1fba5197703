"""The lab's nodes as the page of GPUs shows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.utils import timezone

from analyses import pace, selectors
from analyses.models import Analysis, Node


@dataclass(frozen=True)
class NodeRow:
    """One node: what it is, how it is, and what it does."""

    node: Node
    state: str
    """One of the words of the stylesheet: ``online``, ``draining``, ``problem``, ``offline``."""
    seconds_silent: float
    at_work: Iterable[Analysis]


def node_rows() -> list[NodeRow]:
    """Every node that the lab has had, those online first."""
    now = timezone.now()
    return [
        NodeRow(node, _state(node, silent), silent, at_work)
        for node, at_work in selectors.nodes()
        for silent in [max(0.0, (now - node.heartbeat_at).total_seconds())]
    ]


def _state(node: Node, seconds_silent: float) -> str:
    if seconds_silent > pace.STALE_AFTER.total_seconds():
        return "offline"
    if node.problem:
        return "problem"
    return "draining" if node.draining else "online"
