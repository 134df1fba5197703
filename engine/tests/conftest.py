"""Shared by the tests: small models for quick real steps, and a folder of importable code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.models.presets import PRESETS, Preset
from engine.models.tasks import Task
from engine.tests.small import made_small, small_sizes
from engine.workload import Workload

SMALL_BERT = Workload("small-bert", config=made_small(PRESETS["bert"].config()), sequence_length=8)
"""A small model that other processes can build too, where the fixture below does not reach."""


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    make_models_small(monkeypatch)


def make_models_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build every preset at reduced depth and width."""
    whole = Preset.config
    monkeypatch.setattr(Preset, "config", lambda preset: made_small(whole(preset)))


def small_workload(model: str, **fields: Any) -> Workload:
    """A workload on small inputs."""
    task = fields.get("task")
    sizes = small_sizes(PRESETS[model], None if task is None else Task(task))
    return Workload(model, **sizes | fields)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; its modules are unloaded afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
