"""Group norm on fake tensors: layouts and copies as of the real kernels, in every release."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest
import torch

from engine.tracing.known_values import KnownValues
from engine.tracing.lowering import CudaTemporaries, cuda_lowering
from engine.tracing.operations import work
from engine.tracing.operator_mode import OperatorMode
from engine.tracing.tests.lowered import A10
from engine.tracing.trace import TRANSPOSE
from engine.versions.software import minor

FIRST, LAST = torch.contiguous_format, torch.channels_last
LAYOUTS = list(product((FIRST, LAST), repeat=2))
IMAGES = 4 * 2 * 8 * 4 * 4
"""Bytes of the images here."""
COPIES_IN_KERNELS = minor(torch.__version__) >= (2, 14)


class Copies(OperatorMode):
    """Bytes copied in each pass: by operators, and by kernels that take them while they run."""

    def __init__(self) -> None:
        super().__init__()
        self.by_operators = self.by_kernels = 0
        self._temporaries = CudaTemporaries(A10)

    def handle(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        output = func(*args, **kwargs)
        self.by_kernels += sum(one.size for one in self._temporaries("forward", func, args))
        if func is torch.ops.aten.clone.default:
            self.by_operators += output.nbytes
        return output


@contextmanager
def on_cuda() -> Iterator[None]:
    with KnownValues() as mode, cuda_lowering(A10):
        mode.on_cuda = True
        yield


def strides(layout: torch.memory_format, of_gradient: torch.memory_format) -> list[Any]:
    """The strides of a group norm's result and of what its backward kernel gives for the input."""
    found: list[Any] = []
    images = torch.rand(2, 8, 4, 4).to(memory_format=layout).requires_grad_()
    doubled = images * 2
    doubled.register_hook(lambda gradient: found.append(gradient.stride()))
    normalized = torch.nn.functional.group_norm(doubled, 4)
    normalized.backward(torch.rand(2, 8, 4, 4).to(memory_format=of_gradient))
    return [*found, normalized.stride()]


@pytest.mark.parametrize(("layout", "of_gradient"), LAYOUTS)
def test_on_the_cpu_results_are_laid_out_as_by_the_real_kernels(
    layout: torch.memory_format, of_gradient: torch.memory_format
) -> None:
    real = strides(layout, of_gradient)
    with KnownValues():
        assert strides(layout, of_gradient) == real


@pytest.mark.parametrize(("layout", "of_gradient"), LAYOUTS)
def test_on_cuda_results_have_their_channels_first(
    layout: torch.memory_format, of_gradient: torch.memory_format
) -> None:
    with on_cuda():
        assert strides(layout, of_gradient) == [(128, 16, 4, 1)] * 2


@pytest.mark.parametrize("layout", [FIRST, LAST])
def test_what_backward_keeps_of_images_with_channels_last_depends_on_the_release(
    layout: torch.memory_format,
) -> None:
    kept: list[tuple[int, ...]] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.extend([tensor.stride()] if tensor.dim() == 4 else [])
        return tensor

    with on_cuda(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        images = torch.rand(2, 8, 4, 4).to(memory_format=layout).requires_grad_()
        torch.nn.functional.group_norm(images, 4)
    in_kernels = layout is LAST and COPIES_IN_KERNELS
    assert kept == [(128, 1, 32, 8) if in_kernels else (128, 16, 4, 1)]


@pytest.mark.parametrize(
    ("layout", "of_gradient", "forward", "both"),
    [(FIRST, FIRST, 0, 0), (FIRST, LAST, 0, 1), (LAST, FIRST, 1, 1), (LAST, LAST, 1, 2)],
)
def test_images_and_gradients_with_channels_last_are_copied_by_someone(
    layout: torch.memory_format, of_gradient: torch.memory_format, forward: int, both: int
) -> None:
    with on_cuda():
        images = torch.rand(2, 8, 4, 4).to(memory_format=layout).requires_grad_()
        gradient = torch.rand(2, 8, 4, 4).to(memory_format=of_gradient)
        copies = Copies()
        with copies:
            normalized = torch.nn.functional.group_norm(images, 4)
            assert copies.by_operators + copies.by_kernels == forward * IMAGES
            normalized.backward(gradient)
    again = forward if COPIES_IN_KERNELS else 0  # the input's copy is not kept then
    assert copies.by_operators + copies.by_kernels == (both + again) * IMAGES
    assert (copies.by_operators if COPIES_IN_KERNELS else copies.by_kernels) == 0


def test_copies_in_kernels_take_their_time() -> None:
    first = torch.empty(2, 8, 4, 4, device="meta")
    last = first.to(memory_format=LAST)
    statistics = torch.empty(2, 4, device="meta")
    sizes = (2, 8, 16, 4)

    def copied(func: Any, *args: Any) -> list[int]:
        *before, norm = work("forward", func, args, {}, first)
        assert norm.name == str(func._overloadpacket)
        assert all(one.name == TRANSPOSE for one in before)
        return [one.bytes_moved for one in before]

    forward = torch.ops.aten.native_group_norm.default
    backward = torch.ops.aten.native_group_norm_backward.default
    rest = (statistics, statistics, None, *sizes, [True] * 3)
    assert copied(forward, first, None, None, *sizes, 1e-5) == []
    assert copied(forward, last, None, None, *sizes, 1e-5) == [2 * IMAGES]
    assert copied(backward, first, first, *rest) == []
    assert copied(backward, last, last, *rest) == [2 * IMAGES] * 2
