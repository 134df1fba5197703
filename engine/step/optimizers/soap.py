"""SOAP: Adam in the eigenbasis of Shampoo's preconditioners."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .refreshes import is_due

REFRESH_EVERY = 10
MAX_SIDE = 10_000
"""A longer side of a tensor has no preconditioner."""

_BETA = 0.95
_EPSILON = 1e-8
_WEIGHT_DECAY = 1e-2
_EPSILON = 1e-30
_DECOMPOSED_AS = (torch.float32, torch.float64)

Sides = list[torch.Tensor | None]
"""One item for each side of a tensor; ``None`` for a side without a preconditioner."""


class Soap(torch.optim.Optimizer):
    """SOAP, with a square matrix of statistics and one of eigenvectors for each side of a tensor.

    The first step only makes its state: it decomposes every statistic (``eigh``; below fp32, in
    fp64). A refresh is one power iteration with a QR decomposition. A tensor of one dimension has
    Adam's moments alone. Names stay bound from one parameter to the next, and with them tensors
    alive, as in the package.

    Source: Vyas et al. 2024, "SOAP: Improving and Stabilizing Shampoo using Adam"; ``SOAP`` of
    pytorch-optimizer 4.1.0 with its defaults, which are the authors', of which this makes the same
    tensors in the same order.

    Args:
        params: Trained parameters.
        lr: The learning rate.
        refresh_every: Steps from one refresh of the eigenvectors to the next.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        *,
        refresh_every: int = REFRESH_EVERY,
    ) -> None:
        super().__init__(params, {"lr": lr})
        self._refresh_every = refresh_every

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient; the first step makes their state."""
        for group in self.param_groups:
            self._make_state(group["params"])
            step = group["step"] = group.get("step", -1) + 1
            if step == 0:
                continue
            rate = group["lr"] * math.sqrt(1 - _BETA**step) / (1 - _BETA**step)
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                projected = _projected(grad, state["Q"])
                mean, square = state["exp_avg"], state["exp_avg_sq"]
                mean.lerp_(grad, weight=1 - _BETA)
                square.lerp_(projected.square(), weight=1 - _BETA)
                scale = square.sqrt().add_(_EPSILON)
                projected_mean = _projected(mean, state["Q"])
                update = _projected(projected_mean / scale, state["Q"], back=True)
                parameter.add_(update, alpha=-rate)
                parameter.mul_(1 - group["lr"] * _WEIGHT_DECAY)
                _add_statistics(grad, state, is_due=is_due(step, self._refresh_every))

    def _make_state(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is None:
                continue
            grad, state = parameter.grad, self.state[parameter]
            if not state:
                state["exp_avg"] = torch.zeros_like(grad)
                state["exp_avg_sq"] = torch.zeros_like(grad)
                state["GG"] = [_new_statistic(grad, side) for side in range(grad.dim())]
                _add_statistics(grad, state, is_due=True)


def _new_statistic(grad: torch.Tensor, side: int) -> torch.Tensor | None:
    length = grad.shape[side]
    if grad.dim() == 1 or length > MAX_SIDE:
        return None
    return torch.zeros(length, length, device=grad.device, dtype=grad.dtype)


def _add_statistics(grad: torch.Tensor, state: dict[str, Any], *, is_due: bool) -> None:
    """Take the products of a gradient's slices into the statistics of each side.

    Where a refresh is due, it follows, beside the last products.
    """
    for side, statistic in enumerate(state["GG"]):
        if statistic is not None:
            others = [one for one in range(grad.dim()) if one != side]
            products = torch.tensordot(grad, grad, dims=[others, others])
            statistic.lerp_(products, weight=1 - _BETA)
    if "Q" not in state:
        state["Q"] = _eigenvectors(state["GG"])
    elif is_due:
        state["Q"] = _refreshed(state)


def _projected(tensor: torch.Tensor, bases: Sides, *, back: bool = False) -> torch.Tensor:
    """A tensor in the eigenbasis of each of its sides, or back from there."""
    for basis in bases:
        if basis is None:
            tensor = tensor.permute([*range(1, tensor.dim()), 0])
        else:
            tensor = torch.tensordot(tensor, basis, dims=[[0], [1 if back else 0]])
    return tensor


def _eigenvectors(statistics: Sides) -> Sides:
    """Eigenvectors of symmetric matrices, those of the largest eigenvalues first."""
    bases: Sides = []
    for statistic in statistics:
        if statistic is None:
            bases.append(None)
            continue
        length, device = statistic.shape[0], statistic.device
        wide = statistic.dtype if statistic.dtype in _DECOMPOSED_AS else torch.float64
        _values, basis = torch.linalg.eigh(
            statistic.to(wide) + _EPSILON * torch.eye(length, device=device, dtype=wide)
        )
        basis = basis.to(statistic.dtype)
        basis = torch.flip(basis, dims=[1])
        bases.append(basis)
    return bases


def _refreshed(state: dict[str, Any]) -> Sides:
    """The next eigenvectors, in whose order the second moment is put."""
    bases: Sides = []
    square = state["exp_avg_sq"]
    for side, (statistic, basis) in enumerate(zip(state["GG"], state["Q"], strict=True)):
        if statistic is None:
            bases.append(None)
            continue
        products = statistic @ basis
        values = (basis * products).sum(dim=0)
        order = torch.argsort(values, descending=True)
        square = square.index_select(side, order)
        sorted_products = products.index_select(1, order)
        orthogonal, _upper = torch.linalg.qr(sorted_products.to(torch.float32))
        orthogonal = orthogonal.to(sorted_products.dtype)
        bases.append(orthogonal)
    state["exp_avg_sq"] = square
    return bases
