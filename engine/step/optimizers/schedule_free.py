"""Schedule-free AdamW."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


class ScheduleFreeAdamW(torch.optim.Optimizer):
    """AdamW that averages its weights and needs no schedule of learning rates.

    It keeps the second moment and the weights before averaging, both as wide as the weight; the
    weights that are trained are interpolated in place, and a gradient is overwritten by its update.
    Parameters are updated all at once, so a step takes one more copy of all of them.

    Source: Defazio et al. 2024, "The Road Less Scheduled"; ``AdamWScheduleFree`` of schedulefree
    1.4.1 with its defaults, of which this makes the same tensors in the same order.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})
        self._steps = 0

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        self._steps += 1
        for group in self.param_groups:
            weights: list[torch.Tensor] = [p for p in group["params"] if p.grad is not None]
            for parameter in weights:
                if not (state := self.state[parameter]):
                    state["z"] = torch.clone(parameter)
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
            if weights:
                self._update(weights, group["lr"])

    def _update(self, weights: list[torch.Tensor], rate: float) -> None:
        (beta1, beta2), share = _BETAS, 1 / self._steps
        gradients = [p.grad for p in weights if p.grad is not None]
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in weights]
        unaveraged = [self.state[parameter]["z"] for parameter in weights]
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - beta2)
        scales = torch._foreach_div(squares, 1 - beta2**self._steps)
        torch._foreach_sqrt_(scales)
        torch._foreach_add_(scales, _EPSILON)
        torch._foreach_div_(gradients, scales)
        torch._foreach_lerp_(weights, unaveraged, weight=share)
        torch._foreach_add_(weights, gradients, alpha=rate * (beta1 * (1 - share) - 1))
        torch._foreach_sub_(unaveraged, gradients, alpha=rate)
