"""AdamW with its state in 8 bits, as bitsandbytes keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ...errors import EngineError
from ...tracing.operations import OWN_KERNELS

_QUANTIZED_BLOCK = 256
_LEAST_QUANTIZED = 4096

_kernels = torch.library.Library(OWN_KERNELS, "DEF")
_kernels.define(
    "adamw_8bit_(Tensor(a!) parameter, Tensor gradient, Tensor(b!)[] state) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.impl("adamw_8bit_", lambda parameter, gradient, state: None, "CompositeExplicitAutograd")


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


def bitsandbytes_adamw(params: list[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """The optimizer of bitsandbytes, for real steps.

    Raises:
        EngineError: If it is not installed.
    """
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError as error:
        raise EngineError(
            "8-bit AdamW is measured with bitsandbytes, which is not installed; install it (pip "
            "install bitsandbytes) or choose a catalogue GPU for a prediction"
        ) from error
    made: torch.optim.Optimizer = AdamW8bit(params, lr=lr)
    return made
