"""The ladder of an analysis as its page shows it, with other GPUs and the room that is left.

It is predicted by a query of its own, which starts with the analysis and fills the page as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.utils import timezone

from analyses import queries
from analyses.charts.gpu_map import GpuMap, gpu_maps
from analyses.decided import decided_moves
from analyses.lab import DatedPrice, prices_for
from analyses.models import Analysis, Query, QueryKind, QueryStatus
from analyses.queries import plan_request
from engine.answer.economics import usd_per_million_samples
from engine.answer.ladder import Learning, Rung, best_of, by_gain
from engine.answer.plan import Room
from engine.core.border import read_json
from engine.core.errors import InvalidInput
from engine.core.numbers import whole
from engine.gpus import GPUS
from engine.interface.result import AnalysisResult
from engine.interface.tokens import Tokens, tokens_of

STARTS_WITHIN = timedelta(minutes=10)
"""The ladder of an analysis that ended longer ago starts on request."""


@dataclass(frozen=True)
class Ladder:
    """The ladder of an analysis as its page shows it.

    Attributes:
        query: The plan's query; ``None`` before it is requested.
        rows: The rows known so far, in order.
        chosen: The index of the row whose answer the page shows.
        refused: Why there cannot be one; empty if there can.
        starts: Whether the page starts it by itself.
        no_worker: Whether nobody is there to work on it.
        advice: GPUs and room; ``None`` until the query has ended, or if another version stored it.
    """

    query: Query | None = None
    rows: list[RungRow] = field(default_factory=list)
    chosen: int = 0
    refused: str = ""
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
    def gpu_maps(self) -> list[GpuMap]:
        rows = self.advice.gpus if self.advice else []
        return gpu_maps([row.on_the_map for row in rows], [row.at_spot_price for row in rows])

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
    def offers(self) -> list[Offer]:
        """What keeps the global batch and what changes it; none before all rows are known."""
        today = next((row.rung for row in self.rows if row.rung.global_batch_before), None)
        if not self.is_final or today is None:
            return []
        rungs = [row.rung for row in self.rows]
        found = [best_of(rungs, keeps_global_batch=keeps) for keeps in (True, False)]
        if not any(found):
            return []
        rows = [next((row for row in self.rows if row.rung is rung), None) for rung in found]
        before = whole(today.global_batch_before)
        kept, changed = rows
        title = f"Another global batch than {before}"
        if changed is not None:
            after = changed.rung.global_batch_size or 0
            verb = "Raises" if after > (today.global_batch_before or 0) else "Lowers"
            title = f"{verb} the global batch from {before} to {whole(after)}"
        return [Offer(f"Keeps the global batch of {before}", kept), Offer(title, changed)]

    @property
    def result(self) -> AnalysisResult | None:
        """The answer that the page shows instead of the stored one."""
        return self.shown.rung.result if self.shown and self.chosen else None

    @property
    def shown(self) -> RungRow | None:
        """The row whose answer the page shows."""
        return self.rows[self.chosen] if self.rows else None


@dataclass(frozen=True)
class Offer:
    """The best way to keep the global batch, or to change it; ``row`` is ``None`` without one."""

    title: str
    row: RungRow | None


def ladder_of(member: User, analysis: Analysis, wanted: str = "") -> Ladder:
    """The ladder of an analysis.

    Args:
        member: The reader.
        analysis: Not cancelled.
        wanted: The row to show, from the address; by default the best one, once all are known.
    """
    try:
        asked = plan_request(analysis)
    except InvalidInput as error:
        return Ladder(refused="; ".join(error.fields.values()))
    query = queries.latest(member, QueryKind.PLAN, asked)
    if query is None or query.status == QueryStatus.DROPPED:
        return Ladder(starts=_is_fresh(analysis))
    rungs = queries.ladder_of(query)
    rows = [_rung_row(rung, index, analysis.pk) for index, rung in enumerate(rungs)]
    answered = query.status == QueryStatus.ANSWERED
    return Ladder(
        query=query,
        rows=rows,
        chosen=_chosen(rows, analysis, wanted, may_choose=query.is_final),
        no_worker=query.status == QueryStatus.WAITING and not queries.worker_is_online(),
        advice=advice_of(query, analysis) if answered else None,
    )


def _is_fresh(analysis: Analysis) -> bool:
    ended = analysis.finished_at
    return ended is None or timezone.now() - ended < STARTS_WITHIN


def _chosen(rows: Sequence[RungRow], analysis: Analysis, wanted: str, *, may_choose: bool) -> int:
    """The index of the row to show: the requested one, the one adopted, else the best.

    A measured answer stays until another is requested: those of the ladder are predicted.
    A larger global batch learns something else, so what keeps it comes first. Adapters do too, so
    nobody is switched to them unasked, unless nothing fits without them.
    """
    shown = [index for index, row in enumerate(rows) if row.rung.result is not None]
    if wanted.isascii() and wanted.isdigit() and len(wanted) < 4 and int(wanted) in shown:
        return int(wanted)
    if analysis.adopted_at is not None:
        moves = decided_moves(analysis)
        return next((i for i in shown if moves and rows[i].rung.moves == moves), 0)
    if not may_choose or analysis.measured_gpu:
        return 0
    better = [index for index in shown if index and rows[index].rung.helps]
    same_model = [i for i in better if rows[i].rung.learning is not Learning.TRAINED]
    left = same_model or (better if analysis.result is None else [])
    kept = [i for i in left if rows[i].rung.keeps_global_batch]
    return next(iter(kept or left), 0)


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
class GpuRow:
    """The workload on one GPU of the catalogue: predicted, at an assumed price.

    Attributes:
        price_per_hour_usd: Price of one GPU, on demand unless it is :attr:`at_spot_price`; ``None``
            where none is known, and then no cost is either.
        price_date: See :attr:`~analyses.lab.HeldPrice.date`.
        marks: Qualities in which it is best.
        speed_is_a_guess: See :class:`~engine.answer.plan.GpuOption`.
    """

    gpu: str
    name: str
    form_query: str
    why_not: str
    total_bytes: int
    is_current: bool
    price_per_hour_usd: float | None
    price_date: str
    spot_price_per_hour_usd: float | None = None
    spot_price_date: str = ""
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    samples_per_second: float = 0.0
    samples_per_second_low: float = 0.0
    samples_per_second_high: float = 0.0
    usd_per_million_samples: float | None = None
    spot_usd_per_million_samples: float | None = None
    usd_per_run: float | None = None
    speed_is_a_guess: bool = False
    marks: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.why_not

    @property
    def on_the_map(self) -> GpuRow:
        """The same as the map of GPUs shows it, which takes a price and a speed."""
        if not self.fits:
            return self
        if self.speed_is_a_guess:
            return replace(self, why_not="its speed is a guess")
        if self.price_per_hour_usd is None:
            return replace(self, why_not="no price is known")
        return self

    @property
    def at_spot_price(self) -> GpuRow:
        """The same at the catalogue's spot price."""
        if not self.fits or self.speed_is_a_guess:
            return self.on_the_map
        if self.spot_price_per_hour_usd is None:
            return replace(self, why_not="no dated spot price is known")
        return replace(
            self,
            price_per_hour_usd=self.spot_price_per_hour_usd,
            price_date=self.spot_price_date,
            usd_per_million_samples=self.spot_usd_per_million_samples,
        )


