"""Shared by the tests: small models for quick real steps, a mark, a step whose time is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from engine.interface.workload import Workload
from engine.models.presets import PRESETS, Preset
from engine.models.tasks import Task
from engine.prediction.timing.work import StepTime
from engine.tests.small import made_small, small_sizes

SMALL_BERT = Workload("small-bert", config=made_small(PRESETS["bert"].config()), sequence_length=8)
"""A small model that other processes can build too, where fixtures do not reach."""


def make_models_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build every preset at reduced depth and width."""
    whole = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: made_small(whole(preset)))


def small_workload(model: str, **fields: Any) -> Workload:
    """A workload on small inputs."""
    task = fields.get("task")
    sizes = small_sizes(PRESETS[model], None if task is None else Task(task))
    return Workload(model, **sizes | fields)


def slow(*values: object) -> Any:
    """Values for a slow test, in a sweep of which others are fast tests."""
    return pytest.param(*values, marks=pytest.mark.slow)


def rest_slow(values: Iterable[object], fast: int = 1) -> list[Any]:
    """A sweep whose first values are for fast tests, and the others for slow ones."""
    every = list(values)
    rest = (slow(*one) if isinstance(one, tuple) else slow(one) for one in every[fast:])
    return [*every[:fast], *rest]


def step_of(seconds: float) -> StepTime:
    """A step that only its GPU decides."""
    known = dict.fromkeys(("fastest", "slowest", "ahead"), seconds)
    return StepTime(seconds, seconds, 0.0, filled=1.0, **known)
