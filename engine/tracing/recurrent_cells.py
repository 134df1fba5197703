"""Cells of recurrent networks on CUDA, as their fused kernels keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

_aten = torch.ops.aten


def cell_operators() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operators that are composed on CUDA otherwise than on the CPU, by name."""
    yield "lstm_cell", _lstm_cell
    yield "gru_cell", _gru_cell


def cell_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Shapes of what CUDA's kernels return, where PyTorch gives none, by name."""
    yield "_thnn_fused_gru_cell", _fused_gru_cell
    yield "_thnn_fused_gru_cell_backward", _fused_gru_cell_backward


def _lstm_cell(
    input: torch.Tensor,
    hx: list[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``LSTMCell`` in aten/src/ATen/native/RNN.cpp; the kernel keeps all four gates."""
    gates, hidden = input @ w_ih.t(), hx[0] @ w_hh.t()
    state, *biases = (_like(gates, tensor) for tensor in (hx[1], b_ih, b_hh))
    output, state, _ = _aten._thnn_fused_lstm_cell(gates, hidden, state, *biases)
    return output, state


def _gru_cell(
    input: torch.Tensor,
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> torch.Tensor:
    """``GRUCell`` in aten/src/ATen/native/RNN.cpp."""
    gates, hidden = input @ w_ih.t(), hx @ w_hh.t()
    state, *biases = (_like(gates, tensor) for tensor in (hx, b_ih, b_hh))
    output: torch.Tensor = _aten._thnn_fused_gru_cell(gates, hidden, state, *biases)[0]
    return output


def _like(gates: torch.Tensor, tensor: torch.Tensor | None) -> torch.Tensor | None:
    """The tensor in the number format of the gates, to which autocast brings all arguments."""
    return None if tensor is None else tensor.to(gates.dtype)


_GRU_WORKSPACE = 5
"""Rows of a hidden state's size that the kernel keeps (``GRU_WORKSPACE_MULTIPLIER`` in
aten/src/ATen/native/cuda/RNN.cu)."""


def _fused_gru_cell(
    input_gates: torch.Tensor,
    hidden_gates: torch.Tensor,
    hx: torch.Tensor,
    input_bias: torch.Tensor | None = None,
    hidden_bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(hx), hx.new_empty(hx.shape[0], _GRU_WORKSPACE * hx.shape[1])


def _fused_gru_cell_backward(
    grad_hy: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor | None, ...]:
    batch, hidden = grad_hy.shape
    gates = [workspace.new_empty(batch, 3 * hidden) for _ in range(2)]
    biases = [gates[0].new_empty(3 * hidden) if has_bias else None for _ in range(2)]
    return (*gates, torch.empty_like(grad_hy), *biases)
