"""Trials of a model or a script on this machine's device, and what they show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from ..answer.conclusion import Findings
from ..answer.economics import Speedup, speedup, speedup_in_turn, within
from ..answer.recommendation import Recommendation, recommend_measured
from ..answer.search import SearchOutcome
from ..answer.worth import Option, is_worth_it
from ..core.errors import DoesNotFit, MeasurementFailed
from ..core.numbers import times
from ..events import Emit, Log
from ..interface.request import Request
from ..interface.result import Comparison, MeasuredOn
from ..interface.trial import GpuFacts, Probe, Source, Trial
from ..prediction.caveats import smaller_multiple_caveat
from ..prediction.predicted_findings import curve, reporting_probe
from ..traces.source import TraceSource
from .device import local_price_per_hour
from .parent import measure, measured_on, record
from .protocol import DeviceFacts, RecordedStep, TrialOrder
from .rounds import about_rounds, comparable, measure_in_turn
from .trial_search import search_by_trials

MEASURED_NOISE = 0.05
"""Assumed: medians of two fresh processes that did not run interleaved differ by up to this."""

_Answer = TypeVar("_Answer")


class Trials(ABC):
    """Trials of one subject on this machine's device; each batch size once.

    Args:
        request: The request to analyse; its GPU is ``local``.
        device: The device as it is.
        gpu: The device as the request limits it.
        traces: The traces of the subject here; ``None`` if it cannot be traced.
        predict: Predicts the memory of a batch size; ``None`` where that cannot be predicted.
        emit: Receives log lines and trials as they come.
        known: Measured trials of the same request, by batch size, which are not repeated.
    """

    def __init__(
        self,
        request: Request,
        device: DeviceFacts,
        gpu: GpuFacts,
        traces: TraceSource | None,
        predict: Probe | None,
        emit: Emit,
        known: Mapping[int, Trial] = MappingProxyType({}),
    ) -> None:
        self.request, self.device, self.gpu = request, device, gpu
        self.traces, self.predict, self._emit = traces, predict, emit
        self.probe = reporting_probe(self.run, emit, known)

    @abstractmethod
    def order(self, batch_size: int) -> TrialOrder:
        """The trial of a batch size, for another process to run."""

    @abstractmethod
    def refusal(self, batch_size: int) -> DoesNotFit:
        """The error for a subject of which not even the smallest batch fits."""

    @abstractmethod
    def completed(self, found: Findings) -> Findings:
        """Findings with what is known of this kind of subject alone: caveats, phases and more."""

    def run(self, batch_size: int) -> Trial:
        """Run the trial of a batch size."""
        return measure(self.order(batch_size))

    def findings(self) -> Findings:
        """The limit, certified by trials, and the batch to recommend.

        Raises:
            DoesNotFit: If not even the smallest batch fits.
            MeasurementFailed: If a trial failed for a reason other than memory.
        """
        request = self.request
        outcome = self.search(request)
        if outcome.largest_batch_size == 0 and request.batch_multiple > request.least_multiple:
            request = replace(request, batch_multiple=request.least_multiple)
            outcome = self.search(request)
        multiple = request.batch_multiple
        if outcome.largest_batch_size == 0:
            raise self.refusal(multiple)
        found = self._compared(outcome, recommend_measured(request, outcome))
        points = curve(self.predict, outcome, multiple) if self.predict else outcome.in_order
        caveats = [*found.caveats, *smaller_multiple_caveat(self.request, multiple)]
        return self.completed(replace(found, curve=points, caveats=caveats))

    def search(self, request: Request) -> SearchOutcome:
        """Find the largest batch, among the multiples that a request sets."""
        return search_by_trials(request, self.gpu, self.probe, self.predict, self._emit)

    def _compared(self, outcome: SearchOutcome, chosen: Recommendation) -> Findings:
        """Findings that follow a certified limit: interleaved speeds, and where memory goes.

        Without a curve, and only with the caveats about the comparison.
        """
        size, recommended = self.request.current_batch_size, self.probe(chosen.batch_size)
        current = None if size is None else self.probe(size)
        comparison, compared, foregone = None, [], chosen.foregone
        if current is not None and comparable(current, recommended):
            comparison = measure_in_turn(
                lambda size: measure(self.order(size)), current, recommended, self._emit
            )
            compared = about_rounds(comparison, MEASURED_NOISE)
            gained = _gained(current, recommended, comparison)
            if gained is not None and not is_worth_it(gained, Source.MEASURED):
                in_turn = comparison is not None
                compared = [_not_worth_it(current, recommended, gained, in_turn=in_turn)]
                foregone = Option(recommended.batch_size, gained)
                recommended, comparison = current, None
        order = self.order(recommended.batch_size)
        step = recorded(order, self.device, self._emit)
        return Findings(
            gpu=self.gpu,
            outcome=outcome,
            current=current,
            recommended=with_breakdown(recommended, step),
            fastest_batch_size=chosen.fastest,
            curve=(),
            price_per_hour_usd=local_price_per_hour(self.request, self.device),
            source=Source.MEASURED,
            span=within(MEASURED_NOISE),
            comparison=comparison,
            measured_on=ran_on(order, self._emit),
            bound=chosen.bound,
            caveats=compared,
            timeline=step.timeline,
            largest_tensors=step.largest_tensors,
            foregone=foregone,
        )


def _gained(current: Trial, other: Trial, comparison: Comparison | None) -> Speedup | None:
    """The measured speedup: in turn, or else of two separate trials; ``None`` if not timed."""
    if comparison is not None:
        return speedup_in_turn(comparison)
    before, after = current.samples_per_second, other.samples_per_second
    return speedup(before, after, within(MEASURED_NOISE)) if before and after else None


def _not_worth_it(current: Trial, other: Trial, gained: Speedup, *, in_turn: bool) -> str:
    how = "in turn" if in_turn else "in two separate trials"
    return (
        f"Batch {other.batch_size:,} was expected to be faster than {current.batch_size:,}. "
        f"Measured {how}, it runs at {times(gained.ratio)} the speed "
        f"({times(gained.low)} to {times(gained.high)}), which is not worth a change."
    )


def recorded(order: TrialOrder, device: DeviceFacts, emit: Emit) -> RecordedStep:
    """Memory over a step; empty where the device cannot report it.

    Metal keeps no history of its memory, and several GPUs create tensors that no recorder sees.
    """
    nothing = RecordedStep([], [])
    if device.kind == "mps" or (device.kind == "cuda" and order.world_size > 1):
        return nothing
    return _optional(lambda: record(order), "where memory goes over a step", emit) or nothing


def ran_on(order: TrialOrder, emit: Emit) -> MeasuredOn | None:
    return _optional(lambda: measured_on(order), "what the trials ran on", emit)


def _optional(ask: Callable[[], _Answer], what: str, emit: Emit) -> _Answer | None:
    """Optional information: if it fails, the certified result still stands."""
    try:
        return ask()
    except MeasurementFailed as error:
        emit(Log(f"Unknown {what}: {error}", "warning"))
        return None


def with_breakdown(trial: Trial, step: RecordedStep) -> Trial:
    """The trial with the breakdown of a recorded step, unless it has its own.

    The allocator rounds each tensor up, so its peak is a little above their sum. As in predictions,
    the difference is added to the activations, which are by far the most tensors.
    """
    if trial.breakdown or not step.breakdown or trial.peak_allocated_bytes is None:
        return trial
    rounded = trial.peak_allocated_bytes - sum(step.breakdown.values())
    activations = step.breakdown["activations"] + rounded
    return replace(trial, breakdown=step.breakdown | {"activations": activations})
