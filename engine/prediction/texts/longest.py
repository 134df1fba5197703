"""The longest text that fits, by a search over lengths."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

from ...allocator.options import AllocatorOptions
from ...answer.search import SearchOutcome, find_largest
from ...core.choices import Goal
from ...core.errors import InvalidInput
from ...events import Emit, Log, Stage
from ...gpus import Gpu
from ...hub import resolve
from ...interface.request import AnalysisRequest
from ...interface.texts import LengthTrial, LongestThatFits, unsuited
from ...interface.trial import Probe, Trial
from ...step.building import blaming_the_config
from ...traces.shallow_models import ShallowModels
from ...traces.tracer import WholeModel
from ...tracing.every_batch import NotAffine, QuadraticTrace
from ...tracing.lowering import behaviour_of
from ...tracing.trace import Trace
from ..predicted_findings import format_trial
from ..probe import predict_trial, usable_bytes
from ..requested_gpu import catalogue_gpu, gpu_facts

STRIDE = 128
"""Only multiples of it are tried: kernels round lengths up to it, so that sizes are polynomials of
the length at these alone."""

_POINTS, _FARTHEST = 16, 1.1
"""Number of lengths in the chart, and its end as a multiple of the longest that fits."""


def longest_sequence(request: AnalysisRequest, emit: Emit) -> LongestThatFits:
    """The longest sequence that fits in training, at the request's batch.

    Args:
        request: Its GPU is one of the catalogue.
        emit: Receives log lines.

    Raises:
        InvalidInput: If the model takes no sequence.
    """
    request = replace(request, workload=resolve(request.workload))
    workload, gpu, batch_size = request.workload, catalogue_gpu(request), request.known_batch_size
    wrong = unsuited(workload, Goal.LENGTH)
    length, limits = workload.sequence_length, workload.preset.sequence_length
    if wrong or length is None or limits is None:
        raise InvalidInput(wrong)
    behaviour = behaviour_of(gpu)
    allocator = AllocatorOptions.parse(request.allocator)

    def trace_at(length: int) -> Trace:
        longer = replace(request.workload_at(batch_size), sequence_length=length)
        traced = ShallowModels(WholeModel(longer, behaviour)).at(batch_size)
        traced.check_runnable()
        return traced

    def trial_of(traced: Trace) -> Trial:
        return predict_trial(request.workload_at(batch_size), gpu, traced, allocator)

    with blaming_the_config(workload):
        usable = usable_bytes(workload, gpu)
        return Search(trace_at, trial_of, gpu, emit, usable).longest(length, limits.largest)


class Search:
    """A search for the longest text that fits.

    Args:
        trace_at: The trace of a length, at the same batch each time.
        trial_of: The trial of such a trace.
        gpu: The GPU.
        emit: Receives a log line for each length that is traced.
        usable_bytes: Limit of the caching allocator; ``None`` for all that the GPU leaves.
    """

    def __init__(
        self,
        trace_at: Callable[[int], Trace],
        trial_of: Callable[[Trace], Trial],
        gpu: Gpu,
        emit: Emit,
        usable_bytes: int | None = None,
    ) -> None:
        self._trace_at = cache(trace_at)
        self._trial_of, self._gpu, self._emit = trial_of, gpu, emit
        self._usable = gpu.usable_bytes if usable_bytes is None else usable_bytes
        self._traced: dict[int, Trial] = {}

    def longest(self, begin: int, largest: int) -> LongestThatFits:
        """The longest text that fits.

        Sizes are polynomials of the length, so that three traces give those between and beyond.
        What they say is checked by a trace at the end and one above; where those say otherwise,
        each length is traced.

        Args:
            begin: A length to trace, and to look from.
            largest: The most that the model takes.
        """
        stride = STRIDE if largest >= 4 * STRIDE else 1
        search = partial(
            find_largest,
            batch_multiple=stride,
            limit_bytes=self._usable,
            largest=largest,
        )
        units = min(max(begin // stride, 1), largest // stride - 2)
        known = [self._trial(unit * stride) for unit in (units, units + 1, units + 2)]
        self._emit(Stage("search"))
        at: Probe | None = None
        try:
            at = self._polynomial(units, stride)
            guess = search(at).largest_batch_size
        except (NotAffine, ValueError):  # such as a size below zero, where a window ends
            self._emit(Log("Sizes are not polynomials of the length; tracing each length"))
            at, guess = None, known[-1].batch_size
        outcome = search(self._trial, guess=guess, known=known)
        found = self._answer(outcome)
        if at is not None and outcome.largest_batch_size == guess:
            most = min(largest, math.ceil(outcome.next_batch_size * _FARTHEST))
            return replace(found, lengths=self._with_more(found.lengths, at, most, stride))
        return found

    def _trial(self, length: int) -> Trial:
        """The trial of a length's own trace; in it, the batch size is the length."""
        if length not in self._traced:
            trial = self._trial_of(self._trace_at(length))
            said = format_trial(trial).partition(", peak reserved")[0]
            self._emit(Log(f"{length:,} tokens: {said}"))
            self._traced[length] = trial
        return replace(self._traced[length], batch_size=length)

    def _polynomial(self, units: int, stride: int) -> Probe:
        """The trials of all lengths by three traces, as many strides long as they say."""
        traced = [
            replace(self._trace_at(unit * stride), batch_size=unit)
            for unit in (units, units + 1, units + 2)
        ]
        fitted = QuadraticTrace(*traced)
        return lambda length: replace(
            self._trial_of(fitted.at(length // stride)), batch_size=length
        )

    def _with_more(
        self, traced: list[LengthTrial], at: Probe, most: int, stride: int
    ) -> list[LengthTrial]:
        """The traced lengths, with others by the polynomial, evenly up to the largest shown."""
        known = {one.length: one for one in traced}
        for point in range(1, _POINTS + 1):
            length = max(stride, most * point // _POINTS // stride * stride)
            if length not in known:
                trial = replace(at(length), batch_size=traced[0].trial.batch_size)
                known[length] = LengthTrial(length, trial)
        return [known[length] for length in sorted(known)]

    def _answer(self, outcome: SearchOutcome) -> LongestThatFits:
        length, above = outcome.largest_batch_size, outcome.next_batch_size
        return LongestThatFits(
            gpu=gpu_facts(self._gpu),
            batch_size=next(iter(self._traced.values())).batch_size,
            length=length,
            next_length=above if outcome.next_batch_size_fails else None,
            trial=self._traced.get(length),
            next_trial=self._traced.get(above) if outcome.next_batch_size_fails else None,
            lengths=[LengthTrial(one, self._traced[one]) for one in sorted(self._traced)],
        )
