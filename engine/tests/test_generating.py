"""Generating text, against ``generate`` of transformers on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.choices import CacheFormat
from engine.errors import InvalidInput
from engine.prediction.generation import generating_workload, generation_traces
from engine.step.batches import make_batch
from engine.step.generating import Generation
from engine.step.training import Training, build_model, prepare
from engine.tests.conftest import small_workload
from engine.texts import Texts
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category
from engine.workload import Workload

pytestmark = pytest.mark.usefixtures("small_models")

BATCH_SIZE = 3
A100 = cuda_behaviour(8.0)


def training_of(workload: Workload) -> Training:
    model: Any = build_model(workload).eval()
    model.generation_config.eos_token_id = None
    return prepare(workload, model)


def peak_of_generate(workload: Workload, texts: Texts) -> int:
    """Of transformers' own function."""
    training = training_of(workload)
    model: Any = training.model
    recorder = MemoryRecorder(training, BATCH_SIZE, counted=torch.is_floating_point)
    prompts = make_batch(workload, BATCH_SIZE)["input_ids"]
    options: dict[str, Any] = {"max_new_tokens": texts.new_tokens, "do_sample": True, "top_k": 0}
    if texts.cache_format is CacheFormat.STATIC:
        options |= {"cache_implementation": "static", "disable_compile": True}

    def generate() -> None:
        with training.forward_context():
            model.generate(prompts, use_cache=True, pad_token_id=0, **options)

    recorder.record_step(generate)
    return recorder.trace.peak_by_category()[0]


def peak_of_ours(workload: Workload, texts: Texts, counted: Any = None) -> int:
    training = training_of(workload)
    recorder = MemoryRecorder(training, BATCH_SIZE, counted=counted)
    prompts = make_batch(workload, BATCH_SIZE)["input_ids"]
    for move in Generation(training, prompts, texts.new_tokens, texts.cache_format).moves:
        recorder.record_step(move)
    return recorder.trace.peak_by_category()[0]


@pytest.mark.parametrize(
    ("model", "fields", "texts"),
    [
        ("llama-3.2-1b", {}, Texts(16, 1)),
        ("llama-3.2-1b", {}, Texts(16, 60)),
        ("llama-3.2-1b", {}, Texts(60, 16)),
        ("llama-3.2-1b", {"precision": "bf16-true"}, Texts(16, 60)),
        ("llama-3.2-1b", {"lora_rank": 4}, Texts(16, 60)),
        ("llama-3.2-1b", {}, Texts(16, 60, CacheFormat.STATIC)),
        ("gpt2", {}, Texts(16, 60)),
        ("gemma-3-1b", {}, Texts(8, 100)),
        ("gemma-3-1b", {}, Texts(100, 8)),
        ("qwen3-0.6b", {}, Texts(16, 60)),
    ],
    ids=str,
)
def test_the_peak_is_that_of_generate(model: str, fields: dict[str, Any], texts: Texts) -> None:
    workload = generating_workload(small_workload(model, **fields), texts)
    measured = peak_of_generate(workload, texts)
    assert peak_of_ours(workload, texts, torch.is_floating_point) == measured
    traced = generation_traces(workload, texts, None)(BATCH_SIZE)
    assert traced.peak_by_category()[0] == peak_of_ours(workload, texts)


@pytest.mark.parametrize("cache_format", CacheFormat)
def test_the_cache_has_keys_and_values_of_each_group_of_heads(cache_format: CacheFormat) -> None:
    workload = small_workload("llama-3.2-1b", precision="bf16-true")
    config = workload.preset.config()
    texts = Texts(16, 1984, cache_format)
    _, breakdown = generation_traces(workload, texts, A100)(8).peak_by_category()
    width = config["hidden_size"] // config["num_attention_heads"]
    token = 2 * 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * width
    assert breakdown[Category.CACHE] == pytest.approx(8 * 1999 * token, rel=0.3)
    assert breakdown[Category.CACHE] >= 8 * 1998 * token


def test_a_sliding_window_bounds_the_cache() -> None:
    workload = small_workload("gemma-3-1b")
    short, long = (
        generation_traces(workload, Texts(16, new), A100)(2).peak_by_category()[1]["cache"]
        for new in (100, 200)
    )
    assert short < long < 1.9 * short  # one of its two layers has a window


def test_every_batch_size_is_what_a_trace_of_it_has() -> None:
    workload, texts = small_workload("llama-3.2-1b"), Texts(32, 32)
    at = generation_traces(workload, texts, A100)
    alone = [generation_traces(workload, texts, A100)(size) for size in (1, 2)]
    assert [at(size).peak_by_category() for size in (1, 2)] == [
        one.peak_by_category() for one in alone
    ]
    assert at(64).peak_by_category()[0] > at(8).peak_by_category()[0]


@pytest.mark.parametrize(
    ("model", "texts", "field"),
    [
        ("bert", Texts(16, 16), "task"),
        ("gpt2", Texts(1000, 25), "prompt_length"),
    ],
)
def test_what_cannot_generate_is_refused(model: str, texts: Texts, field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        generation_traces(small_workload(model), texts, A100)
    assert list(error.value.fields) == [field]
