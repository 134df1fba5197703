"""Weights in 4 bits: their layout by arithmetic, and their steps compared with bitsandbytes'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch

from engine.allocator.caching import ALLOCATE
from engine.core.errors import EngineError, InvalidInput
from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.models.tests.small_diffusion import SMALL_DIFFUSION, small
from engine.parallel.group import among_gpus
from engine.step.batches import make_batch
from engine.step.eight_bits import EightBitLayout
from engine.step.four_bits import FourBitLayout
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category

A10 = cuda_behaviour(8.6)
BATCH_SIZE = 3
HIDDEN, WIDE = 64, 65_536

pytestmark = pytest.mark.usefixtures("small_models")


def qlora(model: str, **fields: Any) -> Workload:
    return small_workload(model, **{"lora_rank": 4, "quantization": "nf4"} | fields)


def layers(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, (FourBitLayout, EightBitLayout))
    }


def test_a_weight_takes_half_a_byte_and_its_share_of_the_scales() -> None:
    layer = FourBitLayout(torch.nn.Linear(4096, 1024, bias=False), torch.bfloat16)
    tensors = [*layer.parameters(), *layer.buffers()]
    count = 4096 * 1024
    scales = count // 64
    tables = 4 * (16 + 256) + 4  # the two number formats, and the mean of the scales
    expected = count // 2 + scales + 4 * scales // 256 + tables
    assert sum(tensor.nbytes for tensor in tensors) == expected
    assert not any(tensor.requires_grad for tensor in tensors)


def test_scales_that_are_not_quantized_take_four_bytes_each() -> None:
    linear = torch.nn.Linear(4096, 1024, bias=False)
    layer = FourBitLayout(linear, torch.bfloat16, double=False)
    tensors = [*layer.parameters(), *layer.buffers()]
    count = 4096 * 1024
    assert sum(tensor.nbytes for tensor in tensors) == count // 2 + 4 * count // 64 + 4 * 16


@pytest.mark.parametrize(
    ("model", "whole"),
    [
        ("llama-3.2-1b", "lm_head"),  # tied
        ("mistral-7b", "lm_head"),
        ("gpt2", "lm_head"),
        ("bert", "classifier"),
    ],
)
def test_the_head_is_kept_whole(model: str, whole: str) -> None:
    built = build_model(qlora(model), predicting=True)
    assert layers(built)
    assert not any(whole in name for name in layers(built))


@pytest.mark.longer
@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ("nf4", "bf16-true"),
        ("int8", "fp32"),
        *(slow(kind, "bf16-true") for kind in ("fp4", "int8")),
        *(slow(kind, "fp32") for kind in ("nf4", "fp4")),
    ],
)
def test_a_product_holds_one_whole_weight_in_the_format_that_it_computes_in(
    quantization: str, precision: str
) -> None:
    """Where weights are far larger than what a sample adds, the peak is within a product."""
    whole = (2 if precision == "bf16-true" else 4) * HIDDEN * WIDE
    for layer_count in (1, 2):
        traced = trace(_wide(quantization, precision, layer_count), 1, A10)
        _, breakdown = traced.peak_by_category()
        within = breakdown[Category.TEMPORARIES] + breakdown[Category.CASTS]
        assert whole <= within < 1.1 * whole


def _wide(quantization: str, precision: str, layer_count: int) -> Workload:
    config = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": WIDE,
        "num_hidden_layers": layer_count,
        "num_attention_heads": 2,
        "vocab_size": 100,
    }
    return Workload.parse(
        {
            "config": config,
            "precision": precision,
            "lora_rank": 1,
            "lora_targets": "q_proj",
            "quantization": quantization,
            "sequence_length": 2,
        }
    )


@pytest.mark.slow
def test_fewer_bits_take_less_memory() -> None:
    fields = {"precision": "bf16-true", "sequence_length": 8, "gradient_checkpointing": True}
    peaks = [
        trace(qlora("mistral-7b", quantization=kept, **fields), 1, A10).peak_by_category()[0]
        for kept in ("nf4", "int8", "none")
    ]
    assert peaks == sorted(set(peaks))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "set a LoRA rank"),
        ({"lora_rank": 4, "model": "timm/resnet50"}, "transformers and diffusers"),
        ({"lora_rank": 4, "adapter": "dora", "quantization": "int8"}, "DoRA on 8-bit"),
    ],
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload.parse({"model": "bert", "quantization": "nf4"} | fields)
    assert expected in " ".join(raised.value.fields.values())


def test_a_real_step_without_bitsandbytes_says_what_to_install() -> None:
    with (
        patch.dict("sys.modules", {"bitsandbytes": None, "bitsandbytes.nn": None}),
        pytest.raises(EngineError, match="pip install bitsandbytes"),
    ):
        build_model(qlora("bert"))


@pytest.mark.parametrize("model", ["bert", "gpt2", "llama-3.2-1b"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_the_peak_is_that_of_bitsandbytes_to_the_byte(
    model: str, precision: str, gradient_checkpointing: bool
) -> None:
    _assert_measured_as_predicted(
        qlora(
            model,
            precision=precision,
            gradient_checkpointing=gradient_checkpointing,
            sequence_length=16,
        )
    )


@pytest.mark.parametrize("model", ["bert", "gpt2", "llama-3.2-1b"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true", "bf16-mixed"])
def test_the_peak_with_dora_is_that_of_bitsandbytes_to_the_byte(model: str, precision: str) -> None:
    """It makes each weight whole once more, for the lengths of its columns."""
    checkpointed = precision == "bf16-true"
    fields = {"precision": precision, "gradient_checkpointing": checkpointed}
    _assert_measured_as_predicted(qlora(model, adapter="dora", sequence_length=16, **fields))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_DIFFUSION)
@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
@pytest.mark.parametrize(
    "fields",
    [{"quantization": "nf4-single", "gradient_checkpointing": True}, {"lora_targets": "to_q,to_k"}],
    ids=["checkpointed", "attention"],
)
def test_the_peak_of_a_denoiser_is_that_of_bitsandbytes_to_the_byte(
    name: str, precision: str, fields: dict[str, Any]
) -> None:
    """Not in mixed precision, where norms of a CPU keep their statistics in another format."""
    pytest.importorskip("diffusers")
    nf4 = {"lora_rank": 4, "quantization": "nf4"}
    _assert_measured_as_predicted(small(name, cached=True, precision=precision, **nf4 | fields))


@pytest.mark.parametrize("quantization", ["nf4-single", "fp4"])
@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_the_peak_with_whole_scales_is_that_of_bitsandbytes_to_the_byte(
    quantization: str, precision: str
) -> None:
    _assert_measured_as_predicted(
        qlora("llama-3.2-1b", quantization=quantization, precision=precision, sequence_length=16)
    )


def _assert_measured_as_predicted(workload: Workload) -> None:
    pytest.importorskip("bitsandbytes")
    with _seen_by_the_recorder():
        measured = cpu.run_trial(TrialOrder(workload, BATCH_SIZE)).peak_allocated_bytes
    predicted, _ = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert measured is not None
    assert predicted == measured + _bytes_of_scales(workload)


def _bytes_of_scales(workload: Workload) -> int:
    """Bytes that bitsandbytes keeps beside the packed weights, where a recorder does not look."""
    return sum(
        tensor.nbytes
        for layer in layers(build_model(workload, predicting=True)).values()
        for tensor in layer.buffers()
    )


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt2", "llama-3.2-1b"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("adapter", ["lora", "dora"])
def test_shards_are_those_of_bitsandbytes_to_the_byte(
    model: str, precision: str, adapter: str
) -> None:
    if (model, precision) == ("bert", "bf16-true"):
        pytest.skip("its head is trained whole, in another format than its adapters")
    pytest.importorskip("bitsandbytes")
    workload = qlora(
        model,
        adapter=adapter,
        precision=precision,
        gradient_checkpointing=True,
        sequence_length=16,
        parallelism="fsdp",
        world_size=4,
    )
    with among_gpus(workload) as group, _seen_by_the_recorder():
        training = prepare(workload, group.spread(build_model(workload)))
        recorder = group.recorder(training, BATCH_SIZE, None)
        batch = make_batch(workload, BATCH_SIZE)
        for _ in range(2):
            recorder.record_step(lambda: training_step(training, batch))
    measured, _ = recorder.trace.peak_by_category()
    predicted, _ = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert predicted == measured + _bytes_of_scales(workload)


def test_shards_of_one_group_are_trained_in_one_format() -> None:
    fields = {"precision": "bf16-true", "parallelism": "fsdp", "world_size": 2}
    with pytest.raises(InvalidInput) as raised:
        trace(qlora("bert", **fields), BATCH_SIZE, A10)
    assert "bf16-mixed" in raised.value.fields["precision"]


@pytest.mark.longer
def test_each_gpu_keeps_its_share_of_the_weights_and_all_scales() -> None:
    fields = {"precision": "bf16-true", "parallelism": "fsdp", "world_size": 2}
    workload = qlora("mistral-7b", **fields)
    traced = trace(workload, BATCH_SIZE, A10)
    whole = sum(
        parameter.nbytes for parameter in build_model(workload, predicting=True).parameters()
    )
    alive: set[int] = set()
    for kind, tensor in traced.events:
        (alive.add if kind == ALLOCATE else alive.discard)(tensor)
    kept = sum(traced.sizes[one] for one in alive if traced.categories[one] is Category.PARAMETERS)
    scales = _bytes_of_scales(workload)
    assert kept == pytest.approx(whole / 2 + scales, rel=0.01)


@contextmanager
def _seen_by_the_recorder() -> Iterator[None]:
    """bitsandbytes' products in PyTorch's operators, so that what lives within them is counted."""
    from bitsandbytes.backends.default.ops import _gemm_4bit_default_impl

    with patch.object(
        torch.ops.bitsandbytes, "gemm_4bit", SimpleNamespace(default=_gemm_4bit_default_impl)
    ):
        yield
