"""The ladder of an analysis as its page shows it, with other GPUs and the room that is left.

It is predicted by a query of its own, which starts with the analysis and fills the page as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from analyses import queries
from analyses.figures.settings import asked_fields
from analyses.jobs import plans
from analyses.jobs.plans import plan_request
from analyses.models import Analysis, Query, QueryKind, QueryStatus
from analyses.pages.analysis.gpu_rows import GpuComparison, comparison_of, form_query
from analyses.results.decided import decided_moves, is_as_it_is, own_result
from engine.answer.ladder import Learning, Rung, best_of, by_gain
from engine.answer.offers import Offer, changed_title, kept_title
from engine.answer.plan import Room
from engine.core.border import read_json
from engine.core.errors import InvalidInput
from engine.interface.program import NEVER_RUN, stored_program
from engine.interface.result import AnalysisResult

STARTS_WITHIN = timedelta(minutes=10)
"""The ladder of an analysis that ended longer ago starts on request."""


@dataclass(frozen=True)
class Ladder:
    """The ladder of an analysis as its page shows it.

    Attributes:
        query: The plan's query; ``None`` before it is requested.
        rows: The rows known so far, in order.
        chosen: The index of the row whose answer the page shows; ``None`` where that is not among
            them, as while a newer plan runs.
        result: The answer of that row, where it is not the stored one: it is then compared with the
            decision of the analysis, and is none itself.
        refused: Why there cannot be one; empty if there can.
        command: What to run instead; mostly empty.
        starts: Whether the page starts it by itself.
        no_worker: Whether nobody is there to work on it.
        advice: GPUs and room; ``None`` until the query has ended, or if another version stored it.
    """

    query: Query | None = None
    rows: list[RungRow] = field(default_factory=list)
    chosen: int | None = 0
    result: AnalysisResult | None = None
    refused: str = ""
    command: str = ""
    starts: bool = False
    no_worker: bool = False
    advice: Advice | None = None

    @property
    def is_final(self) -> bool:
        return self.query is not None and self.query.is_final

    @property
    def seen(self) -> str:
        """The state a waiting page shows, for its next request to compare."""
        query = self.query
        return f"{query.status} {len(query.rungs)} {query.progress}" if query else ""

    @property
    def compares(self) -> bool:
        """Whether the rows have a speedup, which takes a current batch that fits."""
        return any(row.rung.speedup for row in self.rows)

    @property
    def in_table(self) -> list[RungRow]:
        """The rows as the table has them: the largest gain first."""
        by_rung = {id(row.rung): row for row in self.rows}
        return [by_rung[id(rung)] for rung in by_gain(row.rung for row in self.rows)]

    @property
    def offers(self) -> list[RungOffer]:
        """The best rung that keeps the global batch, and that changes it; none before the end."""
        today = next((row.rung for row in self.rows if row.rung.global_batch_before), None)
        if not self.is_final or today is None:
            return []
        rungs = [row.rung for row in self.rows]
        found = [best_of(rungs, keeps_global_batch=keeps) for keeps in (True, False)]
        if not any(found):
            return []
        kept, changed = found
        before = today.global_batch_before or 0
        after = None if changed is None else changed.global_batch_size
        return [
            self._offer(kept_title(before), kept),
            self._offer(changed_title(before, after), changed),
        ]

    def _offer(self, title: str, rung: Rung | None) -> RungOffer:
        row = next((row for row in self.rows if row.rung is rung), None)
        if row is None or rung is None:
            outcome = "is surely faster" if self.compares else "surely fits"
            return RungOffer(title, why_none=f"Nothing that was tried {outcome}.")
        return RungOffer(
            title,
            row.name,
            rung.speedup,
            rung.speedup_low,
            rung.speedup_high,
            rung.batch_size,
            rung.samples_per_second,
            rung.learning_rate,
            index=row.index,
        )

    @property
    def shown(self) -> RungRow | None:
        """The row whose answer the page shows."""
        return self.rows[self.chosen] if self.rows and self.chosen is not None else None


@dataclass(frozen=True)
class RungOffer(Offer):
    """One of the two ways to train faster, with its place in the ladder.

    Attributes:
        index: The index of its row; ``None`` without one.
    """

    index: int | None = None


def ladder_of(member: User, analysis: Analysis, wanted: str = "") -> Ladder:
    """The ladder of an analysis.

    Args:
        member: The reader.
        analysis: Not cancelled.
        wanted: The row to show, from the address; by default the analysis's decision.
    """
    if program := stored_program(asked_fields(analysis)):
        has_gpus = bool((analysis.result or {}).get("compared_gpus"))  # they came with it
        if has_gpus:
            change = "change yours, push it again, and compare the two analyses"
            return Ladder(refused=f"{NEVER_RUN}; {change}")
        return Ladder(refused=NEVER_RUN, command=program.plan_command)
    try:
        asked = plan_request(analysis)
    except InvalidInput as error:
        return Ladder(refused="; ".join(error.fields.values()))
    query = plans.latest_or_earlier(member, QueryKind.PLAN, asked)
    if query is None or query.status == QueryStatus.DROPPED:
        return Ladder(starts=_is_fresh(analysis))
    rungs = plans.ladder_of(query)
    rows = [_rung_row(rung, index, analysis.pk) for index, rung in enumerate(rungs)]
    answered = query.status == QueryStatus.ANSWERED
    chosen = _chosen(rows, analysis, wanted)
    return Ladder(
        query=query,
        rows=rows,
        chosen=chosen,
        result=_instead(rows[chosen].rung, analysis) if rows and chosen is not None else None,
        no_worker=query.status == QueryStatus.WAITING and not queries.worker_is_online(),
        advice=advice_of(query, analysis) if answered else None,
    )


def _is_fresh(analysis: Analysis) -> bool:
    ended = analysis.finished_at
    return ended is None or timezone.now() - ended < STARTS_WITHIN


def _chosen(rows: Sequence[RungRow], analysis: Analysis, wanted: str) -> int | None:
    """The index of the row to show: the requested one, else that of the decision."""
    shown = [index for index, row in enumerate(rows) if row.rung.result is not None]
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 4 and int(wanted) in shown:
        return int(wanted)
    if moves := decided_moves(analysis):
        return next((index for index in shown if rows[index].rung.moves == moves), None)
    return 0 if analysis.has_answer or analysis.does_not_fit else None


def _instead(rung: Rung, analysis: Analysis) -> AnalysisResult | None:
    """The answer of a row to show; ``None`` where that is the stored one."""
    moves = decided_moves(analysis)
    if analysis.result is not None and rung.moves == moves:
        return None
    if not is_as_it_is(rung):
        return rung.result
    return own_result(analysis) if moves else None


# The plan as rows


@dataclass(frozen=True)
class RungRow:
    """One rung of the ladder.

    Attributes:
        index: Its place in the ladder, by which addresses name it.
        form_query: Fills the form of a new analysis with its moves.
    """

    rung: Rung
    index: int
    form_query: str

    @property
    def name(self) -> str:
        return ", ".join(self.rung.moves) or "as it is"

    @property
    def training(self) -> str:
        """Whether it raises the batch or keeps the training as it is, in a few words."""
        rung = self.rung
        if rung.training or not rung.moves:
            return rung.training[:1].upper() + rung.training[1:]
        # Stored by an older version.
        return "Same learning" if rung.learning is Learning.NONE else f"Changes: {rung.learning}"

    @property
    def is_gain(self) -> bool:
        return self.rung.is_worth_it


@dataclass(frozen=True)
class Advice:
    """Parts of a finished plan besides the ladder.

    Attributes:
        room: Possible uses of the free memory; ``None`` if there are none.
    """

    gpus: GpuComparison
    room: Room | None


def advice_of(query: Query, analysis: Analysis) -> Advice | None:
    """The advice in a plan; ``None`` if an incompatible version stored it."""
    try:
        plan: Mapping[str, Any] = query.answer or {}
        workload = plan.get("workload") or query.request
        return Advice(
            comparison_of(plan["options"], query.request, workload, plan["caveats"], analysis.pk),
            read_json(Room, plan["room"]) if plan["room"] else None,
        )
    except (KeyError, TypeError, ValueError):
        return None


def _rung_row(rung: Rung, index: int, analysis: int) -> RungRow:
    fields = dict(rung.fields)
    if rung.batch_size is not None:
        fields["current_batch_size"] = rung.batch_size
    if "global_batch_size" in fields:  # from which accumulation follows
        fields["gradient_accumulation"] = 1
    return RungRow(rung, index, form_query(analysis, fields))
