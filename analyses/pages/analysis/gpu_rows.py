"""A workload on every GPU, as the page of an analysis shows it: map, table and the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import urlencode

from analyses.charts.gpu_map import GpuMap, gpu_maps, short_name
from analyses.lab.settings import DatedPrice, prices_for
from analyses.models import Analysis
from engine.answer.economics import usd_per_million_samples
from engine.answer.figures import COST
from engine.answer.superlatives import CHEAPEST_PER_SAMPLE, FASTEST, LOWEST_PRICE, of_those
from engine.gpus import GPUS
from engine.interface.result import AnalysisResult
from engine.interface.subject import program_hash_in
from engine.interface.tokens import Tokens, tokens_of

RUNNERS_UP = 3


@dataclass(frozen=True)
class GpuRow:
    """The workload on one GPU of the catalogue: predicted, at an assumed price.

    Attributes:
        price_per_hour_usd: Price of one GPU, on demand unless it is :attr:`at_spot_price`; ``None``
            where none is known, and then no cost is either.
        price_date: See :attr:`~analyses.lab.settings.HeldPrice.date`; empty once it was changed.
        may_not_fit: Whether the recommended batch fits only if memory is not underestimated.
        marks: Qualities in which it is best, of the GPUs that surely fit if any does.
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
    may_not_fit: bool = False
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
class GpuComparison:
    """A workload on every GPU.

    Attributes:
        rows: The cheapest per sample first; those that may not fit after those that surely do.
        best: The cheapest that surely fits, with its number and the runners-up, in sentences.
        maps: One for each kind of price.
        tokens: How tokens are counted besides samples; ``None`` where they are not.
        is_chosen: Whether the answer has chosen its GPU among these; else it is the member's.
    """

    rows: list[GpuRow]
    best: str
    maps: list[GpuMap]
    caveats: list[str]
    is_on_several: bool
    tokens: Tokens | None
    is_chosen: bool = False


def offers_of(result: AnalysisResult, analysis: Analysis) -> GpuComparison | None:
    """The GPUs among which an answer has chosen its own; ``None`` where one was given."""
    options = [asdict(offer) for offer in result.compared_gpus if offer.gpu in GPUS]
    if not options:
        return None
    request = analysis.request
    compared = comparison_of(options, request, request, [], analysis.pk)
    return replace(compared, is_chosen=True)


def comparison_of(
    options: Iterable[Mapping[str, Any]],
    request: Mapping[str, Any],
    workload: Mapping[str, Any],
    caveats: Sequence[str],
    analysis: int,
) -> GpuComparison:
    """The comparison of stored options.

    Args:
        options: Fields of ``GpuOption`` or ``GpuOffer``.
        request: The stored fields of the request.
        workload: The stored fields of what is trained, which have every size if it was answered.
        caveats: Caveats about the numbers.
        analysis: The id of the analysis, for links.
    """
    prices = prices_for(request)
    rows = sorted(
        _marked([_gpu_row(option, request, prices, analysis) for option in options]), key=_by_cost
    )
    return GpuComparison(
        rows,
        _best(rows),
        gpu_maps([row.on_the_map for row in rows], [row.at_spot_price for row in rows]),
        caveats=[str(caveat) for caveat in caveats],
        is_on_several=int(request.get("world_size") or 1) > 1,
        tokens=tokens_of(workload),
    )


def _gpu_row(
    option: Mapping[str, Any],
    request: Mapping[str, Any],
    prices: Mapping[str, DatedPrice],
    analysis: int,
) -> GpuRow:
    name = str(option["gpu"])
    # As the ladder and the decision have it, though the lab may have changed it since.
    usd: float | None = option["price_per_hour_usd"]
    price = prices.get(name)
    is_still_held = price is not None and price.usd == usd
    spot_price = GPUS[name].spot_price_per_hour_usd
    row: dict[str, Any] = {
        "gpu": name,
        "name": GPUS[name].display_name,
        # An entered price applies only to the GPU it was entered for.
        "form_query": _form_query_on(name, request, analysis),
        "total_bytes": int(option["total_bytes"]),
        "is_current": name == request["gpu"],
        "price_per_hour_usd": usd,
        "price_date": price.date if price and is_still_held else "",
        "spot_price_per_hour_usd": spot_price,
        "spot_price_date": GPUS[name].spot_price_date,
    }
    if not option["fits"]:
        return GpuRow(**row, why_not=str(option["why_not"]) or "it does not fit")
    speed, hours = float(option["samples_per_second"]), option.get("hours_per_run")
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
        may_not_fit=option.get("is_sure") is False,  # an older version did not store it
    )


