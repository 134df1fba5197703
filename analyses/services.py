"""Members' actions on an analysis: submit, rerun, cancel, adopt.

Its row is the truth, and a final state is never left. Workers write by :mod:`analyses.jobs.lease`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now

from analyses import selectors
from analyses.bodies import storable
from analyses.gpus.added_gpus import check_offered
from analyses.jobs import lab_state, plans, queue, timeouts
from analyses.jobs.lifecycle import move
from analyses.jobs.request_columns import request_columns
from analyses.jobs.reuse import reuse_result
from analyses.lab.projects import project_named
from analyses.lab.settings import settle
from analyses.models import AT_WORK, Analysis, Job, Status
from analyses.notifications import inbox
from analyses.results.decided import give_up, is_as_it_is, take_over
from analyses.savings.aggregation import recounting
from analyses.training_runs.services import verify_reported
from engine.answer.ladder import Rung
from engine.core.errors import InvalidInput
from engine.gpus import LOCAL
from engine.interface.program import workload_request
from engine.interface.request import AnalysisRequest
from engine.versions import software
from memorymark_site.accounts import audit
from memorymark_site.accounts.models import Action
from memorymark_site.environment import MANAGE
from memorymark_site.operations import log

logger = logging.getLogger(__name__)

NO_GPU = (
    "no node with a GPU is online to measure on; "
    "start a worker on one, or choose a catalogue GPU for a prediction"
)
CANCELLED = "cancelled"


class QueueFull(InvalidInput):
    """A member has as many analyses waiting and running as one may."""

    def __init__(self, most: int) -> None:
        super().__init__(
            {
                "queue": f"you have reached the limit of analyses queued or running ({most:,}); "
                "wait until some have finished, or cancel some"
            }
        )


def submit(
    owner: User,
    fields: Mapping[str, object],
    *,
    reuse: bool = True,
    join: bool = False,
    recipe: Mapping[str, Any] | None = None,
    project: str = "",
) -> Analysis:
    """Store and queue a new analysis in one transaction, or answer it from a stored result.

    ``fields`` are the flat, untrusted ones of :class:`engine.interface.request.AnalysisRequest`;
    the GPU may also be ``local:NAME``, one of the lab's nodes. Hours, runs and price default to the
    lab's. Without ``reuse`` it runs even if a stored result would answer it. With ``join``, an
    equal one of the owner's that has not ended is returned instead. ``recipe`` is what was read of
    the recipe that the fields come from, if from one (:func:`analyses.results.recipes.stored`), and
    ``project`` a name from :func:`analyses.lab.projects.project_name`.

    Raises:
        InvalidInput: With a message for each wrong field; nothing is stored.
        QueueFull: The same, if the member has too many already.
    """
    request, kind = checked(fields)
    settled = settle(request, split_gpu(fields)[0], kind)
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=owner.pk)  # counts one after the other
        columns = request_columns(settled, kind)
        if join and (running := _unfinished_like(owner, columns)):
            return running
        analysis = Analysis.objects.create(
            owner=owner,
            request_id=log.request_id(),
            recipe=recipe,
            project=project_named(project),
            **columns,
        )
        queue.enqueue(analysis)
        if not (reuse and reuse_result(analysis)):
            _check_room(owner)
    with log.of_analysis(analysis.pk, analysis.request_id):
        logger.info("submitted by member %d: %s on %s", owner.pk, analysis.model, analysis.gpu)
    return analysis


def checked(fields: Mapping[str, object]) -> tuple[AnalysisRequest, str]:
    """The request that flat, untrusted fields make, and the kind of the lab's GPU to measure on.

    The kind is empty for a catalogue GPU.

    Raises:
        InvalidInput: With a message for each wrong field.
    """
    given, wanted_gpu = split_gpu(fields)
    request = AnalysisRequest.parse(given)
    check_offered(request.gpu)
    kind = measured_gpu(wanted_gpu) if request.gpu == LOCAL else ""
    check_storable(request.workload.config)
    check_software(request.workload.software, kind)
    return request, kind


def _unfinished_like(owner: User, columns: Mapping[str, object]) -> Analysis | None:
    """The owner's latest analysis of an equal request, while it waits or runs."""
    listed = {name: columns[name] for name in ("model", "gpu", "measured_gpu")}
    unfinished = Analysis.objects.filter(
        owner=owner, status__in=(Status.QUEUED, Status.RUNNING), **listed
    )
    wanted = json.loads(json.dumps(columns["request"]))
    return next((one for one in unfinished if one.request == wanted), None)


def _check_room(owner: User) -> None:
    """Refuse what exceeds ``QUEUED_PER_MEMBER``; the analysis in question counts."""
    most = settings.QUEUED_PER_MEMBER
    unfinished = Analysis.objects.filter(owner=owner, status__in=(Status.QUEUED, *AT_WORK))
    if most and unfinished.count() > most:
        raise QueueFull(most)


