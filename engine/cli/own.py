"""The command line's side of a person's own code: ``--factory`` of three commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType

from engine.cli.progress import progress
from engine.cli.render import render_analysis, render_trial
from engine.own.factory import Factory
from engine.own.request import OwnCodeRequest
from engine.result import GpuFacts

Given = Mapping[str, object]
Answer = Callable[[object, Callable[[], RenderableType]], None]
"""Prints an answer: its plain form, and what renders it."""


def add_factory_flag(parser: Any) -> None:
    """Add what names a person's own code, and a usage error for who names nothing at all."""
    about = "module:function that makes your own training steps, instead of a MODEL"
    parser.add_argument("--factory", metavar="NAME", help=about)
    parser.set_defaults(usage_error=parser.error)


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


def predict_own(factory: str, given: Given, answer: Answer) -> int:
    """Run ``predict --factory``: one batch size, such as a certificate names."""
    request = _request(factory, given)
    with progress() as emit:
        from engine.own.analysis import predict_own_batch  # loads torch

        gpu, trial = predict_own_batch(request, emit)
    answer(asdict(trial), lambda: render_trial(trial, factory, gpu))
    return 0


def measure_own(factory: str, given: Given, answer: Answer) -> int:
    """Run ``measure --factory``: one trial on this machine, such as a certificate names.

    The exit status is 0 whether the batch fits or not: either is an answer.
    """
    request = _request(factory, given)
    with progress():
        from engine.measurement.device import device_for
        from engine.measurement.parent import local_device, measure
        from engine.measurement.protocol import TrialOrder

        device, limit = local_device(), request.memory_limit_bytes
        gpu: GpuFacts = device_for(request, device, None)
        size, allocator = request.current_batch_size, request.allocator
        trial = measure(TrialOrder(request.factory, size, limit, allocator=allocator))
    answer(asdict(trial), lambda: render_trial(trial, request.factory.name, gpu))
    return 0


def _request(factory: str, given: Given) -> OwnCodeRequest:
    """The request; a model beside the factory is refused like any other field of a workload."""
    return OwnCodeRequest.parse(Factory.of(factory), given)
