"""Whole recurrent layers on CUDA: ``nn.LSTM``, ``nn.GRU`` and ``nn.RNN``, as cuDNN runs them.

cuDNN keeps for backward what it calls a reserve space, and takes a workspace meanwhile. Only cuDNN
on a GPU gives their sizes (``cudnnGetRNNTempSpaceSizes``), so here they are computed from sizes
that it once gave. Everything else follows aten/src/ATen/native/cudnn/RNN.cpp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

_aten = torch.ops.aten
_LAYERS = _aten._cudnn_rnn.default
_BACKWARD = _aten._cudnn_rnn_backward.default


@dataclass(frozen=True)
class _Kind:
    """A kind of recurrent layer.

    Attributes:
        mode: Its number in cuDNN (``cudnnRNNMode_t``).
        reserved: Rows of the hidden size that each layer keeps for each number of the batch and
            each time, besides the output of all layers but the last.
    """

    mode: int
    reserved: int


_KINDS = {
    "rnn_relu": _Kind(0, 1),
    "rnn_tanh": _Kind(1, 1),
    "lstm": _Kind(2, 5),
    "gru": _Kind(3, 6),
}
"""An LSTM keeps its four gates and the cell. Source: four layers of 320 from 123 inputs reserved
736,000,000 bytes as LSTM and 864,000,000 as GRU (https://github.com/pytorch/pytorch/issues/2895),
23 and 27 rows of 320 in fp32 for each of 25,000 positions: 4·5 + 3 and 4·6 + 3. Of an RNN it is
its one gate."""

_WORKSPACE = 1.46
"""Times the weights: 17,730,560 bytes for 12,139,520 of that LSTM, 13,169,920 for 9,104,640."""

MAKERS = frozenset({str(_LAYERS._overloadpacket)})
FACTORS = (0.7, 1.3)
"""Bounds of the memory that an operator of recurrent layers takes, as multiples: nearly all of it
is the reserve space."""

COMPUTED = (
    "Only a GPU tells what cuDNN keeps of recurrent layers: it is computed from what an older "
    "cuDNN reserved, and the range of memory covers 30% less and more. Step times count their "
    "matrix products as if all times ran at once, so a real step takes longer."
)
"""Caveat of an answer where such layers decide."""


def layer_operators() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Operators that cuDNN runs on CUDA, by name."""
    for name, kind in _KINDS.items():
        yield f"{name}.input", _padded(kind, has_cell=name == "lstm")
        yield f"{name}.data", _packed(kind, has_cell=name == "lstm")


def layer_kernels() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Shapes of what cuDNN's kernels return, by name."""
    yield "_cudnn_rnn", _forward
    yield "_cudnn_rnn_backward", _backward


def workspace_bytes(func: Any, args: tuple[Any, ...]) -> int:
    """Bytes that cuDNN takes while a layer runs; 0 for other operators.

    Args:
        func: The operator.
        args: Its arguments: the input, then the weights.
    """
    if func not in (_LAYERS, _BACKWARD):
        return 0
    return int(_WORKSPACE * sum(weight.nbytes for weight in args[1]))


def flops(args: tuple[Any, ...], *, backward: bool) -> int:
    """Floating-point operations of a layer: two for each weight and position, in each product.

    Biases are left out.
    """
    given: torch.Tensor = args[0]
    weights: list[torch.Tensor] = args[1]
    products = sum(weight.numel() for weight in weights if weight.dim() == 2)
    return 2 * (1 + backward) * math.prod(given.shape[:-1]) * products


def _padded(kind: _Kind, *, has_cell: bool) -> Callable[..., Any]:
    def layers(
        given: torch.Tensor,
        hx: Any,
        weights: list[torch.Tensor],
        has_biases: bool,
        count: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        settings = (count, batch_first, dropout, train, bidirectional, ())
        return _run(kind, given, hx if has_cell else [hx], weights, has_biases, settings)

    return layers


def _packed(kind: _Kind, *, has_cell: bool) -> Callable[..., Any]:
    def layers(
        given: torch.Tensor,
        batch_sizes: torch.Tensor,
        hx: Any,
        weights: list[torch.Tensor],
        has_biases: bool,
        count: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
    ) -> tuple[torch.Tensor, ...]:
        settings = (count, False, dropout, train, bidirectional, batch_sizes.tolist())
        return _run(kind, given, hx if has_cell else [hx], weights, has_biases, settings)

    return layers


def _run(
    kind: _Kind,
    given: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    settings: tuple[Any, ...],
) -> tuple[torch.Tensor, ...]:
    """``_cudnn_impl``, with the weights in one piece as ``flatten_parameters`` lays them out."""
    if torch.is_autocast_enabled("cpu"):  # as _cudnn_rnn_cast_reflatten does
        dtype = torch.get_autocast_dtype("cpu")
        given, *states = (tensor.to(dtype) for tensor in (given, *states))
        weights = [weight.to(dtype) for weight in weights]
    hidden, cell = states[0], states[1] if len(states) > 1 else None
    width = states[-1].shape[-1]
    projected = hidden.shape[-1] if hidden.shape[-1] != width else 0
    each = 2 * (1 + has_biases) + bool(projected)
    output, *last, _, _ = _aten._cudnn_rnn(
        given, weights, each, None, hidden, cell, kind.mode, width, projected, *settings, None
    )
    return (output, *last[: len(states)])


def _forward(
    given: torch.Tensor,
    weights: Sequence[torch.Tensor],
    each: int,
    flat: None,
    hidden: torch.Tensor,
    cell: torch.Tensor | None,
    mode: int,
    width: int,
    projected: int,
    count: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: None,
) -> tuple[torch.Tensor, ...]:
    directions = 1 + bidirectional
    output = given.new_empty((*given.shape[:-1], directions * hidden.shape[-1]))
    kept = 0
    if train:
        kind = next(kind for kind in _KINDS.values() if kind.mode == mode)
        rows = count * kind.reserved * width + (count - 1) * hidden.shape[-1]
        kept = directions * rows * math.prod(given.shape[:-1]) * given.element_size()
    last = torch.empty_like(hidden)
    state = given.new_empty(0) if cell is None else torch.empty_like(cell)
    reserve = given.new_empty(kept, dtype=torch.uint8)
    return output, last, state, reserve, given.new_empty(0)


def _backward(
    given: torch.Tensor,
    weights: Sequence[torch.Tensor],
    each: int,
    flat: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor | None,
    *rest: Any,
) -> tuple[Any, ...]:
    """Gradients; those of the weights are parts of one buffer."""
    buffer = given.new_empty(sum(weight.numel() for weight in weights))
    parts = buffer.split([weight.numel() for weight in weights])
    gradients = [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
    state = None if cell is None else torch.empty_like(cell)
    return torch.empty_like(given), torch.empty_like(hidden), state, gradients
