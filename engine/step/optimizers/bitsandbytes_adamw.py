"""AdamW as bitsandbytes runs it: its state in 8 bits, or in pages that may leave the GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from ...core.errors import EngineError
from ...core.optimizers import Optimizer
from ...interface.workload import Workload
from ...tracing.operations import OWN_KERNELS

_QUANTIZED_BLOCK = 256
_MIN_QUANTIZED = 4096
_MIN_PAGED = 100_000
"""Numbers of a tensor."""
_MOMENTS = (1, 2)

_kernels = torch.library.Library(OWN_KERNELS, "DEF")
for _kernel in ("adamw_8bit_", "adamw_32bit_"):
    _kernels.define(
        f"{_kernel}(Tensor(a!) parameter, Tensor gradient, Tensor(b!)[] state, *, "
        "int unseen_bytes=0) -> ()",
        tags=torch.Tag.pt2_compliant_tag,
    )
    _kernels.impl(
        _kernel,
        lambda parameter, gradient, state, unseen_bytes=0: None,
        "CompositeExplicitAutograd",
    )


class AdamWLayout(torch.optim.Optimizer):
    """The memory of bitsandbytes' AdamW, without its arithmetic, for prediction.

    Its kernel is fused, so a step takes no temporaries. In 8 bits, both moments are bytes with one
    fp32 scale per block of 256 values; tensors under 4,096 values stay in fp32. The moments of a
    paged one, of tensors of 100,000 values or more, are in CUDA's managed memory, which PyTorch's
    allocator does not know: it is on the GPU while there is room, and on the host otherwise
    (``Optimizer2State.init_state`` and ``get_state_buffer`` in bitsandbytes/optim/optimizer.py,
    0.50). A no-op operator stands for the kernel, one call per parameter; its arguments are what
    the kernel reads and writes, so a trace knows the bytes that it moves. A real step runs
    bitsandbytes itself.

    Args:
        params: Trained parameters.
        lr: The learning rate.
        bits: Bits of a moment: 8 or 32.
        is_paged: Whether large moments are in managed memory.
    """

    def __init__(
        self,
        params: Iterable[torch.nn.Parameter],
        lr: float,
        *,
        bits: int,
        is_paged: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr})
        self._bits, self._is_paged = bits, is_paged

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # the loss is not needed
        """Create the missing state of each parameter with a gradient, and call the kernel."""
        kernel = getattr(torch.ops.memorymark, f"adamw_{self._bits}bit_")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state |= self._new_state(parameter)
                tensors = [one for one in state.values() if isinstance(one, torch.Tensor)]
                kernel(parameter, parameter.grad, tensors, unseen_bytes=state["paged_bytes"])

    def _new_state(self, parameter: torch.nn.Parameter) -> dict[str, torch.Tensor | int]:
        count = parameter.numel()
        is_quantized = self._bits == 8 and count >= _MIN_QUANTIZED
        dtype = torch.uint8 if is_quantized else torch.float32
        is_paged = self._is_paged and count >= _MIN_PAGED
        state: dict[str, torch.Tensor | int] = {
            "paged_bytes": len(_MOMENTS) * count * dtype.itemsize if is_paged else 0
        }
        for moment in _MOMENTS:
            if not is_paged:
                state[f"state{moment}"] = torch.zeros_like(parameter, dtype=dtype)
            if is_quantized:
                blocks = -(-count // _QUANTIZED_BLOCK)
                state[f"absmax{moment}"] = parameter.new_zeros(blocks, dtype=torch.float32)
        return state


def bitsandbytes_adamw(
    optimizer: Optimizer, params: list[torch.nn.Parameter], lr: float
) -> torch.optim.Optimizer:
    """The optimizer of bitsandbytes, for real steps.

    Raises:
        EngineError: If it is not installed.
    """
    try:
        from bitsandbytes import optim
    except ImportError as error:
        raise EngineError(
            f"{optimizer.label} is measured with bitsandbytes, which is not installed; install it "
            "(pip install bitsandbytes) or choose a catalogue GPU for a prediction"
        ) from error
    made: torch.optim.Optimizer = getattr(optim, optimizer.spec.bitsandbytes)(params, lr=lr)
    return made


def paged_caveats(workload: Workload) -> list[str]:
    """Caveats about the memory that holds a paged optimizer's state."""
    if not workload.optimizer.spec.is_paged:
        return []
    each = "2 bytes" if workload.optimizer is Optimizer.PAGED_ADAMW_8BIT else "8 bytes"
    return [
        f"The state of a paged optimizer, {each} for each trained weight, is in CUDA's managed "
        "memory and not counted here: it fills what is left of the GPU, and the host holds the "
        "rest. Step times assume that all of it is on the GPU; what is not crosses the link to "
        "the host in every step."
    ]
