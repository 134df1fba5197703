"""CUDA's autocast on the CPU: in which number format an operator computes, and what is copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.tracing.autocast import SUMMED_IN_FP32, TO_FP32, TO_WIDEST
from engine.tracing.lowering import cuda_lowering
from engine.tracing.tests.lowered import A10, BRAIN, FULL, HALF, operators, saved

OPERATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pow": lambda x: x.pow(3.0),
    "exp": torch.exp,
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, (4,)),
    "sum": lambda x: x.sum(),
    "cumsum": lambda x: x.cumsum(0),
    "mse_loss": lambda x: torch.nn.functional.mse_loss(x, x),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 2),
    "rms_norm": lambda x: torch.nn.functional.rms_norm(x, (4,)),
    "cross_entropy": lambda x: torch.nn.functional.cross_entropy(x, x.argmax(-1)),
    "upsample": lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2),
    "norm": lambda x: x.norm(),
    "norm along a dimension": lambda x: torch.norm(x, dim=1),
    "cumprod": lambda x: x.cumprod(0),
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
        pooled = torch.nn.functional.avg_pool3d(x.view(1, 1, 2, 2, 4), 2)
        assert pooled.dtype is half


def test_operators_of_mixed_formats_take_the_widest() -> None:
    with FakeTensorMode(), cuda_lowering(A10), torch.autocast("cpu", dtype=HALF):
        narrow, wide = torch.ones(4, dtype=HALF), torch.ones(4)
        assert torch.addcmul(narrow, wide, narrow).dtype is FULL
        assert torch.addcmul(narrow, narrow, narrow).dtype is HALF
        assert torch.cat([narrow, narrow]).dtype is HALF


def test_softmax_reads_fp16_as_it_is_and_copies_bf16() -> None:
    def run(half: torch.dtype) -> Callable[[], object]:
        def soften() -> None:
            with torch.autocast("cpu", dtype=half):
                torch.ones(4, 4, dtype=half).log_softmax(-1)

        return soften

    assert "_to_copy" not in operators(run(HALF))
    assert "_to_copy" in operators(run(BRAIN))


def test_group_norm_saves_an_fp32_copy_and_batch_norm_its_input() -> None:
    def kept(make: Callable[[], torch.nn.Module]) -> list[torch.dtype]:
        def run() -> None:
            norm = make()
            with torch.autocast("cpu", dtype=BRAIN):
                norm(torch.ones(2, 4, 8, 8, dtype=BRAIN, requires_grad=True))

        return [one.dtype for one in saved(run) if one.dim() == 4]

    assert kept(lambda: torch.nn.GroupNorm(2, 4)) == [FULL]
    assert kept(lambda: torch.nn.BatchNorm2d(4)) == [BRAIN]


# Composed of operators that autocast treats alike on both
COMPOSED = {
    "_convolution", "convolution", "cudnn_convolution", "cudnn_convolution_transpose", "addmv",
    "addr", "mv", "einsum", "chain_matmul", "linalg_multi_dot", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell",
    "_scaled_dot_product_flash_attention",
}  # fmt: skip


def test_every_operator_that_cuda_treats_on_its_own_is_known() -> None:
    treated = torch._C._dispatch_get_registrations_for_dispatch_key
    on_cuda, on_cpu = (
        {name.removeprefix("aten::") for name in treated(f"Autocast{device}")}
        for device in ("CUDA", "CPU")
    )
    known = {*TO_FP32, *SUMMED_IN_FP32, *TO_WIDEST, *COMPOSED}
    known |= {"softmax.int", "log_softmax.int", "norm.Scalar", "norm.ScalarOpt_dim"}
    assert on_cuda - on_cpu <= known
