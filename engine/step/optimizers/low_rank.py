"""AdamW over gradients that are projected to a low rank: GaLore and APOLLO.

Names stay bound from one parameter to the next, and with them tensors alive, as in the packages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...core.errors import InvalidInput
from ...core.optimizers import PROJECTED_MODULES
from .in_backward import Make
from .refreshes import is_due

REFRESH_EVERY = 200
"""Steps, in both packages' examples."""

_BETA1, _BETA2 = 0.9, 0.999
_EPSILON = 1e-6
_GALORE_SCALE = 0.25
_APOLLO_MINI_SCALE = 128.0
_MAX_GROWTH = 1.01


def projected_weights(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The trained weights of linear layers in blocks.

    Raises:
        InvalidInput: If there are none.
    """
    names = {
        f"{path}.weight"
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and re.fullmatch(PROJECTED_MODULES, path)
    }
    found = [p for path, p in model.named_parameters() if path in names and p.requires_grad]
    if not found:
        reason = "it projects the linear layers (nn.Linear) of blocks, of which this model has none"
        raise InvalidInput({"optimizer": f"{reason}; choose adamw"})
    return found


class LowRankAdamW(torch.optim.Optimizer):
    """AdamW whose moments of some matrices are those of projected gradients.

    Args:
        others: Parameters with moments as wide as themselves, which are updated first.
        projected: Matrices whose gradients are projected.
        lr: The learning rate.
        rank: Rank of the projections.
        refresh_every: Steps from one projection to the next.
    """

    def __init__(
        self,
        others: Sequence[torch.nn.Parameter],
        projected: Sequence[torch.nn.Parameter],
        lr: float,
        *,
        rank: int,
        refresh_every: int = REFRESH_EVERY,
    ) -> None:
        super().__init__(_groups(others, projected, rank), {"lr": lr})
        self._refresh_every = refresh_every


class GaLoreAdamW(LowRankAdamW):
    """GaLore: the moments live in the space of a gradient's largest singular vectors.

    A refresh decomposes the whole gradient in fp32. Of one in fp32, the vectors that are kept are a
    window on all of them, which stay in memory.

    Source: Zhao et al. 2024, "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank
    Projection"; ``GaLoreAdamW`` of galore-torch 1.0, of which this makes the same tensors in the
    same order, with the settings of transformers' Trainer.
    """

    @torch.no_grad()  # each class has its own loop: what it binds lives until the next parameter
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            rank = group.get("rank")
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                state.setdefault("step", 0)
                if rank is not None:
                    if is_due(state["step"], self._refresh_every):
                        state["projection"] = _singular_vectors(grad, rank)
                    grad = _projected(grad, state["projection"])
                _add_moments(state, grad)
                scale = state["exp_avg_sq"].sqrt().add_(_EPSILON)
                update = state["exp_avg"] / scale
                if rank is not None:
                    update = _projected_back(update, state["projection"])
                parameter.add_(update, alpha=-group["lr"] * _correction(state["step"]))


class GaLoreAdamW8bit(LowRankAdamW):
    """GaLore with the moments of bitsandbytes, in 8 bits.

    A kernel of bitsandbytes updates a weight in place, so each projected one is cloned, and zeros
    of the projection's size are updated where it was.

    Source: ``GaLoreAdamW8bit`` of galore-torch 1.0, of which this makes the same tensors in the
    same order. (Since bitsandbytes 0.46, whose arguments are others, that one keeps a number more
    for each parameter: the norm of its update.)

    Args:
        moments: Makes the optimizer of one parameter, as it is or projected.
    """

    def __init__(self, *given: Any, moments: Make, **named: Any) -> None:
        super().__init__(*given, **named)
        trained = (p for group in self.param_groups for p in group["params"])
        self._of = {parameter: moments([parameter]) for parameter in trained}

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            rank = group.get("rank")
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state, of_moments = self.state[parameter], self._of[parameter]
                done = state.setdefault("step", 0)
                if rank is None:
                    of_moments.step()
                else:
                    if is_due(done, self._refresh_every):
                        state["projection"] = _singular_vectors(parameter.grad, rank)
                    grad = _projected(parameter.grad, state["projection"])
                    weight = parameter.data.clone()
                    parameter.data = torch.zeros_like(grad, dtype=weight.dtype)
                    parameter.grad = grad
                    of_moments.step()
                    update = parameter.data
                    parameter.data = weight.add_(_projected_back(update, state["projection"]))
                state["moments"] = of_moments.state[parameter]
                state["step"] = done + 1


class ApolloAdamW(LowRankAdamW):
    """APOLLO: moments of a random projection say how each channel of a gradient is scaled.

    At rank 1 it is APOLLO-Mini, which scales a matrix as a whole. How fast the norm of an update
    grows is limited, which takes another copy of it.

    Source: Zhu et al. 2024, "APOLLO: SGD-like Memory, AdamW-level Performance"; ``APOLLOAdamW`` of
    apollo-torch 1.0.3, of which this makes the same tensors in the same order, with its examples'
    settings.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        trained = (p for group in self.param_groups for p in group["params"])
        self._draws = {
            parameter: torch.Generator(parameter.device).manual_seed(seed)
            for seed, parameter in enumerate(trained, start=1)
        }

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            rank = group.get("rank")
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                grad, state = parameter.grad, self.state[parameter]
                state.setdefault("step", 0)
                if rank is not None:
                    if is_due(state["step"], self._refresh_every):
                        state["projection"] = _random_projection(grad, rank, self._draws[parameter])
                    grad = _projected(grad, state["projection"])
                _add_moments(state, grad)
                scale = state["exp_avg_sq"].sqrt().add_(_EPSILON)
                update = state["exp_avg"] / scale
                if rank is not None:
                    factor = _scaling(update, grad, parameter.grad, rank)
                    scaled = parameter.grad * factor
                    norm = torch.norm(scaled)
                    if "norm" in state:
                        limiter = norm / (state["norm"] + 1e-8)
                        limiter = limiter.clamp_(min=_MAX_GROWTH).div_(_MAX_GROWTH)
                        state["norm"] = norm / limiter
                        scaled = scaled / limiter
                    else:
                        state["norm"] = norm
                    update = scaled
                    update *= math.sqrt(_APOLLO_MINI_SCALE if rank == 1 else 1)
                parameter.add_(update, alpha=-group["lr"] * _correction(state["step"]))


def _groups(
    others: Sequence[torch.nn.Parameter], projected: Sequence[torch.nn.Parameter], rank: int
) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = [
        {"params": list(others)},
        {"params": list(projected), "rank": rank},
    ]
    return [group for group in groups if group["params"]]


def _add_moments(state: dict[str, Any], grad: torch.Tensor) -> None:
    """Take a gradient, as it is or projected, into the two moments."""
    if "exp_avg" not in state:
        state["exp_avg"] = torch.zeros_like(grad)
        state["exp_avg_sq"] = torch.zeros_like(grad)
    state["step"] += 1
    state["exp_avg"].mul_(_BETA1).add_(grad, alpha=1 - _BETA1)
    state["exp_avg_sq"].mul_(_BETA2).addcmul_(grad, grad, value=1 - _BETA2)


def _correction(step: int) -> float:
    """Bias correction of both moments."""
    return math.sqrt(1 - _BETA2**step) / (1 - _BETA1**step)


def _is_tall(matrix: torch.Tensor) -> bool:
    """Whether its columns are projected, and not its rows."""
    return matrix.shape[0] >= matrix.shape[1]


def _projected(grad: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """A gradient of (rows, columns) as (rows, rank) where it is tall, else (rank, columns)."""
    if _is_tall(grad):
        return torch.matmul(grad, projection.t())
    return torch.matmul(projection.t(), grad)


def _projected_back(update: torch.Tensor, projection: torch.Tensor) -> torch.Tensor:
    """An update as wide as the weight."""
    if _is_tall(update):
        full = torch.matmul(update, projection)
    else:
        full = torch.matmul(projection, update)
    return full * _GALORE_SCALE


def _singular_vectors(grad: torch.Tensor, rank: int) -> torch.Tensor:
    """Leading singular vectors: (rank, columns) of a tall gradient, else (rows, rank).

    The package multiplies the others with the values, and does not use the product.
    """
    matrix = grad if grad.dtype is torch.float32 else grad.float()
    kept: torch.Tensor
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    if _is_tall(grad):
        _unused = left[:, :rank] @ torch.diag(values[:rank])
        kept = right[:rank, :]
    else:
        kept = left[:, :rank]
        _unused = torch.diag(values[:rank]) @ right[:rank, :]
    return kept if matrix is grad else kept.type(grad.dtype)


def _random_projection(grad: torch.Tensor, rank: int, draws: torch.Generator) -> torch.Tensor:
    """Random projection, shaped as :func:`_singular_vectors`.

    The shape is taken from a copy of the gradient in fp32.
    """
    matrix = grad if grad.dtype is torch.float32 else grad.float()
    rows, columns = matrix.shape
    shape = (rank, columns) if _is_tall(grad) else (rows, rank)
    drawn = torch.randn(shape, generator=draws, device=matrix.device) / math.sqrt(rank)
    return drawn if matrix is grad else drawn.type(grad.dtype)


def _scaling(
    update: torch.Tensor, low: torch.Tensor, grad: torch.Tensor, rank: int
) -> torch.Tensor:
    """The factor of each channel of a gradient, or of all of it at rank 1."""
    if rank == 1:
        whole: torch.Tensor = torch.norm(update) / (torch.norm(low) + 1e-8)
        return whole
    side = 0 if grad.shape[0] < grad.shape[1] else 1
    factor: torch.Tensor = torch.norm(update, dim=side) / (torch.norm(low, dim=side) + 1e-8)
    return factor.unsqueeze(1) if side == 1 else factor
