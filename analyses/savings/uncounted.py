"""Why savings are not counted yet, and the analyses that another one of their workload hides."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Max, QuerySet

from analyses.lab.projects import in_project
from analyses.models import Analysis, CountedSavings, Mention, Status, TrainingRun
from analyses.savings.accrual import NOTHING
from analyses.savings.aggregation import columns_of
from analyses.savings.breakdown import CountedAnalysis, with_assumptions
from analyses.savings.selection import Selection
from engine.core.choices import Goal
from engine.core.numbers import whole

NOT_ADOPTED = "not adopted"
NO_GAIN = "no gain beyond the noise"
NO_RUN = "not verified: no training run was recorded"


@dataclass(frozen=True)
class Listed:
    """An analysis in the list of savings.

    Attributes:
        row: Its savings, and what they assume.
        why: The reason why they are not counted, or not verified; empty where they are.
        instead: The analysis that counts for its workload; ``None`` where it does itself.
        mentioned: Its latest mention, if that is recent.
    """

    row: CountedAnalysis
    why: str
    instead: int | None = None
    mentioned: Mention | None = None


def listed(rows: Collection[CountedAnalysis], mentions: Mapping[int, Mention]) -> list[Listed]:
    """The rows of counted savings with the reasons; two queries.

    Args:
        rows: The analyses that count.
        mentions: Recent mentions by analysis.
    """
    unverified = [
        row.counted.workload_key
        for row in rows
        if row.counted.is_realised and not row.counted.is_verified
    ]
    last = _last_runs(unverified) if unverified else {}
    return [
        Listed(
            row,
            _why(row, last.get(row.counted.workload_key)),
            mentioned=mentions.get(row.analysis.pk),
        )
        for row in rows
    ]


def _why(row: CountedAnalysis, last: TrainingRun | None) -> str:
    counted, analysis = row.counted, row.analysis
    if counted.usd_per_year <= 0:
        return NO_GAIN
    if not counted.is_realised:
        left = "" if analysis.owner.is_active else f", and {analysis.owner.username} has left"
        return f"{NOT_ADOPTED}{left}"
    if counted.is_verified:
        return ""
    if last is None:
        return NO_RUN
    trained, wanted = last.batch_size, analysis.recommended_batch_size
    if trained != wanted:
        return (
            f"not verified: its last run trained with batch {whole(trained)}, not {whole(wanted)}"
        )
    return "not verified: its last run had other settings, as its analysis says"


def _last_runs(workloads: Collection[str]) -> dict[str, TrainingRun]:
    """The last run of each workload that none has verified."""
    runs = TrainingRun.objects.filter(analysis__workload_key__in=workloads)
    newest = runs.order_by().values("analysis__workload_key").annotate(last=Max("pk"))
    keys = {part["last"]: part["analysis__workload_key"] for part in newest}
    found = TrainingRun.objects.filter(pk__in=keys).defer("record")
    return {keys[run.pk]: run for run in found}


def superseded(analyses: QuerySet[Analysis], selection: Selection) -> QuerySet[Analysis]:
    """The analyses with a gain that another one of their workload counts for, largest first.

    Args:
        analyses: Those that the user may see.
        selection: Its member is the owner here, and its month is left out.
    """
    found = analyses.filter(
        status=Status.SUCCEEDED,
        goal=Goal.BATCH,
        has_gain=True,
        usd_per_year__gt=0,
        counted_savings=None,
    ).exclude(current_batch_size=None)
    given: dict[str, Any] = {}
    if selection.member:
        given["owner__username"] = selection.member
    if selection.model:
        given["model"] = selection.model
    if selection.gpu:
        name, _, kind = selection.gpu.partition(":")
        given |= {"gpu": name, "measured_gpu": kind} if kind else {"gpu": name}
    if selection.project:
        given |= in_project(selection.project)
    return found.filter(**given).order_by("-usd_per_year", "-pk")


def hidden(pks: Collection[int]) -> Iterator[Listed]:
    """Yield analyses that do not count, in this order, with the one that does; three queries."""
    shown = with_assumptions().in_bulk(pks)
    with_results = Analysis.objects.in_bulk(pks)
    keys = {row.workload_key for row in with_results.values()}
    counting = CountedSavings.objects.filter(workload_key__in=keys)
    by_key = {row.workload_key: row for row in counting}
    for pk in pks:
        analysis: Any = shown.get(pk)  # with the annotations
        counts = by_key.get(analysis.workload_key) if analysis else None
        if counts is None:  # one of both was deleted a moment ago
            continue
        assumed = ("hours_per_run", "runs_per_year", "price_per_hour_usd")
        counted = CountedSavings(**columns_of(with_results[pk]))
        counted.member = analysis.owner
        row = CountedAnalysis(
            analysis=analysis,
            counted=counted,
            saved=NOTHING,
            grid_co2e_grams_per_kwh=analysis.assumed_grid_co2e_grams_per_kwh,
            **{name: getattr(analysis, f"assumed_{name}") for name in assumed},
        )
        how = "is adopted and counts" if counts.is_realised else "is newer and counts"
        yield Listed(row, f"{how} for this workload", instead=counts.pk)
