"""CUDA's behaviour on fake CPU tensors: what is saved for backward, and in which format."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.tracing.lowering import AttentionKernel, cuda_behaviour, cuda_lowering

A10 = cuda_behaviour(8.6)
H100 = cuda_behaviour(9.0)
T4 = cuda_behaviour(7.5)
HALF = torch.float16
BRAIN = torch.bfloat16
FULL = torch.float32


def saved(run: Callable[[], torch.Tensor]) -> list[torch.Tensor]:
    """The tensors that a forward pass saves for backward."""
    kept: list[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with (
        FakeTensorMode(),
        cuda_lowering(A10),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        run()
    return kept


def test_dropout_saves_a_mask_of_one_byte_per_element() -> None:
    def run() -> torch.Tensor:
        return torch.dropout(torch.ones(10, 10, requires_grad=True), 0.1, True)

    assert [(kept.dtype, kept.numel()) for kept in saved(run)] == [(torch.bool, 100)]


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.1, False)])
def test_dropout_with_probability_zero_saves_nothing(p: float, train: bool) -> None:
    assert saved(lambda: torch.dropout(torch.ones(9, requires_grad=True), p, train)) == []


@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize("dtype", [FULL, HALF])
def test_attention_saves_no_score_matrix(dtype: torch.dtype, has_mask: bool) -> None:
    length = 256

    def run() -> torch.Tensor:
        query = torch.ones(2, 4, length, 16, dtype=dtype, requires_grad=True)
        mask = torch.ones(2, 1, length, length, dtype=torch.bool) if has_mask else None
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(query, query, query, attn_mask=mask, dropout_p=0.1)

    scores = 2 * 4 * length * length
    for kept in saved(run):  # an expanded mask may have that shape but not that storage
        assert kept.untyped_storage().nbytes() < scores * kept.element_size()


@pytest.mark.parametrize(
    ("behaviour", "dtype", "has_mask", "dropout", "kernel"),
    [
        (A10, FULL, False, 0.0, AttentionKernel.EFFICIENT),
        (A10, HALF, False, 0.1, AttentionKernel.FLASH),
        (A10, BRAIN, True, 0.0, AttentionKernel.EFFICIENT),
        (H100, FULL, False, 0.0, AttentionKernel.EFFICIENT),
        (H100, BRAIN, True, 0.0, AttentionKernel.CUDNN),
        (H100, BRAIN, False, 0.1, AttentionKernel.FLASH),
        (H100, BRAIN, False, 0.125, AttentionKernel.CUDNN),
        (H100, BRAIN, True, 0.1, AttentionKernel.EFFICIENT),
        (T4, HALF, False, 0.0, AttentionKernel.EFFICIENT),
        (cuda_behaviour(12.0), BRAIN, False, 0.0, AttentionKernel.FLASH),
    ],
)
def test_the_attention_kernel_is_pytorchs_choice(
    behaviour: object, dtype: torch.dtype, has_mask: bool, dropout: float, kernel: AttentionKernel
) -> None:
    assert behaviour.attention_kernel(dtype, has_mask, dropout) is kernel  # type: ignore[attr-defined]  # a CudaBehaviour


OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pow": lambda x: x.pow(3.0),
    "exp": torch.exp,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "sum": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "mse_loss": lambda x: torch.nn.functional.mse_loss(x, x),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("half", [HALF, BRAIN])
def test_autocast_uses_fp32_for_the_same_operations_as_on_cuda(
    name: str, half: torch.dtype
) -> None:
    with FakeTensorMode(), cuda_lowering(A10), torch.autocast("cpu", dtype=half):
        x = torch.ones(4, 4, dtype=half, requires_grad=True)
        assert OPERATIONS[name](x).dtype is FULL


@pytest.mark.parametrize("half", [HALF, BRAIN])
def test_autocast_leaves_other_operations_in_their_inputs_format(half: torch.dtype) -> None:
    with FakeTensorMode(), cuda_lowering(A10), torch.autocast("cpu", dtype=half):
        x = torch.ones(4, 4, dtype=half)
        assert torch.nn.functional.gelu(x).dtype is half
        assert torch.relu(x).dtype is half
        assert (torch.ones(4, 4) @ torch.ones(4, 4)).dtype is half


def test_backward_runs_through_every_replacement() -> None:
    with FakeTensorMode(), cuda_lowering(A10):
        x = torch.ones(2, 2, 8, 8, requires_grad=True)
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.1)
        with torch.autocast("cpu", dtype=BRAIN):
            torch.dropout(y, 0.1, True).pow(2).softmax(-1).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == x.shape


def test_leaving_the_context_restores_the_cpus_behaviour() -> None:
    with cuda_lowering(A10):
        pass
    x = torch.ones(4, 4)
    with torch.autocast("cpu", dtype=BRAIN):
        assert x.bfloat16().pow(3.0).dtype is BRAIN
    # The CPU's own dropout leaves its input's storage alone and is differentiable as before.
    y = torch.dropout(x.requires_grad_(), 0.5, True)
    y.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize(
    ("capability", "workspace"), [(7.0, 8_519_680), (8.9, 8_519_680), (9.0, 2**25), (12.0, 2**25)]
)
def test_the_cublas_workspace_depends_on_the_generation(capability: float, workspace: int) -> None:
    assert cuda_behaviour(capability).cublas_workspace_bytes == workspace


def test_grouped_queries_save_their_scores_only_in_fp32() -> None:
    assert A10.attention_kernel(FULL, False, 0.0, grouped=True) is AttentionKernel.MATH
    assert A10.attention_kernel(BRAIN, False, 0.0, grouped=True) is AttentionKernel.FLASH
    with FakeTensorMode(), cuda_lowering(A10):
        for dtype in (FULL, BRAIN):
            query = torch.ones(2, 4, 8, 16, dtype=dtype, requires_grad=True)
            key = torch.ones(2, 2, 8, 16, dtype=dtype, requires_grad=True)
            attend = torch.nn.functional.scaled_dot_product_attention
            attend(query, key, key, is_causal=True, enable_gqa=True).sum().backward()
            assert key.grad is not None
            assert key.grad.shape == key.shape
