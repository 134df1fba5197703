"""What else could help an analysis: other settings and GPUs, predicted on request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from analyses import queries
from analyses.lab import prices_for
from analyses.models import Analysis, Query, QueryKind, QueryStatus
from analyses.pages.access import MemberRequest, find_analysis
from analyses.queries import plan_request
from engine.answer.economics import usd_per_million_samples
from engine.answer.ladder import Rung
from engine.errors import InvalidInput
from engine.gpus import GPUS
from engine.tokens import Tokens, tokens_of

NOTHING = "nothing"
"""Sent by a poll of a page that shows no advice yet."""


@require_http_methods(["GET", "HEAD", "POST"])
def advice(request: MemberRequest, pk: int) -> HttpResponse:
    """Show what other settings and GPUs would gain; ``POST`` starts the prediction."""
    analysis = find_analysis(request, pk)
    try:
        wanted = plan_request(analysis)
    except InvalidInput as error:
        reason = "; ".join(error.fields.values())
        return _advice(request, analysis, None, reason)
    if request.method == "POST":
        query = queries.submit(request.user, QueryKind.PLAN, wanted, for_page=True)
        if not request.htmx:
            return redirect("analyses:advice", pk=pk)
    else:
        found = queries.latest(request.user, QueryKind.PLAN, wanted)
        if found is None or found.status == QueryStatus.DROPPED:
            if request.GET.get("seen") == NOTHING:
                return HttpResponse(status=204)
            return _advice(request, analysis, None)
        query = found
        queries.keep_alive(query)
        if not query.is_final and request.GET.get("seen") == _seen(query):
            return HttpResponse(status=204)
    return _advice(request, analysis, query)


def _advice(
    request: MemberRequest, analysis: Analysis, query: Query | None, refused: str = ""
) -> HttpResponse:
    answered = query is not None and query.status == QueryStatus.ANSWERED
    context = {
        "analysis": analysis,
        "query": query,
        "seen": query and _seen(query),
        "advice": advice_of(query, analysis) if query and answered else None,
        "ladder": ladder_rows(query, analysis) if query else [],
        "refused": refused,
        "no_worker": query is not None
        and query.status == QueryStatus.WAITING
        and not queries.worker_is_online(),
    }
    template = "advice/_advice.html" if request.htmx else "advice/advice.html"
    return render(request, template, context)


def _seen(query: Query) -> str:
    """The state of a waiting section, for the next poll to compare."""
    return f"{query.status} {len(query.rungs)} {query.progress}"


# The plan as rows of two tables


@dataclass(frozen=True)
class RungRow:
    """One rung of the ladder; ``form_query`` fills the form of a new analysis with its moves."""

    rung: Rung
    form_query: str

    @property
    def name(self) -> str:
        return ", ".join(self.rung.moves) or "as it is"

    @property
    def is_gain(self) -> bool:
        return self.rung.speedup_low is not None and self.rung.speedup_low > 1


@dataclass(frozen=True)
class GpuRow:
    """The workload on one GPU of the catalogue: predicted, at an assumed price.

    ``marks`` name what it is best at.
    """

    gpu: str
    name: str
    form_query: str
    why_not: str
    total_bytes: int
    is_current: bool
    price_per_hour_usd: float
    largest_batch_size: int = 0
    recommended_batch_size: int | None = None
    samples_per_second: float = 0.0
    samples_per_second_low: float = 0.0
    samples_per_second_high: float = 0.0
    usd_per_million_samples: float = 0.0
    usd_per_run: float | None = None
    marks: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.why_not


@dataclass(frozen=True)
class Advice:
    """The whole section.

    Attributes:
        ladder: As far as it is known.
        tokens: How tokens are counted beside samples; ``None`` where they are not.
    """

    ladder: list[RungRow]
    gpus: list[GpuRow]
    caveats: list[str]
    current_batch_size: int
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
            ladder=ladder_rows(query, analysis),
            gpus=sorted(_marked(options), key=_by_cost),
            caveats=[str(caveat) for caveat in plan["caveats"]],
            current_batch_size=int(plan["current_batch_size"]),
            is_on_several=int(query.request.get("world_size") or 1) > 1,
            tokens=tokens_of(plan.get("workload") or query.request),
        )
    except (KeyError, TypeError, ValueError):
        return None


def ladder_rows(query: Query, analysis: Analysis) -> list[RungRow]:
    """The ladder of a plan that may still run."""
    return [_rung_row(rung, analysis.pk) for rung in queries.ladder_of(query)]


def _rung_row(rung: Rung, analysis: int) -> RungRow:
    fields = dict(rung.fields)
    if rung.batch_size is not None:
        fields["current_batch_size"] = rung.batch_size
    return RungRow(rung, _form_query(analysis, fields))


def _gpu_row(
    option: Mapping[str, Any],
    request: Mapping[str, Any],
    prices: Mapping[str, float],
    analysis: int,
) -> GpuRow:
    name = str(option["gpu"])
    price = prices[name]
    row: dict[str, Any] = {
        "gpu": name,
        "name": GPUS[name].display_name,
        # An entered price applies only to the GPU it was entered for.
        "form_query": _form_query(analysis, {"gpu": name, "price_per_hour_usd": ""}),
        "total_bytes": int(option["total_bytes"]),
        "is_current": name == request["gpu"],
        "price_per_hour_usd": price,
    }
    if not option["fits"]:
        return GpuRow(**row, why_not=str(option["why_not"]) or "it does not fit")
    speed, hours = float(option["samples_per_second"]), option["hours_per_run"]
    all_gpus = price * int(request.get("world_size") or 1)
    return GpuRow(
        **row,
        why_not="",
        largest_batch_size=int(option["largest_batch_size"]),
        recommended_batch_size=int(option["recommended_batch_size"]),
        samples_per_second=speed,
        samples_per_second_low=float(option["samples_per_second_low"]),
        samples_per_second_high=float(option["samples_per_second_high"]),
        usd_per_million_samples=usd_per_million_samples(all_gpus, speed),
        usd_per_run=None if hours is None else float(hours) * price,
    )


def _marked(rows: Sequence[GpuRow]) -> list[GpuRow]:
    """The rows, each with what it is best at among the GPUs that fit."""
    fitting = [row for row in rows if row.fits]
    best: dict[str, GpuRow] = {}
    if fitting:
        costs: dict[str, Callable[[GpuRow], float]] = {
            "cheapest": lambda row: row.price_per_hour_usd,
            "best value": lambda row: row.usd_per_million_samples,
            "fastest": lambda row: -row.samples_per_second,
        }
        best = {mark: min(fitting, key=cost) for mark, cost in costs.items()}
    return [
        replace(row, marks=tuple(mark for mark, first in best.items() if first is row))
        for row in rows
    ]


def _by_cost(row: GpuRow) -> tuple[bool, float]:
    return not row.fits, row.usd_per_million_samples


def _form_query(analysis: int, fields: Mapping[str, Any]) -> str:
    typed = {name: "on" if value is True else str(value) for name, value in fields.items()}
    return urlencode({"from": analysis, **typed})
