"""Offloaded and quantized caches, against transformers' own and by what each of them stores."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import Cache, DynamicCache, LlamaConfig, StaticCache

from engine.core.choices import OFFLOADED_CACHES, PACKED_CACHES, QUANTIZED_CACHES, CacheFormat
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.texts import Texts
from engine.parallel.offload import HostTensors
from engine.prediction.memory.growing import at_more_lengths
from engine.prediction.texts.decoding import GenerationSpeed, generation_speed
from engine.prediction.texts.generation import generation_traces
from engine.prediction.texts.text_analyses import analyze_texts
from engine.prediction.timing.host import LINK_BYTES_PER_SECOND, copied_bytes
from engine.step import caches, generating, quantized_caches
from engine.step.caches import Caches
from engine.step.quantized_caches import quantized_cache
from engine.step.tests.cache_memory import held_and_peaks
from engine.tests.shared import slow, small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.operations import tensors_in
from engine.tracing.trace import Category, Trace

LAYERS, BATCH, HEADS, WIDTH = 4, 2, 4, 64
CONFIG = LlamaConfig(num_hidden_layers=LAYERS)
KEPT = ("keys", "values", "_quantized_keys", "_quantized_values")
A100 = cuda_behaviour(8.0)
PROMPT = 16
MEASURED = tomllib.loads((Path(__file__).parent / "cache_memory.toml").read_text())

small = pytest.mark.usefixtures("small_models")


def traced(cache_format: CacheFormat, new_tokens: int, batch_size: int = 8) -> Trace:
    workload = small_workload("llama-3.2-1b", precision="bf16-true")
    texts = Texts(PROMPT, new_tokens, cache_format=cache_format)
    return generation_traces(workload, texts, A100, alone=True).at(batch_size)


def read(cache: Cache, lengths: list[int], device: str = "cpu") -> Iterator[None]:
    """Let each layer read so many tokens, then as many more."""
    for length in lengths:
        for layer in range(LAYERS):
            keys = torch.zeros(BATCH, HEADS, length, WIDTH, dtype=torch.bfloat16, device=device)
            cache.update(keys, keys.clone(), layer)
            yield


def held(cache: Cache) -> int:
    """Bytes that a layer keeps."""
    kept = [getattr(cache.layers[0], name, None) for name in KEPT]
    return sum(one.numel() * one.element_size() for one in tensors_in(kept))


@pytest.mark.parametrize("cache_format", PACKED_CACHES)
@pytest.mark.parametrize("new", [0, 1, 127, 128, 130])
def test_a_layer_holds_numbers_scales_and_zeros_of_groups_and_what_waits(
    cache_format: CacheFormat, new: int
) -> None:
    cache = quantized_cache(CONFIG, cache_format)
    for _ in read(cache, [100] + [1] * new):
        pass
    waiting = new % 128
    numbers = 2 * BATCH * HEADS * WIDTH * (100 + new - waiting)
    packed = numbers * PACKED_CACHES[cache_format] // 8 + numbers // 64 * 2 * 2
    assert held(cache) == packed + 2 * BATCH * HEADS * WIDTH * waiting * 2


@pytest.mark.parametrize("measured", MEASURED)
def test_packing_allocates_what_was_measured_of_the_packages(measured: str) -> None:
    cache_format, _, dtype = measured.partition(" ")
    cache = quantized_cache(LlamaConfig(num_hidden_layers=1), CacheFormat(cache_format))
    found = held_and_peaks(cache, getattr(torch, dtype))
    assert [list(both) for both in found] == MEASURED[measured]


def test_fp8_holds_a_byte_for_each_number_and_two_scales() -> None:
    cache = quantized_cache(CONFIG, CacheFormat.FP8)
    for _ in read(cache, [100, 1, 1]):
        pass
    assert held(cache) == 2 * BATCH * HEADS * WIDTH * 102 + 2 * 4


class _Stream:
    """Stands for a CUDA stream."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait_stream(self, other: object) -> None:
        pass


@pytest.mark.parametrize("kind", [DynamicCache, StaticCache])
def test_the_same_layers_are_on_the_gpu_as_with_transformers(kind: type[Cache]) -> None:
    lengths = [5, 1, 1]
    is_static = kind is StaticCache
    options: dict[str, Any] = {"max_cache_len": 8} if is_static else {}
    fake = FakeTensorMode()
    with (
        fake,
        patch("torch.Stream", _Stream),
        patch("torch.cuda.default_stream", lambda _: _Stream()),
    ):
        theirs = kind(config=CONFIG, offloading=True, **options)
        expected = [_places(theirs) for _ in read(theirs, lengths, "cuda")]
    host = HostTensors([], lambda: "")
    cache_format = OFFLOADED_CACHES[is_static]
    model: Any = torch.nn.Module()
    model.config = CONFIG
    ours = Caches(cache_format, host).new(model, 8)
    with host:
        assert [_places(ours, host) for _ in read(ours, lengths)] == expected
    assert {("cpu", 7), ("cuda", 6)} <= {*expected[-2]} or is_static


def _places(cache: Cache, host: HostTensors | None = None) -> list[tuple[str, int] | None]:
    """Where each layer's keys are, and how many."""
    return [
        (_place(layer.keys, host), layer.keys.shape[-2]) if layer.is_initialized else None
        for layer in cache.layers
    ]


