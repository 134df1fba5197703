"""Whether a pushed result can be the answer to its request: what would have to follow, follows.

The worker trusts its own engine. A result that comes over the network enters the same history and
the same savings, so what can be computed from its trials is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict

from engine.answer.comparison import speedup_in_turn
from engine.gpus import GPUS, LOCAL
from engine.request import LARGEST_BATCH_SIZE, AnalysisRequest
from engine.result import AnalysisResult, Source, Trial

MOST_TRIALS = 500
MOST_POINTS = 2_000
_TOLERANCE = 1e-6
"""JSON keeps a float as it is; only the order of two divisions may differ."""

_SETTLED_LATER = {"config", "gradient_accumulation", "task", "label_count"}
"""The engine fills these in when it has a model's config, or a global batch to keep."""

_LIMITED = " limited to "


def contradictions(request: AnalysisRequest, result: AnalysisResult) -> dict[str, str]:
    """What cannot be true together, by the field to look at; empty if nothing contradicts."""
    wrong: dict[str, str] = {}
    for name, problem in (
        ("result.workload", _of_the_workload(request, result)),
        ("result.gpu", _of_the_gpu(request, result)),
        ("result.source", _of_the_source(request, result)),
        ("result.trials", _of_the_trials(result)),
        ("result.largest_batch_size", _of_the_limit(result)),
        ("result.recommended_batch_size", _of_the_recommendation(request, result)),
        ("result.current_batch_size", _of_the_current(request, result)),
        ("result.speedup", _of_the_speedup(result)),
    ):
        if problem:
            wrong[name] = problem
    return wrong


def measured_gpu_of(request: AnalysisRequest, result: AnalysisResult) -> str:
    """The kind of GPU that was measured on; empty for a prediction."""
    return result.gpu.name.partition(_LIMITED)[0] if request.gpu == LOCAL else ""


def _of_the_workload(request: AnalysisRequest, result: AnalysisResult) -> str:
    if result.workload is None:
        return "it is of a person's own code, which the lab does not keep"
    answered = asdict(result.workload)
    different = [
        name
        for name, value in asdict(request.workload).items()
        if name not in _SETTLED_LATER and value is not None and value != answered[name]
    ]
    return f"it is another one than asked about: {', '.join(different)}" if different else ""


def _of_the_gpu(request: AnalysisRequest, result: AnalysisResult) -> str:
    if result.gpu.usable_bytes > result.gpu.total_bytes:
        return "more of its memory is usable than there is"
    if not (0 < len(result.gpu.name) <= 200 and result.gpu.name.isprintable()):
        return "give its name, of at most 200 characters"
    if request.gpu != LOCAL and result.gpu.name.partition(_LIMITED)[0] != (
        GPUS[request.gpu].display_name
    ):
        return f"it is not {GPUS[request.gpu].display_name}, which was asked about"
    limit = request.memory_limit_bytes
    if limit is not None and result.gpu.total_bytes > limit:
        return "it has more memory than the limit that was asked for"
    return ""


def _of_the_source(request: AnalysisRequest, result: AnalysisResult) -> str:
    expected = Source.MEASURED if request.gpu == LOCAL else Source.PREDICTED
    if result.source is not expected or any(
        trial.source is not expected for trial in result.trials
    ):
        return f"what is asked of {request.gpu} is {expected}, result and trials"
    if expected is Source.PREDICTED and (result.measured_on or result.comparison):
        return "a prediction has no measurement in it"
    return ""


def _of_the_trials(result: AnalysisResult) -> str:
    if not 0 < len(result.trials) <= MOST_TRIALS or len(result.curve) > MOST_POINTS:
        return f"give 1 to {MOST_TRIALS} trials, and at most {MOST_POINTS:,} points of the curve"
    sizes = [trial.batch_size for trial in result.trials]
    if len(set(sizes)) < len(sizes):
        return "a batch size stands there twice"
    for trial in [*result.trials, *result.curve]:
        if problem := next(_of_a_trial(trial), ""):
            return f"batch {trial.batch_size:,}: {problem}"
    return ""


