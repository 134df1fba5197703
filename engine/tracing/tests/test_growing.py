"""How the allocator packs a growing cache: more lengths than a trace has."""

from __future__ import annotations

import pytest

from engine.core.choices import CacheFormat
from engine.interface.texts import Texts
from engine.prediction.memory.growing import at_more_lengths
from engine.prediction.texts.generation import generation_traces
from engine.step import generating
from engine.step.generating import Generation
from engine.tests.shared import slow, small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

pytestmark = pytest.mark.usefixtures("small_models")

A100 = cuda_behaviour(8.0)


def traced(model: str, texts: Texts, batch_size: int) -> Trace:
    return generation_traces(small_workload(model), texts, A100, alone=True).at(batch_size)


@pytest.mark.longer
@pytest.mark.parametrize("model", ["llama-3.2-1b", slow("gemma-3-1b")])
def test_the_peak_of_tensors_stays_and_all_are_freed_as_before(model: str) -> None:
    trace = traced(model, Texts(16, 60), 2000)
    longer = at_more_lengths(trace)
    assert len(longer.events) > len(trace.events)
    assert longer.peak_by_category() == trace.peak_by_category()
    assert longer.phases[-1][1] == trace.phases[-1][1]
    for one in (trace, longer):
        alive = one.replay().peak_allocated_bytes
        assert alive >= one.peak_by_category()[0]


@pytest.mark.slow
def test_it_reserves_what_every_length_does(monkeypatch: pytest.MonkeyPatch) -> None:
    texts, batch_size = Texts(16, 32), 4000
    sampled = traced("llama-3.2-1b", texts, batch_size)
    monkeypatch.setattr(generating, "GROWTHS", 32)
    grow = Generation._grow

    def grow_once(generation: Generation, length: int) -> None:
        if generation.cached[0].shape[-2] != length:
            grow(generation, length)

    monkeypatch.setattr(Generation, "_grow", grow_once)
    every = traced("llama-3.2-1b", texts, batch_size).replay().peak_reserved_bytes
    assert at_more_lengths(sampled).replay().peak_reserved_bytes == pytest.approx(every, rel=0.02)
    assert sampled.replay().peak_reserved_bytes < every


@pytest.mark.longer
def test_a_static_cache_has_one_length() -> None:
    trace = traced("llama-3.2-1b", Texts(16, 60, cache_format=CacheFormat.STATIC), 8)
    assert at_more_lengths(trace) == trace


def test_more_lengths_than_there_are_change_nothing() -> None:
    trace = traced("llama-3.2-1b", Texts(16, 20), 2000)
    assert at_more_lengths(trace, 20).events == at_more_lengths(trace, 10_000).events
