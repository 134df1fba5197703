"""The GPUs page: the lab's nodes with what each is doing, and the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from analyses.gpus import added_gpus
from analyses.gpus.self_checks import Shown, shown
from analyses.jobs import checking, lab_state, timeouts
from analyses.jobs.keys import problem_of
from analyses.lab.settings import HeldPrice, kinds_outside_the_catalogue, prices
from analyses.models import Analysis, Node
from analyses.pages.access import MemberRequest
from engine.gpus import GPUS, Gpu, by_family
from engine.gpus.checked import measured_rows
from engine.gpus.data_sheet import ADDED_FAMILY
from memorymark_site.accounts.roles import Role, needs
from memorymark_site.environment import START_SITE, START_WORKER


@dataclass(frozen=True)
class NodeRow:
    """One node with its state and its work.

    Attributes:
        state: A class of the style sheet: ``online``, ``draining``, ``problem`` or ``offline``.
        self_check: The accuracy of its predictions, and what does not run on it.
    """

    node: Node
    state: str
    seconds_silent: float
    at_work: Iterable[Analysis]
    self_check: Shown

    @property
    def measured(self) -> list[tuple[str, str]]:
        """The measurements of its self-check, each value with its unit."""
        check = self.self_check.check
        return measured_rows(check) if check else []

    @property
    def problem(self) -> str:
        """Why it cannot be counted on, empty if it can."""
        return problem_of(self.node)


@require_safe
def gpus(request: MemberRequest) -> HttpResponse:
    """The whole page; for htmx the nodes alone."""
    if request.htmx:
        return render(request, "analyses/_nodes.html", _nodes())
    others = kinds_outside_the_catalogue()
    held = prices([*GPUS, *others])
    context = _nodes() | {
        "families": _families(held),
        "others": [held[kind] for kind in others],
        "nav": "gpus",
    }
    return render(request, "analyses/gpus.html", context)


@dataclass(frozen=True)
class CatalogueRow:
    """One GPU of the catalogue.

    Attributes:
        origin: The member who added it and the date; empty for one that is built in.
    """

    gpu: Gpu
    price: HeldPrice
    origin: str = ""


@dataclass(frozen=True)
class Family:
    """GPUs of one family."""

    name: str
    rows: list[CatalogueRow]

    @property
    def is_open(self) -> bool:
        """Whether it is unfolded at first: the others are some twenty screens of a phone."""
        return self.name == ADDED_FAMILY


def _families(held: Mapping[str, HeldPrice]) -> list[Family]:
    """The catalogue by family, with the lab's own GPUs first."""
    added = added_gpus.rows()
    rows = [
        CatalogueRow(
            gpu, held[gpu.name], added_gpus.origin_of(added[gpu.name]) if gpu.name in added else ""
        )
        for gpu in GPUS.values()
    ]
    families = by_family(row.gpu for row in rows)
    own = sorted(families, key=lambda family: family != ADDED_FAMILY)
    return [Family(name, [row for row in rows if row.gpu.family == name]) for name in own]


@needs(Role.ADMIN)
@require_POST
def check_again(request: MemberRequest, pk: int) -> HttpResponse:
    """Let a node check itself again, as soon as it is free."""
    node = get_object_or_404(Node, pk=pk)
    if checking.ask(node):
        messages.success(request, f"{node.name} checks itself as soon as it is free.")
    else:
        messages.info(request, f"{node.name} is checking itself already, or about to.")
    return redirect("analyses:gpus")


def _nodes() -> dict[str, object]:
    return {"nodes": _node_rows(), "start_site": START_SITE, "start_worker": START_WORKER}


def _node_rows() -> list[NodeRow]:
    """Every node that the lab has had, those online first."""
    now = timezone.now()
    return [
        NodeRow(node, _state(node, silent), silent, at_work, shown(node))
        for node, at_work in lab_state.nodes()
        for silent in [max(0.0, (now - node.heartbeat_at).total_seconds())]
    ]


def _state(node: Node, seconds_silent: float) -> str:
    if seconds_silent > timeouts.STALE_AFTER.total_seconds():
        return "offline"
    if problem_of(node):
        return "problem"
    return "draining" if node.draining else "online"