def _place(keys: torch.Tensor, host: HostTensors | None) -> str:
    if host is None:
        return keys.device.type
    return "cpu" if keys in host else "cuda"


@pytest.mark.slow
@small
@pytest.mark.parametrize(
    "cache_format", [CacheFormat.QUANTO_INT4, *(slow(one) for one in QUANTIZED_CACHES[1:])]
)
def test_no_token_between_those_that_are_traced_needs_more(
    cache_format: CacheFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (caches, quantized_caches):
        monkeypatch.setattr(module, "RESIDUAL_LENGTH", 8)
    some = traced(cache_format, 18)
    monkeypatch.setattr(generating, "GROWTHS", 18)
    assert traced(cache_format, 18).peak_by_category()[0] == some.peak_by_category()[0]


@pytest.mark.longer
@small
def test_fewer_bits_take_less_and_packing_takes_the_most() -> None:
    found = [
        traced(one, 260, 64)
        for one in (CacheFormat.DYNAMIC, CacheFormat.QUANTO_INT4, CacheFormat.QUANTO_INT2)
    ]
    dynamic, four, two = (one.peak_by_category()[1]["cache"] for one in found)
    assert two < four < dynamic
    peaks = found[1].peak_by_phase()
    tokens = [peak for name, peak in peaks.items() if name.startswith("token")]
    assert peaks[f"packing {PROMPT + 255}"] > max(tokens)
    assert f"packing {PROMPT + 127}" in peaks


@pytest.mark.longer
@small
@pytest.mark.parametrize("cache_format", OFFLOADED_CACHES)
def test_the_host_holds_what_the_gpu_does_not(cache_format: CacheFormat) -> None:
    stays = CacheFormat.STATIC if "static" in cache_format else CacheFormat.DYNAMIC
    away, here = traced(cache_format, 64), traced(stays, 64)
    token = 2 * 2 * 2 * 32 * 8  # bytes, keys and values, layers, heads' width, texts
    whole = (PROMPT + 63) * token
    assert 0.5 * whole <= away.host_bytes < 0.7 * whole  # the other of two layers is on the GPU
    assert away.peak_by_category()[0] <= here.peak_by_category()[0]
    assert copied_bytes(away.operations) == whole
    assert {*away.streams} == {0, 1}
    assert at_more_lengths(away) == away


@pytest.mark.slow
@small
def test_beams_reorder_a_cache_where_it_is() -> None:
    workload = small_workload("llama-3.2-1b")
    for cache_format in (CacheFormat.OFFLOADED, CacheFormat.QUANTO_INT4, CacheFormat.FP8):
        texts = Texts(PROMPT, 8, 3, cache_format)
        found = generation_traces(workload, texts, A100, alone=True).at(2)
        assert found.peak_by_category()[1]["cache"] > 0 or found.host_bytes


@pytest.mark.slow
@small
def test_copies_and_packing_take_time() -> None:
    gpu, workload = GPUS["a100-80gb"], small_workload("llama-3.2-1b", precision="bf16-true")

    def speed(cache_format: CacheFormat) -> tuple[GenerationSpeed, Trace]:
        found = traced(cache_format, 130, 30_000)
        texts = Texts(PROMPT, 130, cache_format=cache_format)
        return generation_speed(found, texts, gpu, workload.precision), found

    (dynamic, _), (away, trace), (packed, _) = (
        speed(one) for one in (CacheFormat.DYNAMIC, CacheFormat.OFFLOADED, CacheFormat.QUANTO_INT4)
    )
    assert dynamic.token_seconds < packed.token_seconds
    assert away.waits_for_link
    assert not packed.waits_for_link
    assert away.token_seconds > 0.5 * copied_bytes(trace.operations) / LINK_BYTES_PER_SECOND


@small
@pytest.mark.parametrize(
    ("model", "cache_format"),
    [
        ("gemma-3-1b", "quanto-int4"),
        ("t5-small", "hqq-int4"),
        ("bart-large", "offloaded"),
        ("whisper", "fp8"),
    ],
)
def test_what_transformers_cannot_keep_so_is_refused(model: str, cache_format: str) -> None:
    given = {"model": model, "goal": "generation", "gpu": "a10", "current_batch_size": 1}
    lengths = {"prompt_length": 16, "new_tokens": 16, "cache_format": cache_format}
    with pytest.raises(InvalidInput) as error:
        analyze_texts(AnalysisRequest.parse(given | lengths), lambda _: None)
    assert list(error.value.fields) == ["cache_format"]


@pytest.mark.slow
@small
@pytest.mark.parametrize(
    ("cache_format", "words"),
    [
        ("offloaded", "The host holds"),
        slow("quanto-int4", "packed after every 128 new tokens"),
    ],
)
def test_the_answer_says_what_the_cache_costs_elsewhere(cache_format: str, words: str) -> None:
    request = AnalysisRequest.parse(
        {
            "model": "gpt2",
            "goal": "generation",
            "gpu": "a10",
            "precision": "bf16-true",
            "current_batch_size": 2,
            "prompt_length": 16,
            "new_tokens": 16,
            "cache_format": cache_format,
        }
    )
    found = analyze_texts(request, lambda _: None)
    assert any(words in caveat for caveat in found.caveats)
    assert found.generation is not None
    assert (found.generation.host_bytes > 0) is (cache_format == "offloaded")
    assert found.generation.trial.breakdown[Category.PARAMETERS] > 0
