"""The sizes of key-value caches, against those that llama.cpp reports of the same models.

Its table at a context of 2,048 tokens, 16 bits a value, is published in
https://huggingface.co/dranger003/c4ai-command-r-v01-iMat.GGUF/discussions/6 (read 2026-11).
"""

from __future__ import annotations

import pytest

from engine.allocator.caching import FREE
from engine.core.choices import CacheFormat
from engine.interface.texts import Texts
from engine.interface.workload import Workload
from engine.prediction.texts.generation import generation_traces
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

PUBLISHED_MIB = {"llama-3-8b": 256, "mixtral-8x7b": 256, "llama-3.3-70b": 640}
"""The 70B of Llama 3 and of 3.3 have the same layers and heads."""


@pytest.mark.torch
@pytest.mark.parametrize("cache_format", [CacheFormat.DYNAMIC, CacheFormat.STATIC])
@pytest.mark.parametrize(
    "model",
    [
        name if name == "llama-3-8b" else pytest.param(name, marks=pytest.mark.slow)
        for name in PUBLISHED_MIB
    ],
)
def test_a_cache_is_as_large_as_llama_cpp_reports(model: str, cache_format: CacheFormat) -> None:
    workload = Workload.parse({"model": model, "precision": "bf16-true"})
    texts = Texts(prompt_length=2048, new_tokens=1, cache_format=cache_format)
    traced = generation_traces(workload, texts, cuda_behaviour(8.0), alone=True).at(1)
    assert cache_bytes(traced) == PUBLISHED_MIB[model] * 2**20


def cache_bytes(traced: Trace) -> int:
    """Bytes of the cache at the end of a trace."""
    left = set(range(len(traced.sizes))) - {one for kind, one in traced.events if kind == FREE}
    caches = (one for one in left if traced.categories[one] is Category.CACHE)
    return sum(traced.sizes[one] for one in caches)
