"""Every write of a member to an analysis: asking, cancelling, adopting.

Its row is the truth, and a final state is never left. Workers write by :mod:`analyses.claims`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now

from analyses import log_context, pace, queue, selectors, store
from analyses.analysis_columns import asked
from analyses.engine_events import storable
from analyses.lab.defaults import settle
from analyses.lifecycle import move
from analyses.models import Analysis, Status
from analyses.savings.counting import counted_anew
from engine.errors import InvalidInput
from engine.gpus import LOCAL
from engine.request import AnalysisRequest
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action

logger = logging.getLogger(__name__)

NO_GPU = (
    "no machine of this lab with a GPU is online to measure on; "
    "start a worker there, or choose a GPU by name for a prediction"
)
CANCELLED = "cancelled"


def submit(owner: User, fields: Mapping[str, object], *, anew: bool = False) -> Analysis:
    """Store a new analysis and queue it, both or neither; or answer it from the store.

    Args:
        owner: The member who asks.
        fields: The flat, untrusted fields of :class:`engine.request.AnalysisRequest`. The GPU may
            be ``local:NAME`` besides, a kind of GPU that one of the lab's nodes has. Hours, runs
            and price that are left out are those of the lab.
        anew: Whether to work on it even if the store has the answer.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
    """
    given, wanted_gpu = split_gpu(fields)
    request = AnalysisRequest.parse(given)
    kind = measured_gpu(wanted_gpu) if request.gpu == LOCAL else ""
    check_storable(request.workload.config)
    settled = settle(request, given, kind)
    with transaction.atomic():
        analysis = Analysis.objects.create(
            owner=owner, request_id=log_context.request_id(), **asked(settled, kind)
        )
        if anew or not store.answer(analysis):
            queue.enqueue(analysis)
    with log_context.of_analysis(analysis.pk, analysis.request_id):
        logger.info("submitted by member %d: %s on %s", owner.pk, analysis.model, analysis.gpu)
    return analysis


def run_again(analysis: Analysis, member: User) -> Analysis:
    """Ask the question of an analysis once more, in a member's name; it is worked on anew.

    Raises:
        InvalidInput: If it cannot be asked any more, such as for want of a node with that GPU.
    """
    gpu = f"{LOCAL}:{analysis.measured_gpu}" if analysis.measured_gpu else analysis.gpu
    return submit(member, {**analysis.request, "gpu": gpu}, anew=True)


def split_gpu(fields: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The fields as the engine knows them, and the kind of GPU to measure on."""
    gpu = fields.get("gpu")
    if not isinstance(gpu, str) or not gpu.startswith(f"{LOCAL}:"):
        return fields, ""
    return {**fields, "gpu": LOCAL}, gpu.removeprefix(f"{LOCAL}:")


def measured_gpu(wanted: str) -> str:
    """The kind of GPU to measure on: the one wanted, or the only one there is."""
    kinds = sorted(set(selectors.nodes_with_gpu().values_list("gpu_name", flat=True)))
    if not kinds:
        raise InvalidInput({"gpu": NO_GPU})
    choices = ", ".join(f"{LOCAL}:{kind}" for kind in kinds)
    if not wanted and len(kinds) > 1:
        raise InvalidInput({"gpu": f"this lab has several kinds of GPU; choose one: {choices}"})
    if wanted and wanted not in kinds:
        raise InvalidInput({"gpu": f"no node with such a GPU is online; there is {choices}"})
    return wanted or kinds[0]


def check_storable(config: Mapping[str, object] | None) -> None:
    """Refuse texts in a config that a database refuses; a model's name cannot hold them."""
    text = json.dumps(config, ensure_ascii=False)
    if "\\u0000" in text or storable(text) != text:
        raise InvalidInput({"config": "it has a NUL or half a surrogate pair in a text; remove it"})


def cancel(analysis: Analysis, member: User) -> bool:
    """Ask for the end of an analysis; it ends at once if no worker is alive that holds it.

    Returns:
        Whether that changed anything: it does not where the analysis is final or being cancelled.
    """
    reason = f"Cancelled by {member.get_username()}."
    ended = {"failure_code": CANCELLED, "failure_reason": reason, "cancelled_by": member}
    this = Analysis.objects.filter(pk=analysis.pk)
    silent = this.filter(heartbeat_at__lt=Now() - pace.SILENT_AFTER)
    return bool(
        move(this, Status.QUEUED, Status.CANCELLED, **ended)
        or move(silent, Status.RUNNING, Status.CANCELLED, **ended)
        or move(this, Status.RUNNING, Status.CANCELLING, **ended)
    )


def adopt(analysis: Analysis, member: User) -> bool:
    """Note that the recommended batch is trained with: its savings are realised from now on.

    Returns:
        Whether that changed anything: it does not without a recommendation, or a second time.
    """
    if not selectors.can_be_adopted(analysis):
        return False
    still_open = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=True)
    with counted_anew(still_open):
        changed = bool(still_open.update(adopted_at=Now(), adopted_by=member))
        if changed:
            audit.note(member, Action.ADOPTED, str(analysis))
    return changed


def take_back(analysis: Analysis, member: User) -> bool:
    """Note that the recommended batch is not trained with after all.

    Returns:
        Whether that changed anything.
    """
    adopted = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=False)
    with counted_anew(adopted):
        changed = bool(adopted.update(adopted_at=None, adopted_by=None))
        if changed:
            audit.note(member, Action.ADOPTION_TAKEN_BACK, str(analysis))
    return changed
