"""The command line's side of a person's own code: ``analyze --factory`` and ``measure``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from rich.console import RenderableType

from engine.cli.progress import progress
from engine.cli.render import render_analysis, render_trial
from engine.own.factory import Factory
from engine.own.request import OwnCodeRequest
from engine.result import GpuFacts

Given = Mapping[str, object]
Answer = Callable[[object, Callable[[], RenderableType]], None]
"""Prints an answer: its plain form, and what renders it."""

FACTORY = "module:function that makes your own training steps, instead of a MODEL"


def analyze_own(factory: str, given: Given, answer: Answer) -> int:
    """Run ``analyze --factory``.

    Args:
        factory: As it was written.
        given: The other fields, as they were written.
        answer: Prints the result.
    """
    request = _request(factory, given)
    with progress() as emit:
        from engine.own.analysis import analyze_own_code  # loads torch

        result = analyze_own_code(request, emit)
    answer(result.to_dict(), lambda: render_analysis(result))
    return 0


def measure_own(factory: str, given: Given, answer: Answer) -> int:
    """Run ``measure --factory``: one trial on this machine, such as a certificate names.

    The exit status is 0 whether the batch fits or not: either is an answer.
    """
    request = _request(factory, given)
    with progress():
        from engine.measurement.analysis import limited_device
        from engine.measurement.parent import local_device, measure
        from engine.measurement.protocol import TrialOrder

        gpu: GpuFacts = limited_device(local_device(), request.memory_limit_bytes)
        trial = measure(
            TrialOrder(request.factory, request.current_batch_size, request.memory_limit_bytes)
        )
    answer(asdict(trial), lambda: render_trial(trial, request.factory.name, gpu))
    return 0


def _request(factory: str, given: Given) -> OwnCodeRequest:
    """The request; a model beside the factory is refused like any other field of a workload."""
    return OwnCodeRequest.parse(Factory.of(factory), given)
