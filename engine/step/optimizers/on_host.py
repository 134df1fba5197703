"""AdamW whose state and step are on the host, as torchao's ``CPUOffloadOptimizer``.

Source: torchao/optim/cpu_offload.py, with its defaults: gradients stay on the GPU until the step is
done, and weights of few numbers are updated there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...core.errors import EngineError
from ..offloading import Host
from .in_backward import Make

_MIN_SIZE = 4096
"""``minimal_size``: of smaller weights, everything stays on the GPU."""


class OnHost(torch.optim.Optimizer):
    """The memory and the copies of torchao's optimizer, for prediction.

    A copy of each weight is on the host, with its gradient and state. The gradient is copied there
    once backward has it; the step is done there; and the weight is copied back.

    Args:
        parameters: Trained parameters.
        make: Makes the optimizer of some of them.

    Attributes:
        host: The host's memory; to be set before the first step.
        is_at_work: Whether it is stepping on the host.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], make: Make) -> None:
        super().__init__(parameters, {})
        self.host: Host | None = None
        self.is_at_work = False
        self._make = make
        self._there: dict[torch.Tensor, tuple[torch.nn.Parameter, torch.optim.Optimizer]] = {}
        small = [one for one in parameters if one.numel() < _MIN_SIZE]
        self._here = make(small) if small else None
        if self._here is not None:
            self.state = self._here.state
        for one in parameters:
            if one.numel() >= _MIN_SIZE:
                one.register_post_accumulate_grad_hook(self._send_gradient)

    def _send_gradient(self, parameter: torch.Tensor) -> None:
        if self.host is None or parameter.grad is None:
            return
        if parameter not in self._there:
            copy = torch.nn.Parameter(self.host.copied(parameter.detach(), "host"))
            copy.grad = self.host.copied(parameter.grad, "host")
            self._there[parameter] = (copy, self._make([copy]))
        else:
            copy, _ = self._there[parameter]
            if copy.grad is not None:
                self.host.copy(parameter.grad, copy.grad, "host")

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Update the small weights here, all others on the host, and copy those back."""
        if self._here is not None:
            self._here.step()
        for parameter, (copy, optimizer) in self._there.items():
            self.is_at_work = True
            try:
                optimizer.step()
            finally:
                self.is_at_work = False
            if self.host is not None:
                self.host.copy(copy, parameter, "device")


def torchao_optimizer(parameters: list[torch.nn.Parameter], lr: float) -> Any:
    """The real one, for a GPU.

    Raises:
        EngineError: If torchao is not installed.
    """
    try:
        from torchao.optim import CPUOffloadOptimizer  # optional, for real steps
    except ImportError as error:
        raise EngineError(
            "An optimizer on the host is measured with torchao, which is not installed; install it "
            "(pip install torchao) or choose a catalogue GPU for a prediction"
        ) from error
    return CPUOffloadOptimizer(parameters, torch.optim.AdamW, fused=True, lr=lr)
