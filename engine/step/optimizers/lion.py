"""Lion."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch


class Lion(torch.optim.Optimizer):
    """Lion: the sign of an interpolated momentum, one buffer for each parameter.

    Source: Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2, with
    its default betas and no weight decay.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["exp_avg"] = torch.zeros_like(parameter)
                momentum, gradient = state["exp_avg"], parameter.grad
                update = momentum.mul(beta1).add_(gradient, alpha=1 - beta1).sign_()
                parameter.add_(update, alpha=-group["lr"])
                momentum.lerp_(gradient, 1 - beta2)
