"""The cost of one operator call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from engine.tracing.operations import cost, work
from engine.tracing.trace import TRANSPOSE, Operation

_aten = torch.ops.aten
BATCH, HEADS, LENGTH, WIDTH = 2, 8, 16, 4
PRODUCT = 2 * BATCH * HEADS * LENGTH * LENGTH * WIDTH


def _of_heads(heads: int) -> torch.Tensor:
    return torch.empty(BATCH, heads, LENGTH, WIDTH, device="meta")


def _refuses_groups(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    """Fails like the formula of torch 2.11."""
    if not query[1] == key[1] == value[1]:
        raise AssertionError("shapes are incompatible")
    return 1


def test_attention_with_grouped_queries_has_as_many_flops_as_without() -> None:
    query = _of_heads(HEADS)
    for keys in (_of_heads(HEADS), _of_heads(2)):
        forward = _aten._scaled_dot_product_flash_attention.default
        done = cost("forward", forward, (query, keys, keys), {}, query)
        assert done is not None
        assert done.flops == 2 * PRODUCT
        backward = _aten._scaled_dot_product_cudnn_attention_backward.default
        done = cost("backward", backward, (query, query, keys, keys, query), {}, query)
        assert done is not None
        assert done.flops == 5 * PRODUCT


def test_grouped_queries_are_counted_without_pytorchs_support(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attention = _aten._scaled_dot_product_efficient_attention
    formula = shape_wrapper(_refuses_groups)
    monkeypatch.setitem(flop_registry, attention, formula)
    query, keys = _of_heads(HEADS), _of_heads(2)
    done = cost("forward", attention.default, (query, keys, keys, None, True), {}, query)
    assert done is not None
    assert done.flops == 1


BATCH_OF_IMAGES, TAPS = 3, 9
"""Every convolution below has kernels of 3 by 3."""


@pytest.mark.parametrize(
    ("convolution", "size", "products_per_image"),
    [
        # Each of the 6·6 outputs of each of the 16 channels sums over its group's inputs.
        (nn.Conv2d(8, 16, 3), 8, 6 * 6 * 16 * 8 * TAPS),
        (nn.Conv2d(8, 16, 3, groups=4), 8, 6 * 6 * 16 * 2 * TAPS),
        (nn.Conv2d(8, 8, 3, groups=8), 8, 6 * 6 * 8 * 1 * TAPS),
        (nn.Conv2d(8, 16, 3, groups=8), 8, 6 * 6 * 16 * 1 * TAPS),
        (nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=2), 8, 4 * 4 * 16 * 4 * TAPS),
        (nn.Conv2d(8, 16, 3, dilation=2, groups=2), 8, 4 * 4 * 16 * 4 * TAPS),
        # Each of the 8·8 inputs of each of the 8 channels goes into its group's outputs.
        (nn.ConvTranspose2d(8, 16, 3, stride=2), 8, 8 * 8 * 8 * 16 * TAPS),
        (nn.ConvTranspose2d(8, 16, 3, stride=2, groups=4), 8, 8 * 8 * 8 * 4 * TAPS),
        (nn.ConvTranspose2d(8, 8, 3, dilation=2, groups=8), 8, 8 * 8 * 8 * 1 * TAPS),
    ],
)
def test_convolutions_have_as_many_flops_in_each_gradient_as_forward(
    convolution: nn.Conv2d | nn.ConvTranspose2d, size: int, products_per_image: int
) -> None:
    found: dict[str, int] = {}

    class _Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            output = func(*args, **(kwargs or {}))
            done = cost("forward", func, args, kwargs or {}, output)
            if done is not None and "convolution" in done.name:
                found[done.name] = done.flops
            return output

    images = torch.randn(BATCH_OF_IMAGES, 8, size, size, requires_grad=True)
    with _Counting():  # type: ignore[no-untyped-call]  # torch has not annotated it
        convolution(images).sum().backward()
    forward = 2 * BATCH_OF_IMAGES * products_per_image
    assert found == {"aten.convolution": forward, "aten.convolution_backward": 2 * forward}


def test_a_gradient_that_nobody_wants_takes_no_flops() -> None:
    grad, images = torch.empty(3, 16, 6, 6), torch.empty(3, 8, 8, 8)
    weight = torch.empty(16, 2, 3, 3)
    settings = ([1, 1], [0, 0], [1, 1], False, [0, 0], 4)
    counted = []
    for wanted in ([True, True, False], [False, True, False], [False, False, True]):
        args = (grad, images, weight, None, *settings, wanted)
        done = cost("backward", _aten.convolution_backward.default, args, {}, (grad,))
        assert done is not None
        counted.append(done.flops)
    one = 2 * 3 * 36 * 16 * 2 * TAPS
    assert counted == [2 * one, one, 0]


def _cost_of(func: Any, *args: Any) -> Operation:
    done = cost("forward", func, args, {}, func(*args))
    assert done is not None
    return done


def _meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_a_matrix_product_says_how_large_it_is() -> None:
    rows, inner, columns = 6, 5, 4
    left, right = _meta(rows, inner), _meta(inner, columns)
    assert _cost_of(_aten.mm.default, left, right).shape == (1, rows, columns, inner, 0)
    added = _cost_of(_aten.addmm.default, _meta(columns), left, right)
    assert added.shape == (1, rows, columns, inner, 0)
    several = _cost_of(_aten.bmm.default, _meta(7, rows, inner), _meta(7, inner, columns))
    assert several.shape == (7, rows, columns, inner, 0)


def test_only_a_weights_gradient_multiplies_two_matrices_across_the_sums() -> None:
    tokens, given, made = 50, 6, 4
    images, gradient, weight = _meta(tokens, given), _meta(tokens, made), _meta(made, given)
    products = {
        "forward": (images, weight.t()),
        "gradient of what was given": (gradient, weight),
        "gradient of the weight": (gradient.t(), images),
    }
    across = {
        name: _cost_of(_aten.mm.default, *matrices).shape[-1] for name, matrices in products.items()
    }
    assert across == dict.fromkeys(products, 0) | {"gradient of the weight": 1}


def test_attention_says_how_long_it_is_and_whether_it_is_causal() -> None:
    query, keys = _meta(2, 8, 16, 4), _meta(2, 8, 32, 4)
    shape = (2 * 8, 16, 32, 4)
    flash = _aten._scaled_dot_product_flash_attention.default
    for causal in (False, True):
        done = cost("forward", flash, (query, keys, keys, 0.0, causal), {}, query)
        assert done is not None
        assert done.shape == (*shape, causal)
    done = cost("forward", flash, (query, keys, keys), {}, query)
    assert done is not None
    assert done.shape == (*shape, 0)
    backward = _aten._scaled_dot_product_efficient_attention_backward.default
    given = (query, query, keys, keys, None, query, query, None, None, 0.0, [True] * 4)
    for causal in (False, True):
        done = cost("backward", backward, given, {"is_causal": causal}, query)
        assert done is not None
        assert done.shape == (*shape, causal)


def test_a_convolution_says_its_channels_taps_and_groups() -> None:
    images, weight = _meta(3, 8, 8, 8), _meta(16, 2, 3, 5)
    settings = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 4)
    done = _cost_of(_aten.convolution.default, images, weight, *settings)
    assert done.shape == (3 * 6 * 4, 16, 2, 15, 4, 0)
    assert done.flops == 2 * 3 * 6 * 4 * 16 * 2 * 15
    assert not done.channels_last
    images = images.to(memory_format=torch.channels_last)
    assert _cost_of(_aten.convolution.default, images, weight, *settings).channels_last


@pytest.mark.parametrize(
    ("taps", "stride", "pixels"), [(1, 1, 64), (1, 2, 0), (3, 1, 0)], ids=["1x1", "strided", "3x3"]
)
def test_a_convolution_says_whether_it_is_a_product_per_image(
    taps: int, stride: int, pixels: int
) -> None:
    images, weight = _meta(3, 8, 8, 8), _meta(16, 8, taps, taps)
    settings = ([stride] * 2, [taps // 2] * 2, [1, 1], False, [0, 0], 1)
    done = _cost_of(_aten.convolution.default, images, weight, None, *settings)
    assert done.shape[-1] == pixels
    gradient = _meta(3, 16, 8 // stride, 8 // stride)
    backward = (gradient, images, weight, None, *settings, [True, True, False])
    assert _cost_of(_aten.convolution_backward.default, *backward).shape == done.shape


def test_an_embedding_moves_the_rows_it_looks_up_and_not_its_table() -> None:
    table, rows = _meta(30_000, 64), _meta(3, 10, dtype=torch.int64)
    found = _cost_of(_aten.embedding.default, table, rows)
    assert found.bytes_moved == 3 * 10 * (8 + 2 * 64 * 4)


@pytest.mark.parametrize("name", ["gather", "index_select"])
def test_a_lookup_reads_no_more_than_it_returns(name: str) -> None:
    table, few = _meta(30_000, 64), _meta(10, dtype=torch.int64)
    rows = few.reshape(10, 1).expand(10, 64) if name == "gather" else few
    moved = _cost_of(getattr(_aten, name).default, table, 0, rows).bytes_moved
    assert 10 * 2 * 64 * 4 <= moved <= 10 * 64 * (2 * 4 + 8)


def test_a_small_table_is_read_once_however_often_it_is_looked_up() -> None:
    table, rows = _meta(2, 64), _meta(3, 10, dtype=torch.int64)
    assert _cost_of(_aten.embedding.default, table, rows).bytes_moved == (
        2 * 64 * 4 + 3 * 10 * (8 + 64 * 4)
    )


def test_a_loss_by_class_reads_one_number_for_each_target() -> None:
    scores, targets = _meta(10, 30_000), _meta(10, dtype=torch.int64)
    forward = _cost_of(_aten.nll_loss_forward.default, scores, targets, None, 1, -100)
    assert forward.bytes_moved == 10 * (8 + 4) + 2 * 4
    one = _meta()
    backward = _cost_of(_aten.nll_loss_backward.default, one, scores, targets, None, 1, -100, one)
    assert backward.bytes_moved == 10 * 30_000 * 4 + 10 * 8 + 2 * 4


ONE, HALF = _meta(4, 8, 16), _meta(4, 8, 16, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("func", "args", "unrolled"),
    [
        (_aten.add.Tensor, (ONE, ONE), False),
        (_aten.add.Tensor, (ONE.mT, ONE.mT), False),  # alike, if in another order
        (_aten.add.Tensor, (ONE, _meta()), False),
        (_aten.add.Tensor, (ONE, _meta(16)), True),
        (_aten.add.Tensor, (ONE, _meta(4, 16, 8).mT), True),
        (_aten.add.Tensor, (ONE, HALF), True),
        (_aten.gt.Scalar, (ONE, 0), False),
        (_aten.clone.default, (ONE,), False),
        (
            _aten.nll_loss_forward.default,
            (_meta(4, 8), _meta(4, dtype=torch.int64), None, 1, -1),
            False,
        ),
    ],
)
def test_elements_are_loaded_one_by_one_where_tensors_are_unlike(
    func: Any, args: tuple[Any, ...], unrolled: bool
) -> None:
    assert _cost_of(func, *args).unrolled is unrolled


def test_casts_to_more_bytes_and_copies_in_another_order_are_unrolled() -> None:
    def unrolled(source: torch.Tensor, result: torch.Tensor) -> bool:
        done = cost("forward", _aten._to_copy.default, (source,), {}, result)
        assert done is not None
        return done.unrolled

    assert unrolled(HALF, ONE)
    assert not unrolled(ONE, HALF)
    assert unrolled(_meta(4, 16, 8).mT, ONE)


def test_a_batch_of_one_has_operations_alike_though_it_broadcasts_nothing() -> None:
    positions = _meta(1, 8, 16)
    one, two = (_cost_of(_aten.add.Tensor, _meta(size, 8, 16), positions) for size in (1, 2))
    assert (one.unrolled, two.unrolled) == (False, True)
    assert one.with_numbers(two.numbers) == two


def test_norms_say_their_channels_and_their_rows() -> None:
    images = _meta(3, 6, 4, 4)
    channels = [_meta(6)] * 4
    batch = _cost_of(_aten.native_batch_norm.default, images, *channels, True, 0.1, 1e-5)
    assert batch.shape == (6,)
    layer = _cost_of(_aten.native_layer_norm.default, images, [4, 4], None, None, 1e-5)
    assert layer.shape == (16,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_norm_copies_rows_that_lie_across_memory(dtype: torch.dtype) -> None:
    patches, tokens = _meta(4, 16, 8, dtype=dtype).mT, _meta(4, 8, 16, dtype=dtype)
    statistics, size = _meta(4, 8, 1), patches.nbytes

    def copies(func: Any, *tensors: torch.Tensor) -> list[int]:
        *first, norm = work("forward", func, (*tensors, [16], *rest[func]), {}, tokens)
        assert norm.name == str(func._overloadpacket)
        assert all(one.name == TRANSPOSE for one in first)
        return [one.bytes_moved for one in first]

    forward = _aten.native_layer_norm.default
    backward = _aten.native_layer_norm_backward.default
    weight = _meta(16)
    rest: dict[Any, tuple[Any, ...]] = {
        forward: (weight, weight, 1e-5),
        backward: (statistics, statistics, weight, weight, [True] * 3),
    }
    assert copies(forward, tokens) == []
    assert copies(forward, patches) == [2 * size]
    assert copies(backward, tokens, tokens) == []
    assert copies(backward, tokens, patches) == [2 * size]
    assert copies(backward, patches, patches) == [2 * size] * 2


def test_a_roll_moves_its_tensor_once_for_each_dimension() -> None:
    windows = _meta(2, 8, 8, 16)
    along_one = _cost_of(_aten.roll.default, windows, [3], [1])
    along_two = _cost_of(_aten.roll.default, windows, [3, 3], [1, 2])
    assert along_one.bytes_moved == 2 * windows.nbytes
    assert along_two.bytes_moved == 2 * along_one.bytes_moved


def test_products_of_experts_are_those_of_all_their_rows() -> None:
    offsets = torch.zeros(2, dtype=torch.int32, device="meta")
    tokens, weights = (_meta(*shape, dtype=torch.bfloat16) for shape in ((6, 16), (2, 16, 8)))
    done = _cost_of(_aten._grouped_mm.default, tokens, weights, offsets)
    assert done.shape == (1, 6, 8, 16)
    assert done.flops == 2 * 6 * 8 * 16
