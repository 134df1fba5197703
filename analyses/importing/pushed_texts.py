"""The check that an imported result about texts is consistent: how many fit, or how long ones."""

from __future__ import annotations

from collections.abc import Iterator

from analyses.importing.checks import (
    MAX_TRIALS,
    of_a_trial,
    of_the_goal,
    of_the_gpu,
    of_the_workload,
)
from engine.interface.request import AnalysisRequest
from engine.interface.texts import GenerationAnswer, LengthTrial, LongestThatFits, TextResult
from engine.interface.trial import Source, Trial


def contradictions_of_texts(request: AnalysisRequest, result: TextResult) -> dict[str, str]:
    """Inconsistencies, by field; empty if there are none."""
    wrong = {
        "result.goal": of_the_goal(request, result.goal),
        "result.workload": of_the_workload(request, result.workload),
    }
    generation, longest = result.generation, result.longest
    if generation is not None and longest is None:
        wrong["result.gpu"] = of_the_gpu(request, generation.gpu)
        wrong["result.generation"] = next(_of_generation(request, generation), "")
    elif longest is not None and generation is None:
        wrong["result.gpu"] = of_the_gpu(request, longest.gpu)
        wrong["result.longest"] = next(_of_longest(request, longest), "")
    else:
        wrong["result"] = "it has either generation or longest"
    if any(trial.source is Source.MEASURED for trial in _trials(result)):
        wrong["result.source"] = "texts are predicted or computed"
    return {name: problem for name, problem in wrong.items() if problem}


def _trials(result: TextResult) -> Iterator[Trial]:
    if (generation := result.generation) is not None:
        yield generation.trial
        yield from generation.batches
        yield from (one.trial for one in generation.lengths)
    if (longest := result.longest) is not None:
        yield from filter(None, (longest.trial, longest.next_trial))
        yield from (one.trial for one in longest.lengths)


def _of_generation(request: AnalysisRequest, found: GenerationAnswer) -> Iterator[str]:
    if found.trial.batch_size != request.current_batch_size:
        yield "its trial is of the texts at once in the request"
    fitting = [trial.batch_size for trial in found.batches if trial.fits]
    if found.largest_batch_size < 1 or found.largest_batch_size != max(fitting, default=0):
        yield "largest_batch_size is the largest of its batches that fits"
    yield from _of_trials([found.trial, *found.batches])
    yield from _of_lengths(found.lengths, found.longest_length)


def _of_longest(request: AnalysisRequest, found: LongestThatFits) -> Iterator[str]:
    if found.batch_size != request.current_batch_size:
        yield "its batch_size is that of the request"
    if found.trial is None or not found.trial.fits:
        yield "its trial fits"
    if found.next_length is not None and found.next_length <= found.length:
        yield "next_length is larger than length"
    if found.next_trial is not None and found.next_trial.fits:
        yield "its next_trial does not fit"
    yield from _of_lengths(found.lengths, found.length)


def _of_lengths(lengths: list[LengthTrial], longest: int) -> Iterator[str]:
    fitting = [one.length for one in lengths if one.trial.fits]
    if longest != max(fitting, default=0):
        yield "the longest is the longest of its lengths that fits"
    yield from _of_trials([one.trial for one in lengths])


def _of_trials(trials: list[Trial]) -> Iterator[str]:
    if len(trials) > MAX_TRIALS:
        yield f"send at most {MAX_TRIALS} trials"
    for trial in trials:
        yield from of_a_trial(trial)