def _form_query_on(gpu: str, request: Mapping[str, Any], analysis: int) -> str:
    """Fills the form to analyze it on a GPU; empty for a script, which the site never runs."""
    if program_hash_in(request):
        return ""
    return form_query(analysis, {"gpu": gpu, "price_per_hour_usd": ""})


def _per_million(price: float | None, count: int, speed: float) -> float | None:
    """The cost of a million samples on ``count`` GPUs; ``None`` without a price."""
    return None if price is None else usd_per_million_samples(count * price, speed)


def _marked(rows: Sequence[GpuRow]) -> list[GpuRow]:
    """The rows, each with what it is best at."""
    compared = _compared(rows)
    costs: dict[str, Callable[[GpuRow], float | None]] = {
        LOWEST_PRICE: lambda row: row.price_per_hour_usd,
        CHEAPEST_PER_SAMPLE: lambda row: row.usd_per_million_samples,
        FASTEST: lambda row: -row.samples_per_second,
    }
    best: dict[str, GpuRow] = {}
    for superlative, cost in costs.items():
        known = [(size, row) for row in compared if (size := cost(row)) is not None]
        if known:
            first = min(known, key=lambda found: found[0])[1]
            best[of_those(superlative, is_sure=not first.may_not_fit)] = first
    return [
        replace(row, marks=tuple(mark for mark, first in best.items() if first is row))
        for row in rows
    ]


def _compared(rows: Sequence[GpuRow]) -> list[GpuRow]:
    """The GPUs to name the best of: of known speed, and those that surely fit if any does."""
    known = [row for row in rows if row.fits and not row.speed_is_a_guess]
    return [row for row in known if not row.may_not_fit] or known


def _by_cost(row: GpuRow) -> tuple[bool, bool, bool, float]:
    cost = row.usd_per_million_samples
    return not row.fits, row.may_not_fit, cost is None, cost or 0.0


def _best(rows: Sequence[GpuRow]) -> str:
    """The cheapest per sample with the runners-up, and those that are cheaper and may not fit."""
    priced = [row for row in _compared(rows) if row.usd_per_million_samples is not None]
    if not priced:
        return ""
    first, *others = sorted(priced, key=_by_cost)
    cheapest = of_those(CHEAPEST_PER_SAMPLE, is_sure=not first.may_not_fit).capitalize()
    none = " (none surely does)" if first.may_not_fit else ""
    cost = COST.text(first.usd_per_million_samples)
    said = [f"{cheapest}{none}: {short_name(first.name)}, {cost} per million."]
    if others:
        said.append(f"Then {_listed(others)}.")
    unsure = [row for row in rows if row.may_not_fit and _is_cheaper(row, first)]
    if unsure and not first.may_not_fit:
        said.append(f"Cheaper, but may not fit: {_listed(unsure)}.")
    return " ".join(said)


def _is_cheaper(row: GpuRow, than: GpuRow) -> bool:
    cost, other = row.usd_per_million_samples, than.usd_per_million_samples
    return not row.speed_is_a_guess and cost is not None and other is not None and cost < other


def _listed(rows: Sequence[GpuRow]) -> str:
    return ", ".join(
        f"{short_name(row.name)} {COST.text(row.usd_per_million_samples)}"
        for row in rows[:RUNNERS_UP]
    )


def form_query(analysis: int, fields: Mapping[str, Any]) -> str:
    typed = {name: "on" if value is True else str(value) for name, value in fields.items()}
    return urlencode({"from": analysis, **typed})
