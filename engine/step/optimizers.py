"""The optimizers people train with, each as its usual trainer sets it up on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..choices import Optimizer
from ..errors import EngineError
from ..tracing.operations import OWN_KERNELS

_LEARNING_RATE = 1e-5
_QUANTIZED_BLOCK = 256
_LEAST_QUANTIZED = 4096

_kernels = torch.library.Library(OWN_KERNELS, "DEF")
_kernels.define(
    "adamw_8bit_(Tensor(a!) parameter, Tensor gradient, Tensor(b!)[] state) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.impl("adamw_8bit_", lambda parameter, gradient, state: None, "CompositeExplicitAutograd")

Parameters = list[torch.nn.Parameter]


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


class AdamW8bitLayout(torch.optim.Optimizer):
    """The memory of bitsandbytes' 8-bit AdamW, without its arithmetic, for prediction.

    Its kernel is fused, so a step takes no temporaries. Both moments are bytes with one fp32 scale
    per block of 256 values; tensors under 4,096 values stay in fp32 (``Optimizer2State`` in
    bitsandbytes/optim/optimizer.py). A no-op operator stands for the kernel, one call per
    parameter; its arguments are what the kernel reads and writes, so a trace knows the bytes that
    it moves. A real step runs bitsandbytes itself.
    """

    def __init__(self, params: Iterable[torch.nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Create the missing state of each parameter with a gradient, and call the kernel."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= self._moment("state1", parameter) | self._moment("state2", parameter)
                torch.ops.memorymark.adamw_8bit_(parameter, parameter.grad, list(state.values()))

    @staticmethod
    def _moment(name: str, parameter: torch.nn.Parameter) -> dict[str, torch.Tensor]:
        if parameter.numel() < _LEAST_QUANTIZED:
            return {name: torch.zeros_like(parameter, dtype=torch.float32)}
        blocks = -(-parameter.numel() // _QUANTIZED_BLOCK)
        return {
            name: torch.zeros_like(parameter, dtype=torch.uint8),
            f"absmax{name[-1]}": parameter.new_zeros(blocks, dtype=torch.float32),
        }


def make_optimizer(
    optimizer: Optimizer, model: torch.nn.Module, *, predicting: bool
) -> torch.optim.Optimizer | None:
    """The optimizer of a workload, over the trainable parameters.

    ``foreach`` is PyTorch's default on CUDA; set explicitly, it applies on every device.

    Args:
        optimizer: Which one; ``none`` gives ``None``.
        model: Its trainable parameters are updated.
        predicting: Whether the step is only traced.

    Raises:
        EngineError: If the optimizer needs a package that is not installed.
    """
    if optimizer is Optimizer.NONE:
        return None
    if optimizer is Optimizer.ADAMW_8BIT and not predicting:
        measured: torch.optim.Optimizer = _bitsandbytes_adamw()(_trained(model), lr=_LEARNING_RATE)
        return measured
    return _MAKERS[optimizer](_trained(model))


def _trained(model: torch.nn.Module) -> Parameters:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _bitsandbytes_adamw() -> Any:
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise EngineError(
            "8-bit AdamW is measured with bitsandbytes, which is not installed; install it (pip "
            "install bitsandbytes) or choose a catalogue GPU for a prediction"
        ) from error
    return AdamW8bit


def _adafactor(parameters: Parameters) -> Any:
    """As the Trainer sets it up: with a given learning rate."""
    from transformers.optimization import Adafactor  # loads peft and is rarely needed

    return Adafactor(parameters, lr=_LEARNING_RATE, scale_parameter=False, relative_step=False)


_MAKERS: dict[Optimizer, Callable[[Parameters], torch.optim.Optimizer]] = {
    Optimizer.SGD: lambda p: torch.optim.SGD(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.SGD_MOMENTUM: lambda p: torch.optim.SGD(
        p, lr=_LEARNING_RATE, momentum=0.9, foreach=True
    ),
    # Fused is the Hugging Face Trainer's default since PyTorch 2.8.
    Optimizer.ADAMW: lambda p: torch.optim.AdamW(p, lr=_LEARNING_RATE, fused=True),
    Optimizer.ADAMW_FOREACH: lambda p: torch.optim.AdamW(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.ADAMW_8BIT: lambda p: AdamW8bitLayout(p, lr=_LEARNING_RATE),
    Optimizer.ADAFACTOR: _adafactor,
    Optimizer.LION: lambda p: Lion(p, lr=_LEARNING_RATE),
    Optimizer.RMSPROP: lambda p: torch.optim.RMSprop(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.ADAGRAD: lambda p: torch.optim.Adagrad(p, lr=_LEARNING_RATE, foreach=True),
}
