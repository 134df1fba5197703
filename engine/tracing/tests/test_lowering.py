"""CUDA's behaviour on fake CPU tensors: what is saved for backward, and in which format."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.tracing.lowering import cuda_behaviour, cuda_lowering
from engine.tracing.tests.lowered import A10, BRAIN, saved


def test_dropout_saves_a_mask_of_one_byte_per_element() -> None:
    def run() -> torch.Tensor:
        return torch.dropout(torch.ones(10, 10, requires_grad=True), 0.1, True)

    assert [(kept.dtype, kept.numel()) for kept in saved(run)] == [(torch.bool, 100)]


@pytest.mark.parametrize(("p", "train"), [(0.0, True), (0.1, False)])
def test_dropout_with_probability_zero_saves_nothing(p: float, train: bool) -> None:
    assert saved(lambda: torch.dropout(torch.ones(9, requires_grad=True), p, train)) == []


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


def test_it_does_not_matter_who_has_registered_a_kernel_in_python() -> None:
    """PyTorch has ones of its own, which differ by release, and may register them at any time."""
    of_others = torch.library.Library("aten", "IMPL")
    try:
        of_others.impl("dropout", lambda given, p, train: given, "AutogradCPU")
        test_dropout_saves_a_mask_of_one_byte_per_element()
    finally:
        of_others._destroy()
    with cuda_lowering(A10):
        later = torch.library.Library("aten", "IMPL")
        later.impl("_thnn_fused_gru_cell", lambda *given: given, "Meta")
        later._destroy()
    test_leaving_the_context_restores_the_cpus_behaviour()
