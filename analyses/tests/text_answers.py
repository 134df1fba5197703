"""Answers about texts, and analyses with one."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from django.contrib.auth.models import User
from django.utils import timezone

from analyses.models import Analysis, Job, Status
from analyses.results.stored import result_columns
from analyses.tests.factories import make_analysis, make_request, make_trial
from engine.core.choices import Goal
from engine.core.optimizers import Optimizer
from engine.gpus import GPUS
from engine.interface.texts import GenerationAnswer, LengthTrial, LongestThatFits, TextResult
from engine.interface.trial import GpuFacts, Source
from engine.interface.workload import Workload


def make_text_result(goal: Goal = Goal.GENERATION) -> TextResult:
    """A result about texts, from the trials of :func:`make_trial`."""
    largest = bisect_left(range(1, 4097), True, key=lambda size: not make_trial(size).fits)
    gpu = GpuFacts(GPUS["a10"].display_name, GPUS["a10"].total_bytes, GPUS["a10"].usable_bytes)
    lengths = [
        LengthTrial(128 * size, replace(make_trial(size), batch_size=8))
        for size in (10, largest, largest + 1)
    ]
    longest, above = lengths[1], lengths[2]
    generation = GenerationAnswer(
        gpu=gpu,
        trial=make_trial(8),
        largest_batch_size=largest,
        longest_length=longest.length,
        longest_is_the_models=False,
        lengths=lengths,
        batches=[make_trial(size) for size in (8, largest, largest + 1)],
    )
    fits = LongestThatFits(
        gpu, 8, longest.length, above.length, longest.trial, above.trial, lengths
    )
    is_generation = goal is Goal.GENERATION
    decision = f"Generate up to {largest:,} texts at once." if is_generation else "Train longer."
    return TextResult(
        goal=goal,
        model_name="GPT-2",
        workload=Workload(
            "gpt2", optimizer=Optimizer.NONE if is_generation else Workload.optimizer
        ),
        source=Source.PREDICTED,
        decision=decision,
        verdict=f"{decision} (Predicted)",
        limited_by="Weights are 60%, keys and values are 40%.",
        caveats=["Nothing was run."],
        generation=generation if is_generation else None,
        longest=None if is_generation else fits,
    )


def make_text_analysis(owner: User, goal: Goal = Goal.GENERATION) -> Analysis:
    """An analysis about texts that succeeded."""
    lengths = {"prompt_length": 512} if goal is Goal.GENERATION else {}
    request = make_request(model="gpt2", goal=str(goal), current_batch_size=8, **lengths)
    analysis = make_analysis(owner, Status.RUNNING, request=request, goal=goal)
    Job.objects.filter(analysis=analysis).update(state=Status.SUCCEEDED)
    Analysis.objects.filter(pk=analysis.pk).update(
        status=Status.SUCCEEDED,
        finished_at=timezone.now(),
        **result_columns(make_text_result(goal)),
    )
    return Analysis.objects.get(pk=analysis.pk)
