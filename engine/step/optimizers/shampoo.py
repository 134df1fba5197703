"""Shampoo in blocks, with the size of its updates grafted from SGD."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

REFRESH_EVERY = 1000
BLOCK = 512
"""The longest side of a block, and of a preconditioner."""
MAX_SIDE = 8192
"""A tensor with a longer side has no preconditioners."""

_FIRST_REFRESH = 2
_STARTS_AT = 25
"""The step from which preconditioned updates are used; before, plain momentum is."""
_BETA1, _BETA2 = 0.9, 0.999
_EPSILON = 1e-6
_POWER_ITERATIONS = 100
_MAX_ITERATIONS = 100
_TOLERANCE, _MAX_ERROR_GROWTH = 1e-3, 1.2


class Shampoo(torch.optim.Optimizer):
    """Shampoo, with a statistic and a preconditioner for each side of each block of a tensor.

    A preconditioner is the inverse root of a statistic, in fp32, found by iterated matrix products:
    nothing is decomposed. The package makes them every 1,000 steps; here the second step does so
    too, so that a trial or a trace of two steps has met the step that needs most. Momentum is kept
    twice, of the preconditioned and of the plain gradient. Names stay bound from one parameter to
    the next, and with them tensors alive, as in the package.

    Source: Gupta et al. 2018, "Shampoo: Preconditioned Stochastic Tensor Optimization", and Anil et
    al. 2020, "Scalable Second Order Optimization for Deep Learning"; ``ScalableShampoo`` of
    pytorch-optimizer 4.1.0 with its defaults, of which this makes the same tensors in the same
    order.

    Args:
        params: Trained parameters.
        lr: The learning rate.
        refresh_every: Steps from one refresh of the preconditioners to the next.
        iterations: Iterations of the inverse root to make without a look at its error, where values
            are not known; by default, until it is small.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        *,
        refresh_every: int = REFRESH_EVERY,
        iterations: int | None = None,
    ) -> None:
        super().__init__(params, {"lr": lr})
        self._refresh_every, self._iterations = refresh_every, iterations

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            self._make_state(group["params"])
            step = group["step"] = group.get("step", 0) + 1
            is_due = step == _FIRST_REFRESH or step % self._refresh_every == 0
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                blocks: Blocks = state["blocks"]
                _add_statistics(grad, state, blocks)
                if is_due:
                    self._refresh(state, blocks)
                plain = grad.mul(1.0)
                update = _preconditioned(grad, state, blocks)
                update = plain.clone() if blocks.sizes is None else update.mul(1.0)
                size = torch.linalg.norm(plain)
                length = torch.linalg.norm(update)
                update.mul_(size / (length + 1e-16))
                _last = update  # the package's loop over weight decays holds it until the next
                state["momentum"].mul_(_BETA1).add_(update)
                state["plain_momentum"].mul_(_BETA1).add_(plain)
                if step >= _STARTS_AT:
                    moved = state["momentum"].mul(_BETA1).add_(update)
                else:
                    moved = state["plain_momentum"].mul(_BETA1).add_(plain)
                parameter.add_(moved, alpha=-group["lr"])

    def _make_state(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.grad is None or self.state[parameter]:
                continue
            state = self.state[parameter]
            state["momentum"] = torch.zeros_like(parameter.grad)
            state["blocks"] = blocks = Blocks.of(parameter)
            if blocks.sizes is not None:
                state |= _new_matrices(parameter, blocks)
            state["plain_momentum"] = torch.zeros_like(parameter)

    def _refresh(self, state: dict[str, Any], blocks: Blocks) -> None:
        if blocks.sizes is None:
            return
        for index, statistic in enumerate(state["statistics"]):
            state["preconditioners"][index] = _inverse_root(
                statistic, 2 * len(blocks.shape), self._iterations
            )


@dataclass(frozen=True)
class Blocks:
    """Division of a tensor into blocks.

    Attributes:
        shape: Shape of the tensor, with sides put together while they stay short.
        sizes: Sizes of the blocks along each side of that shape; ``None`` for a tensor that is not
            cut.
    """

    shape: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...] | None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Blocks:
        """The blocks of a parameter."""
        shape = _merged(tensor.shape)
        if len(shape) == 1 or max(tensor.shape) > MAX_SIDE:
            return cls(shape, None)
        return cls(shape, tuple(_cut(side) for side in shape))

    @property
    def lengths(self) -> list[int]:
        """The sides of all blocks, one block after the other."""
        return [side for block in itertools.product(*self.sizes or ()) for side in block]

    @property
    def are_alike(self) -> bool:
        """Whether all their sides are as long, so that their matrices are one tensor."""
        return len(set(self.lengths)) == 1

    def cut(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The blocks of a tensor of that shape."""
        parts = [tensor]
        for side, sizes in enumerate(self.sizes or ()):
            if len(sizes) > 1:
                parts = [one for part in parts for one in torch.split(part, list(sizes), dim=side)]
        return parts

    def merge(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The tensor of these blocks."""
        for side, sizes in reversed(list(enumerate(self.sizes or ()))):
            if (count := len(sizes)) > 1:
                parts = [
                    torch.cat(list(parts[first : first + count]), dim=side)
                    for first in range(0, len(parts), count)
                ]
        return parts[0]


def _merged(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape whose sides are put together as long as they stay within a block.

    What becomes a single side counts as one of length 1, and a first side that is longer than a
    block gets one of length 1 before it, as in the package.
    """
    merged: list[int] = []
    product = 1
    for side in shape:
        product *= side
        if product > BLOCK:
            merged.append(product // side)
            product = side
    merged.append(product)
    return tuple(merged) if len(merged) > 1 else (1,)


def _cut(side: int) -> tuple[int, ...]:
    whole, rest = divmod(side, BLOCK)
    return (*[BLOCK] * whole, *([rest] if rest else []))


def _new_matrices(parameter: torch.Tensor, blocks: Blocks) -> dict[str, Any]:
    """The first statistic and preconditioner of each side of each block, in fp32."""
    device = parameter.device
    statistics: Any = [_EPSILON * torch.eye(side, device=device) for side in blocks.lengths]
    preconditioners: Any = [torch.eye(side, device=device) for side in blocks.lengths]
    if blocks.are_alike:
        statistics = torch.stack(statistics, dim=0)
        preconditioners = torch.stack(preconditioners, dim=0)
    return {"statistics": statistics, "preconditioners": preconditioners}


def _add_statistics(grad: torch.Tensor, state: dict[str, Any], blocks: Blocks) -> None:
    """Take a gradient into the statistics of each side of each block."""
    if blocks.sizes is None:
        return
    whole = grad.to(dtype=torch.float32).reshape(blocks.shape)
    parts = blocks.cut(whole)
    statistics, sides = state["statistics"], range(len(blocks.shape))
    if blocks.are_alike:
        unfolded = torch.stack(
            [part.movedim(side, 0).reshape(part.size(side), -1) for part in parts for side in sides]
        )
        statistics.baddbmm_(unfolded, unfolded.mT, beta=_BETA2, alpha=1 - _BETA2)
        return
    for number, part in enumerate(parts):
        for side in sides:
            others = [one for one in sides if one != side]
            products = torch.tensordot(part, part, dims=[others, others])
            statistic = statistics[number * len(sides) + side]
            statistic.mul_(_BETA2).add_(products, alpha=1 - _BETA2)


def _preconditioned(grad: torch.Tensor, state: dict[str, Any], blocks: Blocks) -> torch.Tensor:
    """A gradient whose blocks are multiplied with their preconditioners, side by side."""
    if blocks.sizes is None:
        return grad
    whole = grad.to(dtype=torch.float32).reshape(blocks.shape)
    parts = blocks.cut(whole)
    sides = len(blocks.shape)
    done = [
        _multiplied(part, state["preconditioners"][number * sides : (number + 1) * sides])
        for number, part in enumerate(parts)
    ]
    merged = blocks.merge(done)
    return merged.reshape(grad.shape).to(dtype=grad.dtype)


def _multiplied(block: torch.Tensor, matrices: Sequence[torch.Tensor]) -> torch.Tensor:
    for matrix in matrices:
        block = torch.tensordot(block, matrix, dims=[[0], [0]])
    return block


def _inverse_root(matrix: torch.Tensor, power: int, iterations: int | None) -> torch.Tensor:
    """A positive matrix to the power of -1 / ``power``, by coupled Newton iterations.

    Source: Guo and Higham 2006, "A Schur-Newton Method for the Matrix p-th Root and its Inverse".

    Args:
        matrix: Square.
        power: Degree of the root.
        iterations: As of :class:`Shampoo`.
    """
    identity = torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    if matrix.shape[0] == 1:
        return (matrix + _EPSILON * matrix.clamp_min(1e-16)).pow(-1 / power)
    matrix = matrix + _largest_eigenvalue(matrix, iterations) * _EPSILON * identity
    scale = (1 + power) / (2 * torch.linalg.norm(matrix))
    root = identity * torch.pow(scale, 1 / power)
    rest = matrix * scale
    share = -1 / power
    shifted = (1 - share) * identity
    error = torch.dist(rest, identity, p=torch.inf)
    factor, next_rest, next_root = (torch.empty_like(one) for one in (rest, rest, root))
    for number in range(1, 1 + (iterations or _MAX_ITERATIONS)):
        torch.add(shifted, share * rest, out=factor)
        torch.matmul(root, factor, out=next_root)
        torch.matmul(torch.linalg.matrix_power(factor, power), rest, out=next_rest)
        next_error = torch.dist(next_rest, identity, p=torch.inf)
        diverges = next_error > error * _MAX_ERROR_GROWTH
        if number == iterations or (
            iterations is None and bool(torch.logical_or(diverges, next_error <= _TOLERANCE))
        ):
            return torch.where(diverges, root, next_root)
        root.copy_(next_root)
        rest, next_rest = next_rest, rest
        error = next_error
    return root


def _largest_eigenvalue(matrix: torch.Tensor, iterations: int | None) -> torch.Tensor:
    vector = torch.randn(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    product = torch.empty_like(vector)
    smallest = torch.finfo(matrix.dtype).tiny
    for _ in range(iterations or _POWER_ITERATIONS):
        torch.mv(matrix, vector, out=product)
        product.div_(torch.linalg.vector_norm(product).clamp_min_(smallest))
        vector, product = product, vector
    torch.mv(matrix, vector, out=product)
    return torch.dot(vector, product).clamp_min_(1e-16)
