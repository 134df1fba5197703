"""Losses that never hold all logits: their results, their memory, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.core.choices import CrossEntropy
from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.measurement.parent import measure
from engine.measurement.protocol import TrialOrder
from engine.parallel.tests.several_gpus import bytes_of, count, most_alive
from engine.prediction.tests.test_prediction_against_real_steps import predicted_and_measured
from engine.step.batches import make_batch
from engine.step.cross_entropy import chunk_rows, chunked_loss
from engine.step.training import build_model
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category

A100 = cuda_behaviour(8.0)
SMALLER = [CrossEntropy.CHUNKED, CrossEntropy.LIGER]
IN_PARTS = [*SMALLER, CrossEntropy.TRL]  # whose tile is larger than all logits of a small model

pytestmark = pytest.mark.usefixtures("small_models")


def wide(cross_entropy: str, **fields: Any) -> Workload:
    """A model whose logits decide its peak."""
    config = small_workload("llama-3.2-1b").preset.config()
    config |= {"vocab_size": 4096, "num_hidden_layers": 1}
    return Workload.parse(
        {"config": config, "sequence_length": 128, "cross_entropy": cross_entropy} | fields
    )


@pytest.mark.parametrize("kind", IN_PARTS)
def test_the_loss_and_its_gradients_are_those_of_the_model(kind: CrossEntropy) -> None:
    workload = small_workload("llama-3.2-1b", mode="eval")
    model, batch = build_model(workload), make_batch(workload, 3)
    batch["labels"] = torch.randint(0, 1000, batch["labels"].shape)
    batch["labels"][1, 5:9] = -100
    found = []
    for loss in (lambda m, b: m(**b).loss, chunked_loss(kind, predicting=False)):
        model.zero_grad()
        value = loss(model, batch)
        value.backward()
        gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        found.append((value.detach(), *gradients))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (kind, fields) if fast and kind is not CrossEntropy.LIGER else slow(kind, fields)
        for kind in IN_PARTS
        for fast, fields in (
            (True, {"precision": "bf16-mixed"}),
            (False, {"precision": "fp32"}),
            (False, {"precision": "fp16-mixed"}),
            (False, {"precision": "bf16-true"}),
            (False, {"precision": "bf16-true", "lora_rank": 2, "gradient_accumulation": 2}),
        )
    ],
)
def test_the_peak_is_equal_to_the_byte(kind: str, fields: dict[str, Any]) -> None:
    predicted, measured = predicted_and_measured(wide(kind, **fields))
    assert predicted == measured


@pytest.mark.slow
def test_a_head_trained_beside_adapters_is_equal_to_the_byte() -> None:
    fields = {"lora_rank": 2, "modules_to_save": "lm_head", "precision": "bf16-true"}
    predicted, measured = predicted_and_measured(
        small_workload("mistral-7b", cross_entropy="liger", **fields)
    )
    assert predicted == measured


@pytest.mark.longer
@pytest.mark.parametrize("precision", ["bf16-mixed", slow("bf16-true"), slow("fp32")])
def test_less_is_kept_the_smaller_the_parts(precision: str) -> None:
    peaks = [
        trace(wide(kind, precision=precision, optimizer="sgd"), 8, A100).peak_by_category()[0]
        for kind in (CrossEntropy.MODEL, *SMALLER)
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[2] < peaks[0] / 2


def test_a_chunk_of_liger_has_as_many_tokens_as_its_source_says() -> None:
    # The example in the source: 4 x 4096 tokens, V = 32000, H = 4096.
    assert chunk_rows(4 * 4096, 32_000, 4096) == 2048
    assert chunk_rows(8192, 128_256, 4096) == 256
    assert chunk_rows(100, 50, 4096) == 100  # never more than there are


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"model": "bert"}, "causal"),
        ({"model": "gpt2", "tensor_parallel": 2, "world_size": 2}, "parts on several"),
        ({"model": "gpt2", "method": "dpo"}, "in tiles of logits by itself"),
        ({"model": "gpt2", "method": "orpo"}, "keeps all logits"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse(fields | {"cross_entropy": "liger"})
    assert expected in raised.value.fields["cross_entropy"]


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("kind", IN_PARTS)
@pytest.mark.parametrize("parallelism", ["ddp", "fsdp"])
def test_processes_over_gloo_need_what_is_predicted(kind: str, parallelism: str) -> None:
    workload = wide(kind, parallelism=parallelism, world_size=2)
    found = measure(TrialOrder(workload, 3, memory_limit_bytes=2**31))
    assert found.peak_allocated_bytes is not None, found.failure
    predicted, _ = trace(workload, 3, None).peak_by_category()
    # Unlike NCCL, Gloo reduces and scatters a copy of its input.
    whole = sum(parameter.nbytes for parameter in build_model(workload).parameters())
    assert predicted <= found.peak_allocated_bytes <= predicted + whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALLER)
def test_zero_3_divides_the_same_and_keeps_fewer_logits(kind: str) -> None:
    fields: dict[str, Any] = {"parallelism": "zero-3", "world_size": 4, "precision": "bf16-mixed"}
    whole, parts = (trace(wide(one, **fields), 8, A100) for one in ("model", kind))
    for category in (Category.PARAMETERS, Category.OPTIMIZER_STATE, Category.GRADIENTS):
        assert bytes_of(parts, category) == bytes_of(whole, category)
    assert most_alive(parts, Category.PARAMETERS) == most_alive(whole, Category.PARAMETERS)
    assert parts.peak_by_category()[0] < whole.peak_by_category()[0]
    for name in ("c10d._allgather_base_", "c10d._reduce_scatter_base_"):
        assert count(parts, name) == count(whole, name)


def test_a_model_that_scales_its_logits_is_refused() -> None:
    config = small_workload("llama-3.2-1b").preset.config() | {
        "model_type": "cohere",
        "logit_scale": 0.5,
    }
    workload = Workload.parse({"config": config, "sequence_length": 16, "cross_entropy": "chunked"})
    with pytest.raises(InvalidInput) as raised:
        trace(workload, 2, A100)
    assert "scales its logits" in raised.value.fields["cross_entropy"]


def test_a_head_with_a_bias_is_no_head_for_liger() -> None:
    config = {"model_type": "phi", "vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 4, "intermediate_size": 64}
    workload = Workload.parse({"config": config, "sequence_length": 16, "cross_entropy": "liger"})
    with pytest.raises(InvalidInput) as raised:
        trace(workload, 2, A100)
    assert "without bias" in raised.value.fields["cross_entropy"]
