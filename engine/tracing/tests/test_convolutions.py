"""Workspaces of convolutions: copies in the layout that tensor cores read, partial sums."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.tracing.convolutions import Convolution, convolution, workspaces
from engine.tracing.lowering import CudaTemporaries
from engine.tracing.tests.lowered import A10, H100

aten = torch.ops.aten
OWN = 1024


def made(
    input: tuple[int, ...],
    weight: tuple[int, ...],
    *,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
    dtype: torch.dtype = torch.float32,
    layout: torch.memory_format = torch.contiguous_format,
    transposed: bool = False,
) -> Convolution:
    images = torch.empty(input, device="meta", dtype=dtype, memory_format=layout)
    kernel = torch.empty(weight, device="meta", dtype=dtype)
    return convolution(images, kernel, [stride], [padding], [1], transposed, [0], groups)


def test_both_layouts_of_input_output_and_weight_are_in_the_workspace() -> None:
    found = made((2, 32, 20, 20), (48, 32, 3, 3), padding=1)
    copied = 4 * (2 * 400 * (32 + 48) + 48 * 32 * 9)
    assert found.pass_bytes == copied + OWN
    half = made((2, 32, 20, 20), (48, 32, 3, 3), padding=1, dtype=torch.bfloat16)
    assert half.pass_bytes == copied // 2 + OWN


def test_the_convolution_that_was_measured_alone_takes_what_it_took() -> None:
    """On the H100: its peak less its tensors (`cuDNN, fp32 convolution and backward`)."""
    found = made((8, 64, 56, 56), (64, 64, 3, 3), padding=1)
    peak, workspaces_of_cublas, tensors = 101_730_816, 67_108_864, 19_564_032
    assert found.weight_gradient_bytes == peak - workspaces_of_cublas - tensors


def test_few_channels_are_padded_to_what_tensor_cores_load() -> None:
    single = made((1, 3, 32, 32), (64, 3, 4, 4), stride=4)
    padded = made((1, 4, 32, 32), (64, 4, 4, 4), stride=4)
    assert single.pass_bytes == padded.pass_bytes
    half = made((1, 3, 32, 32), (64, 3, 4, 4), stride=4, dtype=torch.float16)
    eight = made((1, 8, 32, 32), (64, 8, 4, 4), stride=4, dtype=torch.float16)
    assert half.pass_bytes == eight.pass_bytes


@pytest.mark.parametrize(
    ("changed", "is_product"),
    [
        ({}, True),
        ({"stride": 2}, False),
        ({"padding": 1}, False),
        ({"input": (2, 32, 7, 7)}, False),
    ],
)
def test_pointwise_convolutions_with_aligned_rows_are_matrix_products(
    changed: dict[str, Any], is_product: bool
) -> None:
    given_ = {"input": (2, 32, 28, 28), "weight": (96, 32, 1, 1)} | changed
    found = made(given_.pop("input"), given_.pop("weight"), **given_)
    assert (found.pass_bytes == 0) is is_product
    if is_product:
        assert found.weight_gradient_bytes == 2 * 96 * 32 * 4


def test_a_small_gradient_is_summed_in_many_parts_and_a_large_one_in_one() -> None:
    few, many = made((1, 32, 8, 8), (32, 32, 3, 3)), made((1, 512, 8, 8), (512, 512, 3, 3))
    assert (few.weight_gradient_bytes - few.pass_bytes) // (32 * 32 * 9 * 4) == 26
    assert (many.weight_gradient_bytes - many.pass_bytes) // (512 * 512 * 9 * 4) == 1


def test_nothing_is_copied_where_the_channels_are_last_or_in_groups() -> None:
    last = made((2, 32, 20, 20), (48, 32, 3, 3), layout=torch.channels_last)
    depthwise = made((2, 32, 20, 20), (32, 1, 7, 7), groups=32)
    grouped = made((2, 32, 20, 20), (32, 2, 7, 7), groups=16)
    for one in (last, depthwise, grouped):
        assert one.pass_bytes == one.weight_gradient_bytes == 0


@given(
    length=st.integers(8, 400),
    channels=st.integers(1, 16).map(lambda count: 8 * count),
    taps=st.integers(1, 7),
    stride=st.integers(1, 3),
)
def test_one_dimension_is_two_with_one_row(
    length: int, channels: int, taps: int, stride: int
) -> None:
    flat = made((3, channels, length), (40, channels, taps), stride=stride)
    images = torch.empty(3, channels, 1, length, device="meta")
    kernel = torch.empty(40, channels, 1, taps, device="meta")
    square = convolution(images, kernel, [1, stride], [0, 0], [1, 1], False, [0, 0], 1)
    assert flat.pass_bytes == square.pass_bytes
    assert flat.weight_gradient_bytes == square.weight_gradient_bytes


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_output_has_the_size_that_pytorch_gives_it(dimensions: int, transposed: bool) -> None:
    images = torch.empty(2, 8, *[11] * dimensions, device="meta")
    kernel = torch.empty(8, 8, *[3] * dimensions, device="meta")
    each = ([2], [1], [2], transposed, [1 if transposed else 0])
    spread = [value * dimensions if isinstance(value, list) else value for value in each]
    output = aten.convolution.default(images, kernel, None, *spread, 1)
    found = convolution(images, kernel, *each, 1)
    assert found.images * found.channels_out * found.pixels_out == output.numel()


def backward_args(mask: list[bool], dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    images = torch.empty(2, 32, 16, 16, device="meta", dtype=dtype)
    kernel = torch.empty(32, 32, 3, 3, device="meta", dtype=dtype)
    return (images, images, kernel, [0], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)


@pytest.mark.parametrize("mask", [[True, True, False], [False, True, True], [True, False, False]])
def test_each_gradient_that_is_wanted_takes_its_own_workspace(mask: list[bool]) -> None:
    args = backward_args(mask)
    taken = list(CudaTemporaries(H100)("backward", aten.convolution_backward.default, args))
    assert len(taken) == sum(mask[:2])
    assert not any(one.kept for one in taken)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_copies_are_made_on_hopper_and_in_no_double_precision(dtype: torch.dtype) -> None:
    args = backward_args([True, True, False], dtype)
    backward = aten.convolution_backward.default
    on_h100 = any(workspaces(backward, args, H100.copies_for_convolutions))
    assert on_h100 is (dtype is not torch.float64)
    assert not any(workspaces(backward, args, A10.copies_for_convolutions))


def test_workspaces_grow_by_the_same_bytes_with_every_image() -> None:
    for changed in ({}, {"weight": (48, 32, 1, 1)}, {"dtype": torch.bfloat16}):
        weight = changed.get("weight", (48, 32, 3, 3))
        dtype = changed.get("dtype", torch.float32)
        each = [made((n, 32, 20, 20), weight, dtype=dtype) for n in (2, 3, 4)]  # type: ignore[arg-type]  # they vary
        sizes = [one.weight_gradient_bytes for one in each]
        assert sizes[1] - sizes[0] == sizes[2] - sizes[1] > 0