def run_again(analysis: Analysis, member: User) -> Analysis:
    """Submit an analysis's settings again for a member, without reusing the result.

    Raises:
        InvalidInput: For example, if no node has that GPU any more, or it is of a script.
    """
    workload_request(analysis.request)
    gpu = f"{LOCAL}:{analysis.measured_gpu}" if analysis.measured_gpu else analysis.gpu
    return submit(
        member,
        {**analysis.request, "gpu": gpu},
        reuse=False,
        recipe=analysis.recipe,
        project=analysis.project.name if analysis.project else "",
    )


def split_gpu(fields: Mapping[str, object]) -> tuple[Mapping[str, object], str]:
    """The fields in the engine's terms, and the GPU to measure on."""
    gpu = fields.get("gpu")
    if not isinstance(gpu, str) or not gpu.startswith(f"{LOCAL}:"):
        return fields, ""
    return {**fields, "gpu": LOCAL}, gpu.removeprefix(f"{LOCAL}:")


def measured_gpu(wanted: str) -> str:
    """The GPU to measure on: the one wanted, or the only one online."""
    kinds = sorted(set(lab_state.nodes_with_gpu().values_list("gpu_name", flat=True)))
    if not kinds:
        raise InvalidInput({"gpu": NO_GPU})
    choices = ", ".join(f"{LOCAL}:{kind}" for kind in kinds)
    if not wanted and len(kinds) > 1:
        raise InvalidInput({"gpu": f"this lab has several GPUs; choose one: {choices}"})
    if wanted and wanted not in kinds:
        raise InvalidInput({"gpu": f"no node with this GPU is online; choose {choices}"})
    return wanted or kinds[0]


def check_storable(config: Mapping[str, object] | None) -> None:
    """Refuse a config with text that a database cannot store."""
    text = json.dumps(config, ensure_ascii=False)
    if "\\u0000" in text or storable(text) != text:
        raise InvalidInput({"config": "it contains a NUL or half a surrogate pair. Remove it"})


def check_software(wanted: str, gpu_name: str = "") -> None:
    """Refuse versions that no node online offers.

    Args:
        wanted: The software of a workload.
        gpu_name: The GPU to measure on; empty for a prediction.
    """
    if not wanted:
        return
    pins = software.parse(wanted)
    offered = lab_state.software_offered(gpu_name)
    if not any(software.is_offered(pins, versions) for versions in offered.values()):
        choices = " or ".join(sorted(filter(None, offered))) or "the lab's own"
        raise InvalidInput(
            {
                "software": f"no machine online has {software.format_versions(pins)}; choose "
                f"{choices}, or ask an admin to add it ({MANAGE} environment add)"
            }
        )


def cancel(analysis: Analysis, member: User) -> bool:
    """Cancel an analysis: at once if no live worker holds it, else when its worker sees it.

    Returns:
        Whether that changed anything; False for one that has finished or is being cancelled.
    """
    reason = f"Cancelled by {member.get_username()}."
    ended = {"failure_code": CANCELLED, "failure_reason": reason, "cancelled_by": member}
    job = Job.objects.filter(analysis=analysis)
    silent = job.filter(heartbeat_at__lt=Now() - timeouts.SILENT_AFTER)
    return bool(
        move(job, Status.QUEUED, Status.CANCELLED, subject=ended)
        or move(silent, Status.RUNNING, Status.CANCELLED, subject=ended)
        or move(job, Status.RUNNING, Status.CANCELLING, subject=ended)
    )


def adopt(analysis: Analysis, member: User, rung: Rung | None = None) -> bool:
    """Mark the decision as adopted; false without one, or if it is adopted already.

    Args:
        analysis: It keeps what is adopted.
        member: The member who adopts it.
        rung: A rung of its ladder with a result, to adopt instead of what is advised.
    """
    if rung is None and not selectors.can_be_adopted(analysis):
        return False
    still_open = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=True)
    with recounting(still_open):
        changed = bool(still_open.update(adopted_at=Now(), adopted_by=member))
        if changed and rung:
            columns = give_up(analysis) if is_as_it_is(rung) else take_over(analysis, rung)
            _decide(analysis, columns)
        if changed:
            inbox.decided(analysis)
            audit.note(member, Action.ADOPTED, str(analysis))
    return changed


def undo_adoption(analysis: Analysis, member: User) -> bool:
    """Mark the decision as not adopted; returns whether it was. Its plan advises again."""
    adopted = Analysis.objects.filter(pk=analysis.pk, adopted_at__isnull=False)
    with recounting(adopted):
        changed = bool(adopted.update(adopted_at=None, adopted_by=None))
        if changed:
            _decide(analysis, give_up(analysis))
            plans.ask_for([analysis.pk])
            audit.note(member, Action.ADOPTION_TAKEN_BACK, str(analysis))
    return changed


def _decide(analysis: Analysis, columns: Mapping[str, object]) -> None:
    Analysis.objects.filter(pk=analysis.pk).update(**columns)
    verify_reported([analysis.pk])


def put_into_project(analyses: Iterable[Analysis], name: str) -> None:
    """Set the project of some analyses; an empty name takes them out of theirs."""
    project = project_named(name)
    found = Analysis.objects.filter(pk__in=[one.pk for one in analyses])
    with recounting(found):
        found.update(project=project)
