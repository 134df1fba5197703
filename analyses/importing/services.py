"""Stores imported analyses, each once; from then on they are like any other."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict, replace
from pathlib import PurePosixPath

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from analyses.bodies import IdTaken
from analyses.importing.document import Document
from analyses.jobs import queue
from analyses.jobs.lifecycle import move
from analyses.jobs.request_columns import request_columns
from analyses.lab.projects import project_named
from analyses.lab.settings import Settled, price_of, settle
from analyses.models import Analysis, Job, LogLine, Push, PushedLadder, Status, Trial
from analyses.results.stored import result_columns
from analyses.training_runs.services import attach_earlier
from engine.answer import economics
from engine.answer.energy import power_in
from engine.answer.ladder import Rung
from engine.answer.worth import is_worth_it
from engine.interface.program import AnyRequest, ProgramRequest
from engine.interface.result import AnalysisResult
from memorymark_site.operations import log


def store_imported(member: User, document: Document) -> tuple[Analysis, bool]:
    """Store an imported analysis as the member's.

    Returns:
        The analysis, and whether it is new: the same document twice stores one.

    Raises:
        IdTaken: If the id belongs to another document.
    """
    try:
        with transaction.atomic():
            return _create(member, document), True
    except IntegrityError:
        earlier = (
            Push.objects.select_related("analysis").filter(document_id=document.body.id).first()
        )
        if earlier is None:
            raise
        if earlier.digest != document.digest or earlier.analysis.owner_id != member.pk:
            raise IdTaken(
                f"the id {document.body.id} belongs to another import; create a new one for each"
            ) from None
        return earlier.analysis, False


def _create(member: User, document: Document) -> Analysis:
    body, origin = document.body, document.body.origin
    settled = settle(document.request, body.request, document.measured_gpu)
    result = document.result
    trials = result.trials if isinstance(result, AnalysisResult) else []
    if isinstance(result, AnalysisResult):
        result = _as_of_the_lab(settled, result)
    columns = request_columns(settled, document.measured_gpu)
    columns |= {
        # Its result is never reused: only its owner relies on an engine outside the lab.
        "request_hash": "",
        "environment": {**body.environment, "node": origin.host},
    }
    analysis = Analysis.objects.create(
        owner=member,
        request_id=log.request_id(),
        project=project_named(body.project),
        **columns,
    )
    Push.objects.create(
        analysis=analysis,
        document_id=body.id,
        digest=document.digest,
        host=origin.host,
        ran=origin.ran,
    )
    if document.ladder:
        rungs = [_rung_of_the_lab(settled, rung).to_dict() for rung in document.ladder]
        PushedLadder.objects.create(analysis=analysis, rungs=rungs)
    Trial.objects.bulk_create(Trial(analysis=analysis, **asdict(trial)) for trial in trials)
    LogLine.objects.create(
        analysis=analysis,
        message=f"This ran on {origin.host} by {origin.ran}, and was imported from there.",
    )
    when = {"started_at": body.started_at, "finished_at": body.finished_at}
    job = Job.objects.filter(pk=queue.enqueue(analysis).pk)
    move(job, Status.QUEUED, Status.SUCCEEDED, subject=when | result_columns(result))
    analysis.refresh_from_db()
    if analysis.program_hash:
        attach_earlier(analysis)
    return analysis


def _as_of_the_lab(settled: Settled, result: AnalysisResult) -> AnalysisResult:
    """The result with the lab's assumptions, and the script's name there."""
    result = _counted_by(settled, result)
    if name := settled.request.subject.program_name:  # which may be another than its file's
        result = replace(result, model_name=name)
        result = _without_folders(result, settled.request)
    return result


def _rung_of_the_lab(settled: Settled, rung: Rung) -> Rung:
    """The same of a rung; its costs are of the price that its GPU has in the lab."""
    assumed = settled.request.assumptions
    price = price_of(rung.gpu).usd if rung.gpu else assumed.price_per_hour_usd
    speed, ratio = rung.samples_per_second, rung.speedup
    return replace(
        rung,
        decision=_COST_OF_A_RUN.sub("", rung.decision),
        result=None if rung.result is None else _as_of_the_lab(settled, rung.result),
        usd_per_run=assumed.hours_per_run * price / ratio if price and ratio else None,
        usd_per_million_samples=(
            economics.usd_per_million_samples(price, speed) if price and speed else None
        ),
    )


_COST_OF_A_RUN = re.compile(r", \$[\d.,]+ a run")


def _without_folders(result: AnalysisResult, request: AnyRequest) -> AnalysisResult:
    """The result with its commands as the lab names the script, without folders of a machine."""
    first = request.program.words[:1] if isinstance(request, ProgramRequest) else ()
    if not first or first[0].startswith("-"):
        return result
    file = re.escape(PurePosixPath(first[0]).name)
    path = re.compile(rf"'/[^']*/{file}'|(?<!\S)/(?:[^\s']*/)?{file}(?!\S)")

    def named(texts: list[str]) -> list[str]:
        return [path.sub(lambda _: shlex.quote(first[0]), text) for text in texts]

    return replace(result, certificate=named(result.certificate), caveats=named(result.caveats))


def _counted_by(settled: Settled, result: AnalysisResult) -> AnalysisResult:
    """The result with its savings computed from the lab's present assumptions."""
    ratio, low, high = result.speedup, result.speedup_low, result.speedup_high
    if ratio is None or low is None or high is None:
        return replace(result, savings=None)
    assumed = settled.request.assumptions
    gained = economics.Speedup(ratio, low, high)
    price = assumed.price_per_hour_usd or 0.0  # as the engine does where no price is known
    taken = is_worth_it(gained, result.source)
    power = power_in(result)
    counted = economics.savings(assumed, price, gained, result.source, power, taken=taken)
    return replace(result, savings=counted)
