"""Weights in 8 bits: their layout by arithmetic, and their steps compared with bitsandbytes'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
import torch

from engine.allocator.caching import ALLOCATE
from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.parallel.group import Alone, place
from engine.step.batches import make_batch
from engine.step.eight_bits import OUTLIERS_AMONG, EightBitLayout, outlier_caveats
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

A10 = cuda_behaviour(8.6)
BATCH_SIZE = 3

pytestmark = pytest.mark.usefixtures("small_models")


def in_8_bits(model: str, **fields: Any) -> Workload:
    return small_workload(model, **{"lora_rank": 4, "quantization": "int8"} | fields)


def test_a_weight_takes_a_byte_and_each_row_a_scale() -> None:
    layer = EightBitLayout(torch.nn.Linear(4096, 1024, bias=False))
    tensors = [*layer.parameters(), *layer.buffers()]
    assert sum(tensor.nbytes for tensor in tensors) == 4096 * 1024 + 4 * 1024
    assert not any(tensor.requires_grad for tensor in tensors)


@pytest.mark.longer
def test_a_product_adds_up_in_32_bits() -> None:
    """The sums take 4 bytes each, the result 2 of fp16 and again those of what was given."""
    traced = trace(in_8_bits("llama-3.2-1b", precision="bf16-mixed"), BATCH_SIZE, A10)
    sums = [
        index
        for index, maker in enumerate(traced.makers)
        if maker == "aten.empty" and traced.categories[index] is Category.TEMPORARIES
    ]
    tokens = BATCH_SIZE * 32
    assert {4 * tokens * width for width in (64, 128)} <= {traced.sizes[index] for index in sums}


@pytest.mark.longer
def test_what_is_kept_for_backward_lives_as_long_as_the_loss() -> None:
    """It is kept beside autograd, which frees the rest layer by layer."""
    fields = {"precision": "bf16-true", "sequence_length": 64}
    eight, four = (
        _activations_after_backward(
            trace(in_8_bits("llama-3.2-1b", quantization=kept, **fields), BATCH_SIZE, A10)
        )
        for kept in ("int8", "nf4")
    )
    assert eight > 4 * four


def _activations_after_backward(traced: Trace) -> float:
    """As a share of the most there are at once."""
    end = next(start for start, phase in reversed(traced.phases) if phase == "optimizer")
    alive = most = 0
    for kind, tensor in traced.events[traced.last_step : end]:
        if traced.categories[tensor] is Category.ACTIVATIONS:
            alive += traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor]
            most = max(most, alive)
    return alive / most


def test_the_answer_says_how_many_outliers_are_assumed() -> None:
    (told,) = outlier_caveats(in_8_bits("llama-3.2-1b"))
    assert "One input column in 1,000 is assumed to be an outlier" in told
    assert outlier_caveats(in_8_bits("llama-3.2-1b", quantization="nf4")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"lora_rank": None},
        {"adapter": "dora"},
        {"parallelism": "fsdp", "world_size": 2},
    ],
    ids=str,
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        in_8_bits("bert", **fields)
    assert {"quantization", "adapter"} & raised.value.fields.keys()


def test_a_cpu_does_not_stand_for_a_gpu() -> None:
    with pytest.raises(InvalidInput) as raised:
        place(torch.nn.Linear(2, 2), in_8_bits("bert"), "cpu")
    assert "another way on a CPU" in raised.value.fields["quantization"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bert", "gpt2", "llama-3.2-1b"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-true", "bf16-mixed"])
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_the_peak_is_that_of_bitsandbytes_to_the_byte(
    model: str, precision: str, gradient_checkpointing: bool
) -> None:
    pytest.importorskip("bitsandbytes")
    workload = in_8_bits(
        model,
        precision=precision,
        gradient_checkpointing=gradient_checkpointing,
        sequence_length=16,
    )
    with _kernels_of_cuda():
        measured, _ = _of_real_steps(workload).peak_by_category()
    predicted, _ = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert predicted == measured


def _of_real_steps(workload: Workload) -> Trace:
    training = prepare(workload, build_model(workload).to("cpu"))
    recorder = Alone(workload).recorder(training, BATCH_SIZE, None)
    batch = make_batch(workload, BATCH_SIZE)
    for _ in range(2):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace


@contextmanager
def _kernels_of_cuda() -> Iterator[None]:
    """bitsandbytes' layers and products as on CUDA, with its kernels in PyTorch's operators.

    What they allocate is that of ``backends/cuda/ops.py`` and ``backends/default/ops.py``; the
    outliers are as many as are assumed.
    """
    from bitsandbytes.autograd import _functions

    def product(given: Any, weight: Any, bias: Any = None, state: Any = None) -> Any:
        return _functions.MatMul8bitLt.apply(given, weight, None, bias, state)

    with (
        patch("bitsandbytes.nn.modules.bnb.matmul", product),
        patch.object(_functions.F, "int8_vectorwise_quant", _quantize),
        patch.object(torch.ops.bitsandbytes, "int8_mixed_scaled_mm", _multiply),
    ):
        yield


def _quantize(given: torch.Tensor, threshold: float = 0.0) -> tuple[Any, ...]:
    scales = torch.empty(given.shape[0])
    rows = torch.empty(given.shape, dtype=torch.int8)
    if threshold == 0.0:  # a weight
        return rows, scales, None
    outliers = given.abs() >= threshold
    outliers.any(dim=0)
    columns = torch.arange(-(-given.shape[1] // OUTLIERS_AMONG))
    rows[:, columns] = 0
    return rows, scales, columns


def _multiply(
    given: torch.Tensor,
    rows: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor,
    others: torch.Tensor,
    columns: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    apart = given[:, columns].contiguous()
    dequantized = weight[:, columns].contiguous() * others.view(-1, 1) * 7.874015718698502e-3
    beside = dequantized.to(given.dtype).t()
    del dequantized
    product = _in_8_bits(rows, weight, bias, given.dtype)
    return product.addmm(apart, beside), apart


def _in_8_bits(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype
) -> torch.Tensor:
    sums = torch.empty((rows.shape[0], weight.shape[0]), dtype=torch.int32)
    result = torch.empty_like(sums, dtype=torch.float16)
    if bias is not None and bias.dtype != torch.float16:
        result.add_(bias)
    return result.to(dtype)
