"""The machine on which steps seem to run while they are traced: those of models, and of scripts.

No GPU is needed. Tensors are fake, some values are known, and operators do what they do on CUDA.
:func:`fake_device` is the whole machine for a model's step. A script sees more of a machine
(:mod:`engine.script.machine`), made of the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import numpy
import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..step.experts import grouped_products
from ..step.flex_attention import compiled_in_models
from ..step.values_in_models import known_in_models
from ..tracing.flex_attention import flex_attention_lowering
from ..tracing.hidden_gpus import hide_gpus
from ..tracing.known_values import KnownValues
from ..tracing.lowering import CudaBehaviour, cuda_lowering
from ..versions.loaded_modules import namespaces
from ..versions.patches import patched, patched_names

_MATCHING = "linear_sum_assignment"


@contextmanager
def fake_device(behaviour: CudaBehaviour | None) -> Iterator[KnownValues]:
    """New tensors are fake, and treated as on a GPU.

    A real GPU is hidden: optimizers and transformers check whether it records a graph, and a
    process that only predicts would take a CUDA context away from the trials it predicts for.

    Args:
        behaviour: Behaviour of the GPU; ``None`` treats them as on the CPU.
    """
    hide_gpus()
    with ExitStack() as stack:
        stack.enter_context(
            patched(
                torch.cuda,
                "is_available",
                lambda: False,
                why="fake tensors are on the CPU, so nothing may choose CUDA's ways for them",
            )
        )
        mode = KnownValues(checks_pass=True)
        mode.allow_non_fake_inputs = True  # models may have tensors that are not on their lists
        mode.on_cuda = behaviour is not None
        stack.enter_context(fake_tensors(mode))
        stack.enter_context(_spread_masks())
        if behaviour is not None:
            stack.enter_context(as_on_cuda(behaviour, lambda: False))
        yield mode


@contextmanager
def fake_tensors(mode: KnownValues) -> Iterator[None]:
    """Make new tensors fake, and provide the values that are known of them.

    Args:
        mode: Makes them, and knows their values.
    """
    with (
        known_in_models(lambda tensor: mode.values(tensor) is not None),
        mode,
        known_values(),
        _movable_modules(),
    ):
        yield


@contextmanager
def as_on_cuda(behaviour: CudaBehaviour, runs_compiled: Callable[[], bool]) -> Iterator[None]:
    """Let operators on fake tensors do what they do on a GPU.

    Args:
        behaviour: Behaviour of the GPU.
        runs_compiled: Whether the code at work would be compiled.
    """
    with (
        cuda_lowering(behaviour),
        flex_attention_lowering(runs_compiled),
        compiled_in_models(),
        grouped_products(behaviour.multiplies_in_groups),
    ):
        yield


@contextmanager
def _spread_masks() -> Iterator[None]:
    """Spread the spans that speech models hide (SpecAugment) evenly, where they are drawn.

    Where spans overlap by chance, fewer frames are hidden, and no two traces would be alike.
    """
    drawn = numpy.random.choice

    def choice(among: Any, size: Any = None, replace: bool = True, p: Any = None) -> Any:
        if replace or not isinstance(size, int) or isinstance(among, int):
            return drawn(among, size, replace, p)
        return among[numpy.linspace(0, len(among) - 1, size).astype(int)]

    with (
        patched(
            numpy.random,
            "choice",
            choice,
            why="spans of SpecAugment that overlap by chance would make no two traces alike",
        ),
        patched(
            numpy.random,
            "rand",
            lambda *shape: numpy.full(shape, 0.5),
            why="the number of those spans would be drawn, too",
        ),
    ):
        yield


@contextmanager
def known_values() -> Iterator[None]:
    """Provide the values that some code reads from tensors, which fake tensors do not have.

    Transformers 5.17 draws a number to skip a layer even where none is skipped. Optimizers read the
    number of steps, and the gradient scaler looks for infinite gradients. Detectors match what they
    find with what is there; each object finds its match, whichever it is. ``torch.tensor`` reads
    tensors in a list itself, past every mode, where it should dispatch.
    """
    draw, write = torch.rand, torch.tensor

    def draw_one(*size: Any, **options: Any) -> Any:
        return 1.0 if size == ([],) else draw(*size, **options)

    def write_numbers(data: Any, **options: Any) -> torch.Tensor:
        return write(_numbers(data), **options)

    def step(
        scaler: Any, optimizer: torch.optim.Optimizer, state: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return optimizer.step(*args, **kwargs)

    def match(costs: torch.Tensor) -> tuple[numpy.ndarray, numpy.ndarray]:
        first = numpy.arange(min(costs.shape))
        return first, first

    with ExitStack() as stack:
        stack.enter_context(
            patched(
                torch.amp.GradScaler,
                "_maybe_opt_step",
                step,
                why="the scaler looks for infinite gradients, and fake ones have no values",
            )
        )
        stack.enter_context(
            patched(
                torch,
                "rand",
                draw_one,
                why="transformers 5.17 draws a number to skip a layer even where none is skipped",
            )
        )
        stack.enter_context(
            patched(
                torch,
                "tensor",
                write_numbers,
                why="it reads tensors in a list itself, past every mode, where it should dispatch",
            )
        )
        modules = [names for names in namespaces("transformers") if _MATCHING in names]
        stack.enter_context(
            patched_names(
                ((names, _MATCHING, match) for names in modules),
                why="detectors match objects by numbers, of which any match takes the same memory",
            )
        )
        for optimizer in map(import_module, ("torch.optim.adam", "torch.optim.adagrad")):
            stack.enter_context(
                patched(
                    optimizer,
                    "_get_value",
                    lambda _: 1.0,
                    why="optimizers read the number of steps from a tensor",
                )
            )
        yield


@contextmanager
def _movable_modules() -> Iterator[None]:
    """Let ``Module.to`` give fake parameters what they become, where it would swap the two.

    It swaps them even with themselves, which those that keep their values do not allow, and cannot
    swap those that something else refers to.
    """
    swap: Callable[..., None] = torch.utils.swap_tensors

    def take_over(parameter: torch.Tensor, moved: torch.Tensor) -> None:
        if moved.device.type not in ("cpu", "cuda"):
            raise RuntimeError(f"there is no {moved.device} while a prediction runs")
        wraps: bool = is_traceable_wrapper_subclass(parameter)
        if wraps:  # its data are tensors of their own
            swap(parameter, moved)
        elif parameter.untyped_storage()._cdata != moved.untyped_storage()._cdata:
            parameter.data = moved.data

    with patched(
        torch.utils,
        "swap_tensors",
        take_over,
        why="Module.to would swap fake parameters, also with themselves, and cannot",
    ):
        yield


def _numbers(data: Any) -> Any:
    """Nested lists of numbers, some of which may be tensors."""
    if isinstance(data, list | tuple):
        return [_numbers(item) for item in data]
    return data.item() if isinstance(data, torch.Tensor) and data.dim() == 0 else data
