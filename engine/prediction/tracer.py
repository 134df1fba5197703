"""Traces a workload's training step on fake tensors: no GPU, no weights, no memory needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from ..errors import InvalidInput
from ..models.presets import PRESETS
from ..parallel.group import among_gpus
from ..step.batches import make_batch
from ..step.training import build_model, prepare, step_of
from ..step.transformers_versions import known_masks
from ..tracing.attention import NoKernel
from ..tracing.known_values import KnownValues
from ..tracing.lowering import CudaBehaviour, CudaTemporaries, cuda_lowering
from ..tracing.trace import NeedsTwoSamples, Trace, batch_norm_refuses
from ..workload import Attention, Workload

TraceAt = Callable[[int], Trace]
"""Returns the trace at a batch size."""

STEPS = 2
"""The peak comes in the second step, when the optimizer's state exists."""

_NO_FLASH = (
    "FlashAttention does not take this model's attention: it needs compute capability 8.0 or "
    "newer, heads at most 256 wide, and batches without a padding mask; choose sdpa"
)


def trace(
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    forward_only: bool = False,
) -> Trace:
    """Trace two training steps at one batch size.

    Args:
        workload: What is trained.
        batch_size: Samples per step.
        behaviour: Of the GPU; ``None`` traces what the CPU does.
        forward_only: Whether to trace the forward pass alone, to compare with.

    Raises:
        NeedsTwoSamples: If PyTorch refuses a batch of 1.
        InvalidInput: If the attention asked for does not take the model's tensors.
    """
    return trace_model(
        meta_model(workload), workload, batch_size, behaviour, forward_only=forward_only
    )


def meta_model(workload: Workload) -> torch.nn.Module:
    """The workload's model on the meta device."""
    with torch.device("meta"):
        return build_model(workload)


def trace_model(
    model: torch.nn.Module,
    workload: Workload,
    batch_size: int,
    behaviour: CudaBehaviour | None,
    *,
    forward_only: bool = False,
) -> Trace:
    """Trace two training steps of a model on the meta device, which is changed.

    All else is as :func:`trace` has it.
    """
    # Not on fake tensors: an image processor needs real pixels.
    make_batch(workload, 1)
    with among_gpus(workload) as group, fake_device(behaviour):
        training = prepare(workload, group.spread(on_fake_tensors(model)), predicting=True)
        # From the second micro-batch on, each is like the one before.
        training.micro_batches = min(training.micro_batches, 2)
        temporaries = CudaTemporaries(behaviour) if behaviour is not None else None
        recorder = group.recorder(training, batch_size, temporaries)
        batch = make_batch(workload, batch_size)
        step = step_of(forward_only)
        # The CPU's FlashAttention takes other tensors.
        training.flash_only = behaviour is not None and workload.attention is Attention.FLASH
        try:
            for _ in range(STEPS):
                recorder.record_step(lambda: step(training, batch))
        except NoKernel as error:
            raise InvalidInput({"attention": _NO_FLASH}) from error
        except ValueError as error:
            if batch_norm_refuses(error):
                raise NeedsTwoSamples from error
            raise
        return recorder.trace


@contextmanager
def fake_device(behaviour: CudaBehaviour | None) -> Iterator[None]:
    """New tensors are fake, and treated as on a GPU.

    A real GPU is hidden: optimizers and transformers check whether it records a graph, and a
    process that only predicts would take a CUDA context away from the trials it predicts for.

    Args:
        behaviour: Of the GPU; ``None`` treats them as on the CPU.
    """
    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.cuda, "is_available", lambda: False))
        mode = KnownValues()
        stack.enter_context(known_masks(lambda tensor: mode.values(tensor) is not None))
        stack.enter_context(mode)
        stack.enter_context(known_values())
        if behaviour is not None:
            stack.enter_context(cuda_lowering(behaviour))
        yield


def on_fake_tensors(model: torch.nn.Module) -> torch.nn.Module:
    """Replace a model's meta tensors by fake ones; shared ones stay shared.

    A model is built on the meta device and not on fake tensors, since those cannot be moved by
    ``Module.to``, which libraries call while they build.

    Args:
        model: On the meta device. It is changed.
    """
    faked: dict[torch.Tensor, torch.Tensor] = {}
    for module in model.modules():
        held: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for tensors in held:
            for name, tensor in tensors.items():
                if tensor is not None:
                    tensors[name] = faked.setdefault(tensor, _fake(tensor))
    return model


def _fake(tensor: torch.Tensor) -> torch.Tensor:
    fake = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="cpu")
    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(fake, requires_grad=tensor.requires_grad)
    return fake


def warm_up() -> None:
    """Trace something small: the first trace of a process loads half a second of modules."""
    trace(Workload(next(iter(PRESETS))), 1, None)


@contextmanager
def known_values() -> Iterator[None]:
    """Provide the values that some code reads from tensors, which fake tensors do not have.

    Transformers 5.17 draws a number to skip a layer even where none is skipped. Optimizers read the
    number of steps, and the gradient scaler looks for infinite gradients.
    """
    draw = torch.rand

    def draw_one(*size: Any, **options: Any) -> Any:
        return 1.0 if size == ([],) else draw(*size, **options)

    def step(
        scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return optimizer.step(*args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(patch.object(torch.amp.GradScaler, "_maybe_opt_step", step))
        stack.enter_context(patch("torch.rand", draw_one))
        for optimizer in ("adam", "adagrad"):
            stack.enter_context(patch(f"torch.optim.{optimizer}._get_value", lambda _: 1.0))
        yield