@dataclass(frozen=True)
class Advice:
    """Parts of a finished plan besides the ladder.

    Attributes:
        room: Possible uses of the free memory; ``None`` if there are none.
        tokens: How tokens are counted besides samples; ``None`` where they are not.
    """

    gpus: list[GpuRow]
    room: Room | None
    caveats: list[str]
    is_on_several: bool
    tokens: Tokens | None


def advice_of(query: Query, analysis: Analysis) -> Advice | None:
    """The advice in a plan; ``None`` if an incompatible version stored it."""
    try:
        plan: Mapping[str, Any] = query.answer or {}
        prices = prices_for(query.request)
        options = [
            _gpu_row(option, query.request, prices, analysis.pk) for option in plan["options"]
        ]
        return Advice(
            gpus=sorted(_marked(options), key=_by_cost),
            room=read_json(Room, plan["room"]) if plan["room"] else None,
            caveats=[str(caveat) for caveat in plan["caveats"]],
            is_on_several=int(query.request.get("world_size") or 1) > 1,
            tokens=tokens_of(plan.get("workload") or query.request),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _rung_row(rung: Rung, index: int, analysis: int) -> RungRow:
    fields = dict(rung.fields)
    if rung.batch_size is not None:
        fields["current_batch_size"] = rung.batch_size
    if "global_batch_size" in fields:  # from which accumulation follows
        fields["gradient_accumulation"] = 1
    return RungRow(rung, index, _form_query(analysis, fields))


def _gpu_row(
    option: Mapping[str, Any],
    request: Mapping[str, Any],
    prices: Mapping[str, DatedPrice],
    analysis: int,
) -> GpuRow:
    name = str(option["gpu"])
    price = prices.get(name)
    usd = None if price is None else price.usd
    spot_price = GPUS[name].spot_price_per_hour_usd
    row: dict[str, Any] = {
        "gpu": name,
        "name": GPUS[name].display_name,
        # An entered price applies only to the GPU it was entered for.
        "form_query": _form_query(analysis, {"gpu": name, "price_per_hour_usd": ""}),
        "total_bytes": int(option["total_bytes"]),
        "is_current": name == request["gpu"],
        "price_per_hour_usd": usd,
        "price_date": price.date if price else "",
        "spot_price_per_hour_usd": spot_price,
        "spot_price_date": GPUS[name].spot_price_date,
    }
    if not option["fits"]:
        return GpuRow(**row, why_not=str(option["why_not"]) or "it does not fit")
    speed, hours = float(option["samples_per_second"]), option["hours_per_run"]
    count = int(request.get("world_size") or 1)
    return GpuRow(
        **row,
        why_not="",
        largest_batch_size=int(option["largest_batch_size"]),
        recommended_batch_size=int(option["recommended_batch_size"]),
        samples_per_second=speed,
        samples_per_second_low=float(option["samples_per_second_low"]),
        samples_per_second_high=float(option["samples_per_second_high"]),
        usd_per_million_samples=_per_million(usd, count, speed),
        spot_usd_per_million_samples=_per_million(spot_price, count, speed),
        usd_per_run=None if hours is None or usd is None else float(hours) * usd,
        speed_is_a_guess=bool(option.get("speed_is_a_guess")),
    )


def _per_million(price: float | None, count: int, speed: float) -> float | None:
    """The cost of a million samples on ``count`` GPUs; ``None`` without a price."""
    return None if price is None else usd_per_million_samples(count * price, speed)


def _marked(rows: Sequence[GpuRow]) -> list[GpuRow]:
    """The rows, each with what it is best at among the GPUs that fit."""
    compared = [row for row in rows if row.fits and not row.speed_is_a_guess]
    costs: dict[str, Callable[[GpuRow], float | None]] = {
        "cheapest": lambda row: row.price_per_hour_usd,
        "best value": lambda row: row.usd_per_million_samples,
        "fastest": lambda row: -row.samples_per_second,
    }
    best: dict[str, GpuRow] = {}
    for mark, cost in costs.items():
        known = [(size, row) for row in compared if (size := cost(row)) is not None]
        if known:
            best[mark] = min(known, key=lambda found: found[0])[1]
    return [
        replace(row, marks=tuple(mark for mark, first in best.items() if first is row))
        for row in rows
    ]


def _by_cost(row: GpuRow) -> tuple[bool, bool, float]:
    cost = row.usd_per_million_samples
    return not row.fits, cost is None, cost or 0.0


def _form_query(analysis: int, fields: Mapping[str, Any]) -> str:
    typed = {name: "on" if value is True else str(value) for name, value in fields.items()}
    return urlencode({"from": analysis, **typed})
