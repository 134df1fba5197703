"""Updates each parameter within the backward pass, once its gradient is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


class InBackward(torch.optim.Optimizer):
    """One optimizer for each parameter, which steps in the backward pass and drops the gradient.

    So no more than a few gradients exist at once.

    Source: PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward
    pass", and torchtune's ``optimizer_in_bwd``.

    Args:
        parameters: Trained parameters.
        make: Makes the optimizer of one of them.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], make: Make) -> None:
        super().__init__(parameters, {})
        self._of: dict[torch.Tensor, torch.optim.Optimizer] = {
            parameter: make([parameter]) for parameter in parameters
        }
        for one in self._of.values():
            one.state = self.state

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Do nothing: every parameter is updated already."""

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Update parameters in backward passes for as long as the context lasts."""
        hooks = [one.register_post_accumulate_grad_hook(self._update) for one in self._of]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _update(self, parameter: torch.Tensor) -> None:
        optimizer = self._of[parameter]
        optimizer.step()
        optimizer.zero_grad()


def updating_in_backward(
    optimizer: torch.optim.Optimizer | None,
) -> AbstractContextManager[None]:
    """The context of a backward pass: parameters are updated in it if the optimizer does that."""
    return optimizer.updating() if isinstance(optimizer, InBackward) else nullcontext()
