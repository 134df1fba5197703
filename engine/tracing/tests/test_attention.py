"""The attention kernel that runs on each GPU, and what it keeps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel

from engine.core.choices import Attention
from engine.core.errors import InvalidInput
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.parallel.group import place
from engine.step.building import new_model
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.attention import (
    AttentionCall,
    AttentionKernel,
    chosen_kernel,
    keeping_attention_kernels,
)
from engine.tracing.attention_build import AttentionBuild
from engine.tracing.lowering import CudaBehaviour, cuda_behaviour, cuda_lowering
from engine.tracing.tests.lowered import A10, BRAIN, FULL, H100, HALF, T4, operators, saved

MATH, FLASH, EFFICIENT, CUDNN = AttentionKernel
FLASH_CALL = "aten._scaled_dot_product_flash_attention"


@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize("dtype", [FULL, HALF])
def test_attention_saves_no_score_matrix(dtype: torch.dtype, has_mask: bool) -> None:
    length = 256

    def run() -> torch.Tensor:
        query = torch.ones(2, 4, length, 16, dtype=dtype, requires_grad=True)
        mask = torch.ones(2, 1, length, length, dtype=torch.bool) if has_mask else None
        return attend(query, attn_mask=mask, dropout_p=0.1)

    scores = 2 * 4 * length * length
    for kept in saved(run):  # an expanded mask may have that shape but not that storage
        assert kept.untyped_storage().nbytes() < scores * kept.element_size()


def call(dtype: torch.dtype, **fields: Any) -> AttentionCall:
    return AttentionCall(dtype=dtype, **fields)


@pytest.mark.parametrize(
    ("behaviour", "call", "kernel"),
    [
        (A10, call(FULL), EFFICIENT),
        (A10, call(torch.float64), MATH),
        (A10, call(HALF, dropout=0.1), FLASH),
        (A10, call(BRAIN, has_mask=True), EFFICIENT),
        (H100, call(FULL), EFFICIENT),
        (H100, call(BRAIN, has_mask=True), CUDNN),
        (H100, call(BRAIN, has_mask=True, learns_mask=True), EFFICIENT),
        (H100, call(BRAIN, dropout=0.1), FLASH),
        (H100, call(BRAIN, dropout=0.125), CUDNN),
        (H100, call(BRAIN, has_mask=True, dropout=0.1), EFFICIENT),
        (H100, call(BRAIN, head_width=256, value_width=256), FLASH),
        (H100, call(BRAIN, key_length=1), FLASH),
        (T4, call(HALF), EFFICIENT),
        (T4, call(BRAIN), MATH),
        (cuda_behaviour(12.0), call(BRAIN), FLASH),
        # Heads that do not fill a tile, or are too wide
        (A10, call(FULL, head_width=66, value_width=66), MATH),
        (T4, call(FULL, head_width=66, value_width=66), EFFICIENT),
        (A10, call(BRAIN, head_width=66, value_width=66), FLASH),
        (A10, call(BRAIN, head_width=66, value_width=66, has_mask=True), MATH),
        (A10, call(BRAIN, head_width=320, value_width=320), EFFICIENT),
        (A10, call(BRAIN, head_width=64, value_width=32), EFFICIENT),
        (A10, call(BRAIN, head_width=208, value_width=208), EFFICIENT),
        (A10, call(BRAIN, head_width=208, value_width=208, has_gradient=False), FLASH),
        (cuda_behaviour(8.0), call(BRAIN, head_width=208, value_width=208), FLASH),
        (A10, call(BRAIN, is_causal=True, length=8), EFFICIENT),
        # Three dimensions, or tensors that do not belong together
        (A10, call(BRAIN, fusible=False), MATH),
        (H100, call(BRAIN, fusible=False), MATH),
        # What was switched off is not used, and priorities hold
        (A10, call(HALF, kernels=(EFFICIENT, MATH)), EFFICIENT),
        (A10, call(HALF, kernels=(MATH,)), MATH),
        (A10, call(HALF, kernels=(MATH, FLASH)), MATH),
        (A10, call(HALF, kernels=(CUDNN,)), CUDNN),
        (H100, call(HALF, kernels=(FLASH, MATH, CUDNN)), CUDNN),
        (H100, call(HALF, kernels=(EFFICIENT, FLASH, CUDNN)), EFFICIENT),
        (A10, call(FULL, kernels=(FLASH,)), None),
        (A10, call(HALF, kernels=(FLASH,), has_mask=True), None),
        (A10, call(HALF, kernels=()), None),
    ],
    ids=str,
)
def test_the_attention_kernel_is_pytorchs_choice(
    behaviour: CudaBehaviour, call: AttentionCall, kernel: AttentionKernel | None
) -> None:
    assert behaviour.attention_kernel(call) is kernel


@pytest.mark.parametrize(
    ("release", "cudnn", "gpu", "call", "kernel"),
    [
        # cuDNN is first on an H100 in 2.9, and from 2.11 on, whose cuDNN is new enough again.
        ((2, 6), 90100, 9.0, call(BRAIN), FLASH),
        ((2, 8), 91002, 9.0, call(BRAIN), FLASH),
        ((2, 9), 91002, 9.0, call(BRAIN), CUDNN),
        ((2, 9), 91002, 10.3, call(BRAIN), FLASH),
        ((2, 10), 91002, 9.0, call(BRAIN), FLASH),
        ((2, 10), 91501, 9.0, call(BRAIN), CUDNN),
        ((2, 11), 91900, 9.0, call(BRAIN), CUDNN),
        ((2, 11), 91900, 10.3, call(BRAIN), CUDNN),
        ((2, 11), 91900, 8.6, call(BRAIN), FLASH),
        ((2, 11), 91900, 12.0, call(BRAIN), FLASH),
        ((2, 6), 90100, 9.0, call(BRAIN, has_mask=True), EFFICIENT),
        # Heads wider than 128
        ((2, 9), 91002, 9.0, call(BRAIN, head_width=256, value_width=256), CUDNN),
        ((2, 9), 91002, 10.0, call(BRAIN, head_width=256, value_width=256), FLASH),
        ((2, 12), 92000, 9.0, call(BRAIN, head_width=256, value_width=256), FLASH),
        ((2, 14), 92400, 9.0, call(BRAIN, head_width=256, value_width=256), CUDNN),
        ((2, 14), 92400, 9.0, call(BRAIN, head_width=160, value_width=160), FLASH),
        (
            (2, 14),
            92400,
            9.0,
            call(BRAIN, head_width=160, value_width=160, has_gradient=False),
            CUDNN,
        ),
        ((2, 10), 91002, 10.0, call(BRAIN, head_width=192, value_width=128), EFFICIENT),
        ((2, 12), 92000, 10.0, call(BRAIN, head_width=192, value_width=128), CUDNN),
        ((2, 12), 92000, 9.0, call(BRAIN, head_width=192, value_width=128), EFFICIENT),
        # Grouped queries where FlashAttention does not run
        ((2, 13), 92000, 8.6, call(FULL, grouped=True), MATH),
        ((2, 14), 92400, 8.6, call(FULL, grouped=True), EFFICIENT),
        ((2, 14), 92400, 7.5, call(HALF, grouped=True), EFFICIENT),
    ],
    ids=str,
)
def test_the_choice_is_that_of_the_build(
    release: tuple[int, int],
    cudnn: int,
    gpu: float,
    call: AttentionCall,
    kernel: AttentionKernel,
) -> None:
    assert chosen_kernel(gpu, call, AttentionBuild(release, cudnn)) is kernel


def attend(query: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, query, query, **options)


def test_attention_uses_the_enabled_kernels() -> None:
    def run() -> None:
        attend(torch.ones(2, 4, 8, 16, dtype=HALF))

    fused = "_scaled_dot_product_{}_attention"
    assert fused.format("flash") in operators(run)
    with sdpa_kernel(SDPBackend.MATH):
        assert "bmm" in operators(run)
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        assert fused.format("efficient") in operators(run)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True):
        assert "bmm" in operators(run)
    with keeping_attention_kernels():
        torch.backends.cuda.enable_flash_sdp(False)
        assert fused.format("efficient") in operators(run)
    assert fused.format("flash") in operators(run)


def test_without_a_kernel_it_fails_as_in_pytorch() -> None:
    def run() -> None:
        attend(torch.ones(2, 4, 8, 16))

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), pytest.raises(RuntimeError, match="No available"):
        operators(run)


def test_kernels_that_code_disables_are_enabled_again() -> None:
    priority = torch._C._get_sdp_priority_order()
    with keeping_attention_kernels():
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_math_sdp(False)
        torch._C._set_sdp_priority_order([0, 1, 2, 3, 4])
    assert torch.backends.cuda.flash_sdp_enabled()
    assert torch.backends.cuda.math_sdp_enabled()
    assert torch._C._get_sdp_priority_order() == priority


def test_attention_over_three_dimensions_saves_its_scores() -> None:
    def run() -> None:
        attend(torch.ones(8, 32, 16, dtype=HALF, requires_grad=True)).sum().backward()

    assert "bmm" in operators(run)


def test_heads_and_masks_are_padded_to_what_kernels_need() -> None:
    def narrow() -> torch.Tensor:
        return attend(torch.ones(2, 4, 8, 12, dtype=HALF, requires_grad=True))

    assert {tuple(kept.shape) for kept in saved(narrow)} >= {(2, 4, 8, 16)}
    with FakeTensorMode(), cuda_lowering(A10):
        out = narrow()
        out.sum().backward()
        assert out.shape == (2, 4, 8, 12)

    def masked() -> torch.Tensor:
        query = torch.ones(2, 4, 20, 16, requires_grad=True)
        return attend(query, attn_mask=torch.ones(2, 1, 20, 20, dtype=torch.bool))

    (mask,) = (kept for kept in saved(masked) if kept.shape == (2, 4, 20, 20))
    assert mask.untyped_storage().nbytes() == 2 * 20 * 24 * 4


def test_a_mask_becomes_half_precision_at_once() -> None:
    def run() -> None:
        query = torch.ones(2, 4, 16, 16, dtype=HALF)
        attend(query, attn_mask=torch.ones(2, 1, 16, 16, dtype=torch.bool))

    assert "_to_copy" not in operators(run)


EFFICIENT_OPERATOR = "_scaled_dot_product_efficient_attention"


def _attend_with(mask: Callable[[], torch.Tensor], dtype: torch.dtype = FULL) -> set[str]:
    """The operators of attention with such a mask on an H100."""

    def run() -> None:
        query = torch.ones(2, 4, 15, 16, dtype=dtype, requires_grad=True)
        attend(query, attn_mask=mask())

    return operators(run, H100)


@pytest.mark.parametrize("dtype", [FULL, BRAIN])
def test_no_fused_kernel_takes_a_mask_that_is_not_contiguous_along_keys(dtype: torch.dtype) -> None:
    def position_bias() -> torch.Tensor:
        heads_last = torch.zeros(1, 15, 15, 4, dtype=dtype).requires_grad_()
        return heads_last.permute(0, 3, 1, 2)

    assert EFFICIENT_OPERATOR not in _attend_with(position_bias, dtype)
    assert EFFICIENT_OPERATOR not in _attend_with(lambda: position_bias()[0, 0], dtype)
    assert EFFICIENT_OPERATOR in _attend_with(lambda: position_bias().contiguous(), dtype)


@pytest.mark.parametrize(
    ("shape", "is_taken"),
    [((15, 15), True), ((1, 15), True), ((2, 1, 1, 15), True), ((4, 15, 15), False)],
)
def test_fused_kernels_take_masks_of_two_or_four_dimensions(
    shape: tuple[int, ...], is_taken: bool
) -> None:
    found = _attend_with(lambda: torch.zeros(shape))
    assert (EFFICIENT_OPERATOR in found) == is_taken


def test_grouped_queries_keep_their_scores_in_fp32_only() -> None:
    assert A10.attention_kernel(call(FULL, grouped=True)) is MATH
    assert A10.attention_kernel(call(BRAIN, grouped=True)) is FLASH
    with FakeTensorMode(), cuda_lowering(A10):
        for dtype in (FULL, BRAIN):
            query = torch.ones(2, 4, 8, 16, dtype=dtype, requires_grad=True)
            key = torch.ones(2, 2, 8, 16, dtype=dtype, requires_grad=True)
            attention = torch.nn.functional.scaled_dot_product_attention
            attention(query, key, key, is_causal=True, enable_gqa=True).sum().backward()
            assert key.grad is not None
            assert key.grad.shape == key.shape


@pytest.mark.usefixtures("small_models")
def test_flash_only_is_refused_where_it_cannot_run() -> None:
    padded = small_workload("bert", attention="flash", precision="bf16-mixed")
    with pytest.raises(InvalidInput) as refused:
        trace(padded, 2, A10)
    assert "without a padding mask; choose sdpa" in refused.value.fields["attention"]
    packed = small_workload("gpt2", attention="flash", precision="bf16-mixed")
    names = {operation.name for operation in trace(packed, 2, A10).operations}
    assert FLASH_CALL in names


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_recomputed_attention_has_the_kernel_that_was_chosen() -> None:
    """On Hopper, where PyTorch would pick cuDNN's for what checkpointing recomputes."""
    workload = small_workload(
        "llama-3.2-1b", attention="flash", precision="bf16-true", gradient_checkpointing=True
    )
    run = Counter(operation.name for operation in trace(workload, 2, H100).operations)
    assert run[FLASH_CALL] == 2 * run[f"{FLASH_CALL}_backward"]
    assert not any("cudnn" in name for name in run)


def test_flex_attention_is_measured_on_gpus_only() -> None:
    with pytest.raises(InvalidInput) as raised, torch.device("meta"):
        new_model(Workload("gpt2", attention=Attention.FLEX))
    assert "no FlexAttention for GPT-2" in raised.value.fields["attention"]
    workload = Workload("llama-3.2-1b", attention=Attention.FLEX)
    assert AnalysisRequest(workload, gpu="local").workload == workload
    with torch.device("meta"):
        model: Any = new_model(workload)
    assert model.config._attn_implementation == "flex_attention"
    with pytest.raises(InvalidInput) as raised:
        place(model, workload, "cpu")
    assert "no backward" in raised.value.fields["attention"]