def _of_a_trial(trial: Trial) -> Iterator[str]:
    if not 0 < trial.batch_size <= 2 * LARGEST_BATCH_SIZE:  # the one beyond the limit is a multiple
        yield f"give a batch size from 1 to {LARGEST_BATCH_SIZE:,}"
    if trial.source is Source.ASSUMED:
        yield "a trial is measured or predicted"
    if trial.fits and trial.failure:
        yield "it fits, and says why it does not"
    if not _rises(trial.peak_allocated_bytes, trial.peak_reserved_bytes, trial.device_used_bytes):
        yield "device used is at least peak reserved, and that at least peak allocated"
    if not _rises(
        trial.device_used_low_bytes, trial.device_used_bytes, trial.device_used_high_bytes
    ):
        yield "device used lies within its interval"
    if not _rises(trial.step_seconds_low, trial.step_seconds, trial.step_seconds_high):
        yield "step time lies within its interval"
    if trial.breakdown and sum(trial.breakdown.values()) != trial.peak_allocated_bytes:
        yield "the breakdown does not add up to peak allocated"


def _of_the_limit(result: AnalysisResult) -> str:
    largest, following = result.largest_batch_size, result.next_batch_size
    fitting = [trial.batch_size for trial in result.trials if trial.fits]
    if largest < 1 or largest != max(fitting, default=0):
        return "it is the largest trial that fits"
    if following <= largest:
        return "next_batch_size is larger"
    beyond = _trial(result, following)
    if result.next_batch_size_fails and (beyond is None or beyond.fits):
        return "there is no trial of next_batch_size that does not fit"
    return ""


def _of_the_recommendation(request: AnalysisRequest, result: AnalysisResult) -> str:
    recommended = result.recommended_batch_size
    if not 0 < recommended <= result.largest_batch_size:
        return "it is not larger than the largest batch"
    if recommended % request.batch_multiple:
        return f"it is no multiple of {request.batch_multiple}"
    return "" if _trial(result, recommended) else "there is no trial of it"


def _of_the_current(request: AnalysisRequest, result: AnalysisResult) -> str:
    if result.current_batch_size != request.current_batch_size:
        return "it is another one than asked about"
    current = _trial(result, result.current_batch_size)
    if current is None:
        return "there is no trial of it"
    if (result.current_headroom_bytes is None) == current.fits:
        return "it has headroom if it fits, and only then"
    return ""


def _of_the_speedup(result: AnalysisResult) -> str:
    ratio, low, high = result.speedup, result.speedup_low, result.speedup_high
    current = _trial(result, result.current_batch_size)
    recommended = _trial(result, result.recommended_batch_size)
    if ratio is None:
        return "" if low is None and high is None else "there is an interval of none"
    if current is None or recommended is None or not current.fits:
        return "there is none where the current batch does not fit"
    if low is None or high is None or not _rises(low, ratio, high):
        return "it lies within its interval"
    if compared := result.comparison:
        rounds = (compared.current_samples_per_second, compared.recommended_samples_per_second)
        if not rounds[0] or len(rounds[0]) != len(rounds[1]) or not all(map(all, rounds)):
            return "the comparison has rounds, each with two speeds"
        again = speedup_in_turn(compared)
        same = _same([ratio, low, high], [again.ratio, again.low, again.high])
        return "" if same else "it does not follow from the comparison"
    speeds = (current.samples_per_second, recommended.samples_per_second)
    if not (speeds[0] and speeds[1]):
        return "its two trials have no speed"
    same = _same([ratio], [speeds[1] / speeds[0]])
    return "" if same else "it does not follow from the trials"


def _trial(result: AnalysisResult, batch_size: int) -> Trial | None:
    return next((trial for trial in result.trials if trial.batch_size == batch_size), None)


def _rises(*values: float | None) -> bool:
    """Whether those that are known rise, or stay."""
    known = [value for value in values if value is not None]
    return known == sorted(known)


def _same(given: Iterable[float], computed: Iterable[float]) -> bool:
    pairs = zip(given, computed, strict=True)
    return all(math.isclose(one, other, rel_tol=_TOLERANCE) for one, other in pairs)
