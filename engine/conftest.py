"""Fixtures of the engine's tests: small models, kept traces, a folder of importable code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.interface.workload import Workload
from engine.tests.shared import make_models_small


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    make_models_small(monkeypatch)


_KEPT_TRACES: dict[str, tuple[Any, Any]] = {}
"""By arguments: the traces, and the GPU's behaviour that records what they looked up."""


@pytest.fixture
def kept_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trace each workload once per process: for tests of answers, which change no traces.

    The traces of a model that :func:`small_models` made small are kept apart from those of the
    whole one.
    """
    from engine.traces import batch_rule, workloads
    from engine.traces.families import RecordingBehaviour

    trace = batch_rule.trace_every_batch_size

    def kept(
        workload: Workload, behaviour: Any, progress: Any = None, rank: int = 0, each: Any = None
    ) -> Any:
        is_recorded = isinstance(behaviour, RecordingBehaviour)
        gpu = repr(behaviour._behaviour if is_recorded else behaviour)
        config = None if workload.config else workload.preset.config()
        asked = repr([workload.to_dict(), config, gpu, is_recorded, rank])
        if asked not in _KEPT_TRACES:
            _KEPT_TRACES[asked] = trace(workload, behaviour, rank=rank), behaviour
        traced, first = _KEPT_TRACES[asked]
        if is_recorded:
            behaviour.lookups = first.lookups  # also those that it makes later
        return traced

    monkeypatch.setattr(workloads, "trace_every_batch_size", kept)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path; its modules are unloaded afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]
