"""The findings about a model or a script on a catalogue GPU: everything is predicted."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

from ..answer.conclusion import Findings
from ..answer.recommendation import is_friendly
from ..answer.search import SearchOutcome
from ..core.errors import DoesNotFit
from ..core.numbers import ms, rate
from ..core.sizes import gib
from ..events import Emit, Log
from ..interface.request import MAX_BATCH_SIZE
from ..interface.trial import Probe, Trial
from .caveats import caveats_of, host_caveats, smaller_multiple_caveat, waiting_caveats
from .limits import find_limits
from .memory.timeline import largest_tensors, timeline
from .prediction import Prediction
from .requested_gpu import gpu_facts, price_per_hour
from .timing.step_time import host_decides, ratio_span

_CURVE_POINTS = 24


def predict_findings(
    prediction: Prediction,
    emit: Emit,
    known: Mapping[int, Trial] = MappingProxyType({}),
    *,
    refusal: Callable[[Trial], DoesNotFit] | None = None,
    stays: bool = False,
    curve_from: int = 1,
) -> Findings:
    """Search for the limit and for the batch to recommend, for a model or a script.

    Args:
        prediction: Predictions for it on a GPU.
        emit: Receives log lines and trials as they come.
        known: Trials by batch size that need not be made again.
        refusal: Makes the error to raise if the smallest batch, whose trial it is given, does not
            fit; by default the prediction's own.
        stays: Whether the current batch, which fits, is to be kept.
        curve_from: Smallest batch of the curve, where larger ones fit too.

    Raises:
        DoesNotFit: The refusal.
        NeedsTwoSamples: If no step runs at the current batch, or at the one to start with.
    """
    request, gpu, traces = prediction.request, prediction.gpu, prediction.traces
    probe = reporting_probe(partial(prediction.predict, careful=True), emit, known)
    current = None
    if request.current_batch_size is not None:
        traces.at(request.current_batch_size).check_runnable()
        current = probe(request.current_batch_size)
    limits = find_limits(prediction, probe=probe, known=[] if current is None else [current])
    outcome, choice = limits.outcome, limits.choice
    if choice is None:
        raise (refusal or prediction.refusal)(probe(limits.batch_multiple))
    if stays:
        choice = replace(choice, batch_size=request.known_batch_size, foregone=None)
    shown = [choice.fastest, *([choice.foregone.batch_size] if choice.foregone else [])]
    outcome = replace(outcome, trials=[*outcome.trials, *map(probe, shown)])
    step = traces.at(choice.batch_size)
    if current is None:
        step.check_runnable()
    recommended = probe(choice.batch_size)
    compared = current or recommended
    step_time = prediction.step_time
    times = step_time(compared.batch_size), step_time(recommended.batch_size)
    waits = compared.batch_size if times[0].launch_limited else None
    points = outcome.in_order
    if not step.alone:
        points = curve(prediction.predict, outcome, limits.batch_multiple, curve_from)
    found = Findings(
        gpu=gpu_facts(gpu),
        outcome=outcome,
        current=current,
        recommended=recommended,
        fastest_batch_size=choice.fastest,
        curve=points,
        price_per_hour_usd=price_per_hour(request, gpu),
        source=recommended.source,
        span=ratio_span(*times, _gained(compared, recommended)),
        bound=choice.bound,
        safe_batch_size=limits.safe_batch_size,
        host_decides=any(map(host_decides, times)),
        foregone=choice.foregone,
        caveats=[
            *caveats_of(step, recommended, outcome, limits.safe_batch_size, waits),
            *host_caveats(compared.batch_size, times[0], gpu),
            *waiting_caveats(compared.batch_size, times[0]),
            *smaller_multiple_caveat(request, limits.batch_multiple),
        ],
        timeline=timeline(step),
        largest_tensors=largest_tensors(step),
    )
    return prediction.completed(found)


def _gained(current: Trial, recommended: Trial) -> float:
    """The predicted speed of one batch over another; 1 where one of them does not fit."""
    before, after = current.samples_per_second, recommended.samples_per_second
    return after / before if before and after else 1.0


def reporting_probe(
    run: Probe, emit: Emit, known: Mapping[int, Trial] = MappingProxyType({})
) -> Probe:
    """A probe that makes each trial once and emits it.

    Args:
        run: Makes a trial.
        emit: Receives the trial and a log line about it.
        known: Trials by batch size that were made and emitted before.
    """

    @cache
    def probe(batch_size: int) -> Trial:
        if batch_size in known:
            return known[batch_size]
        trial = run(batch_size)
        emit(trial)
        emit(Log(format_trial(trial)))
        return trial

    return probe


def with_profile(prediction: Prediction, found: Findings) -> Findings:
    """The findings with the parts of a step at the current batch, else at the recommended one."""
    profiled = found.current or found.recommended
    return replace(found, profile=prediction.profile(profiled.batch_size))


def format_trial(trial: Trial) -> str:
    """One line about a trial for the log."""
    parts = [f"batch {trial.batch_size:,} {'fits' if trial.fits else 'does not fit'}"]
    if trial.peak_allocated_bytes is not None:
        parts.append(f"peak allocated {gib(trial.peak_allocated_bytes)}")
    if trial.peak_reserved_bytes is not None:
        parts.append(f"peak reserved {gib(trial.peak_reserved_bytes)}")
    if trial.step_seconds is not None and trial.fits:
        parts.append(f"{ms(trial.step_seconds)} a step, {rate(trial.samples_per_second or 0)}")
    return f"{', '.join(parts)} ({trial.source})"


def curve(predict: Probe, outcome: SearchOutcome, multiple: int, smallest: int = 1) -> list[Trial]:
    """Trials from a small batch to a little beyond the limit, for a chart.

    They are spaced evenly, at friendly sizes where these are multiples, and at each power of two.
    """
    end = min(math.ceil(outcome.next_batch_size * 1.1), MAX_BATCH_SIZE)
    smallest = min(smallest, outcome.next_batch_size - 1)
    multiples = [size for size in range(multiple, end + 1, multiple) if size >= smallest]
    sizes = [size for size in multiples if is_friendly(size)] or multiples
    even = [end * point / _CURVE_POINTS for point in range(1, _CURVE_POINTS + 1)]
    chosen = {sizes[max(0, bisect_right(sizes, point) - 1)] for point in even}
    chosen |= {size for size in sizes if size.bit_count() == 1}
    return [predict(size) for size in sorted(chosen)]
