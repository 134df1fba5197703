"""The choice of a GPU: of the catalogue, the one that trains a workload at the lowest cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from ...answer.economics import usd_per_million_samples
from ...answer.superlatives import of_those
from ...core.errors import DoesNotFit, EngineError, InvalidInput
from ...core.numbers import significant, usd
from ...core.sizes import gib_of
from ...events import Emit, Event, Log, Stage
from ...gpus import Gpu
from ...gpus.known import known_gpus
from ...interface.request import Request
from ...interface.result import GpuOffer
from ..limits import find_limits
from ..prediction import Prediction
from ..requested_gpu import price_per_hour
from .side_by_side import SideBySide, processes_here

_SECONDS_PER_HOUR = 3600

_Request = TypeVar("_Request", bound=Request)


@dataclass(frozen=True)
class PricedOffer:
    """A workload on one GPU at the batch that is recommended there; predicted, at assumed prices.

    Attributes:
        listed: What the result tells of it.
        usd_per_hour: Price of all GPUs that share the work.
        hours_per_million: Time for a million samples.
        usd_per_million: Cost of a million samples.
    """

    gpu: Gpu
    listed: GpuOffer
    usd_per_hour: float
    hours_per_million: float
    usd_per_million: float

    @property
    def is_sure(self) -> bool:
        return self.listed.is_sure


@dataclass(frozen=True)
class GpuChoice(Generic[_Request]):
    """The GPU that was chosen.

    Attributes:
        request: The request for it.
        claim: Its merit, with its condition and number: ``cheapest that surely fits, $654 per
            million samples``.
        reason: The same in a sentence, with the runners-up.
        compared: Every GPU that was compared.
    """

    request: _Request
    claim: str
    reason: str
    compared: list[GpuOffer]


@dataclass(frozen=True)
class Shortage:
    """A GPU on which not even the smallest batch fits, and what that would need."""

    gpu: Gpu
    batch_size: int
    needed_bytes: int

    @property
    def listed(self) -> GpuOffer:
        return GpuOffer(self.gpu.name, self.gpu.total_bytes, fits=False, why_not=str(self))

    def __str__(self) -> str:
        needs = gib_of(self.needed_bytes, self.gpu.total_bytes, 1)
        return f"{self.gpu.display_name}: batch {self.batch_size:,} needs {needs}"


_Found = PricedOffer | Shortage | InvalidInput
_On = Callable[[_Request, Gpu, Emit], Prediction | InvalidInput]
"""Predictions for a request on its GPU, or why it cannot run there."""

_Groups = Callable[[Sequence[Gpu], Sequence[Gpu]], list[list[Gpu]]]
"""Divides GPUs among processes, given those that one has begun with."""


def choose_gpu(
    request: _Request,
    on: _On[_Request],
    refusal: Callable[[Shortage], DoesNotFit],
    emit: Emit,
    groups: _Groups | None = None,
) -> GpuChoice[_Request]:
    """Choose the GPU that surely fits a model or a script at the lowest cost, within its limit.

    Args:
        request: A request for ``any`` GPU.
        on: Predictions for it on a GPU, or why it cannot run there.
        refusal: Makes the error to raise if it fits on none, from the one where it nearly does.
        emit: Receives a log line for each GPU.
        groups: Divides GPUs among processes, once the first was predicted, given those that a
            process has begun with; by default by compute capability, as those are traced alike.

    Raises:
        InvalidInput: If no GPU can run it, or none is within the limit.
        DoesNotFit: The refusal.
    """
    compared, left_out = _comparable(request)
    if left_out:
        emit(Log(left_out))
    on_each = partial(_offer, request, on)
    found = _on_each(compared, on_each, _without_repeats(emit), groups or _by_capability)
    offers = [one for one in found if isinstance(one, PricedOffer)]
    if not offers:
        raise _why_none(found, refusal)
    sure = [offer for offer in offers if offer.is_sure] or offers
    within = [offer for offer in sure if _is_within(request, offer)]
    if not within:
        raise InvalidInput(_beyond_limit(request, sure))
    best, *others = sorted(within, key=lambda offer: offer.usd_per_million)
    cheaper = [one for one in offers if one.usd_per_million < best.usd_per_million]
    claim = _claim(best, is_limited=_is_limited(request))
    reason = _reason(best, claim, others, cheaper)
    emit(Log(reason))
    return GpuChoice(
        _request_on(request, best.gpu),
        claim,
        reason,
        [one.listed for one in found if not isinstance(one, InvalidInput)],
    )


def _comparable(request: Request) -> tuple[list[Gpu], str]:
    """The GPUs whose cost is known, and a sentence about the others."""
    every = known_gpus(request.launch_microseconds).values()
    compared = [gpu for gpu in every if gpu.rates_known and gpu.price_per_hour_usd is not None]
    others = [gpu.display_name for gpu in every if gpu not in compared]
    if not others:
        return compared, ""
    return compared, (
        "Not compared, since no price is known or no step of the vendor's GPUs was measured: "
        f"{', '.join(others)}"
    )


def _on_each(
    gpus: Sequence[Gpu],
    on_each: Callable[[Gpu, Emit], _Found],
    emit: Emit,
    groups: _Groups,
) -> list[_Found]:
    """The offer of each GPU, or why there is none, found side by side.

    The first one is traced here, so that the processes share its traces. One process begins
    meanwhile, with the GPUs of another compute capability, which may be traced otherwise.

    Args:
        gpus: The GPUs.
        on_each: Finds the offer of one.
        emit: Receives what is told on the way.
        groups: Divides GPUs among processes.
    """
    first, *others = gpus
    of_other_kinds = [gpu for gpu in others if gpu.compute_capability != first.compute_capability]
    begun = next(iter(_by_capability(of_other_kinds)), [])
    tasks: SideBySide[tuple[str, ...], tuple[list[_Found], list[Event]]] = SideBySide(
        processes_here()
    )

    def add(some: Sequence[Gpu]) -> None:
        tasks.add(tuple(gpu.name for gpu in some), partial(_of_some, some, on_each))

    with tasks:
        if begun:
            add(begun)
            tasks.begin()
        found = {first.name: on_each(first, emit)}
        for some in groups([gpu for gpu in others if gpu not in begun], begun):
            add(some)
        for names, result in tasks.results():
            if isinstance(result, EngineError):
                raise result
            values, events = result
            found |= zip(names, values, strict=True)
            for event in events:
                emit(event)
            emit(Stage("search", len(found) / len(gpus)))
    return [found[gpu.name] for gpu in gpus]


def _by_capability(gpus: Sequence[Gpu], _begun: Sequence[Gpu] = ()) -> list[list[Gpu]]:
    """GPUs by compute capability; more memory takes longer to fill, so the most goes first."""
    alike: dict[float, list[Gpu]] = {}
    for gpu in gpus:
        alike.setdefault(gpu.compute_capability, []).append(gpu)
    return sorted(alike.values(), key=lambda some: -sum(gpu.total_bytes for gpu in some))


def _of_some(
    gpus: Sequence[Gpu], on_each: Callable[[Gpu, Emit], _Found]
) -> tuple[list[_Found], list[Event]]:
    """The same of some GPUs, one after another, and the events of finding it."""
    events: list[Event] = []
    return [on_each(gpu, events.append) for gpu in gpus], events


def _offer(request: _Request, on: _On[_Request], gpu: Gpu, emit: Emit) -> _Found:
    """The offer of one GPU, or why there is none."""
    try:
        there = _request_on(request, gpu)
    except InvalidInput as refused:
        return refused
    prediction = on(there, gpu, emit)
    if isinstance(prediction, InvalidInput):
        return prediction
    limits = find_limits(prediction)
    if limits.choice is None:
        smallest = prediction.fit(limits.batch_multiple)
        shortage = Shortage(gpu, smallest.batch_size, smallest.device_used_bytes or 0)
        emit(Log(f"{shortage}, so it does not fit"))
        return shortage
    trial = prediction.predict(limits.choice.batch_size)
    speed, seconds = trial.samples_per_second, trial.step_seconds
    shortest, longest = trial.step_seconds_low, trial.step_seconds_high
    if not (speed and seconds and shortest and longest):
        raise ValueError(f"batch {limits.choice.batch_size} is recommended and has no speed")
    per_hour = price_per_hour(there, gpu) * request.world_size
    cost = usd_per_million_samples(per_hour, speed)
    emit(Log(f"{gpu.display_name}: {usd(cost)} per million samples, at an assumed price"))
    listed = GpuOffer(
        gpu.name,
        gpu.total_bytes,
        fits=True,
        is_sure=limits.safe_batch_size >= limits.choice.batch_size,
        price_per_hour_usd=price_per_hour(there, gpu),
        largest_batch_size=limits.outcome.largest_batch_size,
        recommended_batch_size=limits.choice.batch_size,
        samples_per_second=speed,
        samples_per_second_low=speed * seconds / longest,
        samples_per_second_high=speed * seconds / shortest,
        usd_per_million_samples=cost,
    )
    return PricedOffer(gpu, listed, per_hour, 1e6 / speed / _SECONDS_PER_HOUR, cost)


def _request_on(request: _Request, gpu: Gpu) -> _Request:
    """The request for one GPU; raises ``InvalidInput`` where that cannot run the workload."""
    return replace(
        request,
        gpu=gpu.name,
        assumptions=replace(request.assumptions, price_per_hour_usd=None),
        most_usd_per_hour=None,
        most_hours_per_million=None,
    )


def _why_none(
    found: Sequence[_Found], refusal: Callable[[Shortage], DoesNotFit]
) -> DoesNotFit | InvalidInput:
    """Why no GPU has an offer: it fits on none, or none can run it at all."""
    short = [one for one in found if isinstance(one, Shortage)]
    if not short:
        return next(one for one in found if isinstance(one, InvalidInput))
    return refusal(min(short, key=lambda one: one.needed_bytes / one.gpu.total_bytes))


def _is_within(request: Request, offer: PricedOffer) -> bool:
    limits = (
        (request.most_usd_per_hour, offer.usd_per_hour),
        (request.most_hours_per_million, offer.hours_per_million),
    )
    return all(most is None or value <= most for most, value in limits)


def _beyond_limit(request: Request, offers: Sequence[PricedOffer]) -> dict[str, str]:
    """Errors that say what the limit would have to be, by field."""
    wrong = {}
    cheapest = min(offers, key=lambda offer: offer.usd_per_hour)
    fastest = min(offers, key=lambda offer: offer.hours_per_million)
    if request.most_usd_per_hour is not None:
        wrong["most_usd_per_hour"] = (
            f"no GPU that fits costs so little; the cheapest is {cheapest.gpu.display_name} at "
            f"{usd(cheapest.usd_per_hour)} per hour"
        )
    if request.most_hours_per_million is not None:
        wrong["most_hours_per_million"] = (
            f"no GPU is that fast; the fastest that fits is {fastest.gpu.display_name} with "
            f"{significant(fastest.hours_per_million)} hours per million samples, as predicted"
        )
    return wrong


def _is_limited(request: Request) -> bool:
    return request.most_usd_per_hour is not None or request.most_hours_per_million is not None


def _claim(best: PricedOffer, *, is_limited: bool) -> str:
    """The merit of the chosen GPU: its condition and its number."""
    limit = " within the limits" if is_limited else ""
    best_of = of_those("cheapest", is_sure=best.is_sure)
    return f"{best_of}{limit}, {_cost(best)} per million samples"


def _reason(
    best: PricedOffer, claim: str, others: Sequence[PricedOffer], cheaper: Sequence[PricedOffer]
) -> str:
    """Why a GPU was chosen, with the next three, and those that would cost less.

    Args:
        best: The chosen one.
        claim: Its merit.
        others: Those that could have been chosen too, the cheapest first.
        cheaper: Those that cost less and could not.
    """
    said = [f"{best.gpu.display_name} is the {claim}, at an assumed price."]
    if runners_up := others[:_RUNNERS_UP]:
        said.append(f"Runners-up: {_listed(runners_up)}.")
    unsure = [one for one in cheaper if not one.is_sure]
    beyond = [one for one in cheaper if one.is_sure]
    for group, why in ((unsure, "may not fit"), (beyond, "exceeds the limits")):
        if group:
            first = sorted(group, key=lambda one: one.usd_per_million)[:_RUNNERS_UP]
            said.append(f"Cheaper, but {why}: {_listed(first)}.")
    return " ".join(said)


_RUNNERS_UP = 3


def _listed(offers: Sequence[PricedOffer]) -> str:
    return ", ".join(f"{one.gpu.display_name} {_cost(one)}" for one in offers)


def _cost(offer: PricedOffer) -> str:
    return usd(offer.usd_per_million)


def _without_repeats(emit: Emit) -> Emit:
    """Passes each event on once: GPUs that share traces all say so."""
    seen: set[str] = set()

    def once(event: Event) -> None:
        if (text := str(event)) not in seen:
            seen.add(text)
            emit(event)

    return once
