"""The ladder of an analysis as its page shows it, with other GPUs and the room that is left.

It is predicted by a query of its own, which starts with the analysis and fills the page as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
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
from analyses.results.ladders import pushed_ladder
from engine.answer.ladder import Learning, Rung, by_gain
from engine.answer.offers import Offer, offers_of_ladder
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
        query: The plan's query; ``None`` before it is requested, and of a script, whose ladder was
            pushed with it.
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
    def is_pushed(self) -> bool:
        """Whether it came with a script."""
        return self.query is None and bool(self.rows)

    @property
    def is_final(self) -> bool:
        return self.is_pushed if self.query is None else self.query.is_final

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
        if not self.is_final:
            return []
        index = {id(row.rung): row.index for row in self.rows}
        return [
            RungOffer(**asdict(offer), index=index.get(id(rung)))
            for offer, rung in offers_of_ladder([row.rung for row in self.rows])
        ]

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
        if rungs := pushed_ladder(analysis):
            return _known(rungs, analysis, wanted)
        return Ladder(refused=NEVER_RUN, command=program.plan_command)
    try:
        asked = plan_request(analysis)
    except InvalidInput as error:
        return Ladder(refused="; ".join(error.fields.values()))
    query = plans.latest_or_earlier(member, QueryKind.PLAN, asked)
    if query is None or query.status == QueryStatus.DROPPED:
        return Ladder(starts=_is_fresh(analysis))
    answered = query.status == QueryStatus.ANSWERED
    return replace(
        _known(plans.ladder_of(query), analysis, wanted),
        query=query,
        no_worker=query.status == QueryStatus.WAITING and not queries.worker_is_online(),
        advice=advice_of(query, analysis) if answered else None,
    )


def _known(rungs: Sequence[Rung], analysis: Analysis, wanted: str) -> Ladder:
    """The ladder of these rungs, as far as they are known."""
    rows = [_rung_row(rung, index, analysis) for index, rung in enumerate(rungs)]
    chosen = _chosen(rows, analysis, wanted)
    instead = _instead(rows[chosen].rung, analysis) if rows and chosen is not None else None
    return Ladder(rows=rows, chosen=chosen, result=instead)


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
        form_query: Fills the form of a new analysis with its moves; empty for a script.
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


def _rung_row(rung: Rung, index: int, analysis: Analysis) -> RungRow:
    if analysis.program_hash:  # which the form cannot run
        return RungRow(rung, index, "")
    fields = dict(rung.fields)
    if rung.batch_size is not None:
        fields["current_batch_size"] = rung.batch_size
    if "global_batch_size" in fields:  # from which accumulation follows
        fields["gradient_accumulation"] = 1
    return RungRow(rung, index, form_query(analysis.pk, fields))
