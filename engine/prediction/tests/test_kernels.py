"""Kernels that run the operations of a trace."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from engine.gpus import GPUS
from engine.prediction.timing.kernels import Format, Kernel, Kind, kernel_of, kind_of
from engine.prediction.timing.speed_model import FILE, generation_of, read_model, speed_model
from engine.tracing.trace import Operation

PER_GROUP = 8
NO_TF32 = {"tf32": False, "tf32_products": False}


def operation(
    name: str, shape: tuple[int, ...] = (), phase: str = "forward", dtype: str = "float16"
) -> Operation:
    return Operation(name, dtype, 10**9, 10**6, phase, shape)


def convolution(groups: int, taps: int = 9, *, last: bool = False, name: str = "") -> Operation:
    shape = (1000, PER_GROUP * groups, PER_GROUP, taps, groups, 0)
    return Operation(f"aten.convolution{name}", "float16", 10**9, 10**6, "forward", shape, last)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten.add", Kind.ELEMENTWISE),
        ("aten.clone", Kind.COPY),
        ("aten.sum", Kind.REDUCTION),
        ("aten._softmax_backward_data", Kind.SOFTMAX),
        ("aten.native_layer_norm", Kind.LAYER_NORM),
        ("aten.native_layer_norm_backward", Kind.LAYER_NORM_BACKWARD),
        ("aten._fused_rms_norm_backward", Kind.LAYER_NORM_BACKWARD),
        ("aten.native_group_norm", Kind.BATCH_NORM),
        ("aten.native_batch_norm", Kind.BATCH_NORM),
        ("aten.native_batch_norm_backward", Kind.BATCH_NORM_BACKWARD),
        ("aten._scaled_dot_product_flash_attention", Kind.ATTENTION),
        ("aten._scaled_dot_product_efficient_attention_backward", Kind.EFFICIENT_ATTENTION),
        ("aten._scaled_dot_product_cudnn_attention", Kind.CUDNN_ATTENTION),
        ("memorymark.transpose", Kind.TRANSPOSE),
        ("aten.embedding_dense_backward", Kind.LOOKUP),
        ("aten.max_pool2d_with_indices", Kind.LOOKUP),
        ("aten.never_heard_of", Kind.ELEMENTWISE),
    ],
)
def test_the_name_tells_the_kind(name: str, kind: Kind) -> None:
    assert kind_of(operation(name)) is kind


@pytest.mark.parametrize("name", ["aten.add", "aten.clone", "aten._to_copy", "aten.copy_"])
def test_what_loads_elements_one_by_one_is_a_kind_of_its_own(name: str) -> None:
    assert kind_of(replace(operation(name), unrolled=True)) is Kind.UNROLLED


def test_what_the_optimizer_does_is_of_one_kind_but_for_its_products() -> None:
    assert kind_of(operation("aten.addmm", phase="optimizer")) is Kind.PRODUCT
    for name in ("aten.add", "aten.linalg_vector_norm"):
        assert kind_of(operation(name, phase="optimizer")) is Kind.OPTIMIZER


@pytest.mark.parametrize("phase", ["optimizer", "backward"])
@pytest.mark.parametrize("name", ["_fused_adamw_", "_foreach_add_", "_amp_foreach_update"])
def test_kernels_of_many_tensors_are_a_kind_of_their_own(name: str, phase: str) -> None:
    assert kind_of(operation(f"aten.{name}", phase=phase)) is Kind.MULTI_TENSOR


def test_cudnn_normalizes_no_bf16() -> None:
    norm = operation("aten.native_batch_norm", dtype="bfloat16")
    assert kind_of(norm) is Kind.OWN_BATCH_NORM
    assert kind_of(replace(norm, channels_last=True)) is Kind.BATCH_NORM
    assert kind_of(replace(norm, dtype="float16")) is Kind.BATCH_NORM
    backward = operation("aten.native_batch_norm_backward", dtype="bfloat16")
    assert kind_of(backward) is Kind.OWN_BATCH_NORM_BACKWARD
    assert kind_of(operation("aten.native_group_norm", dtype="bfloat16")) is Kind.BATCH_NORM


def test_convolutions_are_told_apart_by_groups_taps_and_layout() -> None:
    assert kind_of(convolution(1)) is Kind.CONVOLUTION
    assert kind_of(convolution(1, taps=1)) is Kind.POINTWISE_CONVOLUTION
    assert kind_of(convolution(1, name="_backward")) is Kind.CONVOLUTION_BACKWARD
    assert kind_of(convolution(4)) is Kind.GROUPED_CONVOLUTION
    assert kind_of(convolution(4, last=True)) is Kind.ODD_GROUPED_CONVOLUTION
    assert kind_of(convolution(64, last=True)) is Kind.GROUPED_CONVOLUTION
    alone = operation("aten.convolution", (1000, 64, 1, 9, 64, 0))
    assert kind_of(alone) is Kind.DEPTHWISE_CONVOLUTION


def test_only_short_windows_use_tensor_cores_in_groups() -> None:
    for last in (False, True):
        assert kind_of(convolution(16, taps=128, last=last)) is Kind.LONG_CONVOLUTION
    assert kind_of(convolution(1, taps=128)) is Kind.CONVOLUTION


@pytest.mark.parametrize(
    ("dtype", "pixels", "per_image"),
    [
        ("bfloat16", 28 * 28, 1),
        ("float32", 28 * 28, 1),
        ("bfloat16", 14 * 14, 0),
        ("bfloat16", 50 * 67, 0),  # not aligned
        ("bfloat16", 0, 0),  # strided
    ],
)
def test_large_aligned_images_are_a_product_each(dtype: str, pixels: int, per_image: int) -> None:
    pointwise = operation("aten.convolution", (10**5, 64, 64, 1, 1, pixels), dtype=dtype)
    kernel = kernel_of(pointwise, tf32=True, tf32_products=True)
    assert kernel is not None
    assert (kernel.relaid, kernel.per_image) == (1, per_image)


@pytest.mark.parametrize(
    ("dtype", "last", "kind"),
    [
        ("float16", False, Kind.DEPTHWISE_CONVOLUTION),
        ("float16", True, Kind.DEPTHWISE_CONVOLUTION),
        ("bfloat16", True, Kind.DEPTHWISE_CONVOLUTION),
        ("bfloat16", False, Kind.OWN_DEPTHWISE_CONVOLUTION),
        ("float32", False, Kind.OWN_DEPTHWISE_CONVOLUTION),
        ("float32", True, Kind.SINGLE_DEPTHWISE_CONVOLUTION),
    ],
)
def test_depthwise_convolutions_are_told_apart_by_whose_kernel_it_is(
    dtype: str, last: bool, kind: Kind
) -> None:
    alone = operation("aten.convolution", (1000, 64, 1, 9, 64, 0), dtype=dtype)
    found = kernel_of(replace(alone, channels_last=last), tf32=True, tf32_products=True)
    assert found is not None
    assert (found.kind, found.format) == (kind, Format.FP32)  # no matrices, no tensor cores


def test_pytorchs_own_depthwise_kernels_visit_every_element_of_the_images() -> None:
    pixels, channels, taps = 1000, 64, 9

    def flops(stride: int) -> float:
        images, result = channels * pixels * stride**2, channels * pixels
        backward = Operation(
            "aten.convolution_backward",
            "bfloat16",
            4 * result * taps,
            2 * (2 * images + result),
            "backward",
            (pixels, channels, 1, taps, channels, 0),
        )
        kernel = kernel_of(backward, **NO_TF32)
        assert kernel is not None
        return kernel.flops

    assert flops(1) == 4 * channels * pixels * taps
    assert flops(2) == 2.5 * flops(1)


def test_a_product_has_as_many_tiles_as_cover_it() -> None:
    kernel = kernel_of(operation("aten.bmm", (3, 129, 128, 64)), **NO_TF32)
    assert kernel == Kernel(
        Kind.BATCHED_PRODUCT, Format.HALF, 10**9, 10**6, inner=64, columns=128, tiles=3 * 2
    )


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2)])
def test_a_layer_norm_sums_the_gradients_of_its_weights_in_few_blocks(
    dtype: str, size: int
) -> None:
    def blocks(rows: int, length: int) -> float:
        norm = operation("aten.native_layer_norm_backward", (length,), dtype=dtype)
        kernel = kernel_of(replace(norm, bytes_moved=3 * size * rows * length), **NO_TF32)
        assert kernel is not None
        return kernel.blocks

    assert blocks(8192, 768) == blocks(65536, 768) == 24
    assert blocks(8192, 1000) == 32
    assert blocks(65537, 768) == 0  # more rows are summed in two passes


def test_only_tf32_products_need_matrices_along_the_sums() -> None:
    for across in (0, 1):
        product = operation("aten.mm", (1, 64, 64, 4096, across), dtype="float32")
        for tf32 in (False, True):
            kernel = kernel_of(product, tf32=True, tf32_products=tf32)
            assert kernel is not None
            assert kernel.across == (across and tf32)


@pytest.mark.parametrize(
    ("name", "shape", "allowed", "unit"),
    [
        ("aten.mm", (1, 8, 8, 8), False, Format.FP32),
        ("aten.mm", (1, 8, 8, 8), True, Format.TF32),
        ("aten.convolution", (1, 8, 8, 9, 1, 0), False, Format.TF32),
    ],
)
def test_only_convolutions_use_tf32_unasked(
    name: str, shape: tuple[int, ...], allowed: bool, unit: Format
) -> None:
    single = operation(name, shape, dtype="float32")
    for has_units, used in ((True, unit), (False, Format.FP32)):
        kernel = kernel_of(single, tf32=has_units, tf32_products=allowed)
        assert kernel is not None
        assert kernel.format is used


def test_causal_attention_computes_half_of_the_scores() -> None:
    attention = "aten._scaled_dot_product_flash_attention"
    whole, causal = (
        kernel_of(operation(attention, (32, 64, 64, 16, masked)), **NO_TF32) for masked in (0, 1)
    )
    assert whole is not None
    assert causal is not None
    assert causal.flops == whole.flops / 2


def test_no_kernel_runs_a_view() -> None:
    assert kernel_of(operation("aten._unsafe_view"), **NO_TF32) is None


def test_every_gpu_of_the_catalogue_sustains_less_than_its_peaks() -> None:
    model = speed_model()
    for gpu in GPUS.values():
        rates = model.rates(gpu)
        assert 0.2 * gpu.fp32_flops < rates.flops_per_second[Format.FP32] < 1.2 * gpu.fp32_flops
        assert 0.3 * gpu.fp16_flops < rates.flops_per_second[Format.HALF] < 1.15 * gpu.fp16_flops
        # Ada's GPUs find much of it in their cache, of up to 96 MB.
        assert 0.6 < rates.bytes_per_second / gpu.memory_bytes_per_second < 1.4


def test_a_gpu_that_is_not_known_is_of_the_latest_generation_before_it() -> None:
    assert generation_of(8.6) == "ampere"
    assert generation_of(8.7) == "ampere"
    assert generation_of(13.0) == "blackwell"
    assert generation_of(3.5) == "pascal"


def test_the_constants_are_plausible() -> None:
    model = speed_model()
    assert 1e-6 < model.kernel_seconds < 1e-5
    assert 17e-6 <= model.host_seconds <= 24e-6  # sweeps of Hugging Face's Trainer
    assert all(0.1 < share < 2 for share in model.bandwidth)
    assert all(1e9 < asked < 1e12 for asked in model.asking)
    assert all(0 <= share < 1 for share in model.overlap)
    assert all(0.1 < launches < 10 for launches in model.launches)
    # Of the rate of products; Winograd computes convolutions with fewer FLOPs
    assert all(0.01 < share < 3 for share in model.compute)
    assert all(0.7 < speed < 1.4 for speed in model.gpus.values())
    for low, high in model.ranges.values():
        assert 0.4 < low < 1 < high < 3
    for (family, known, waits), (low, high) in model.ranges.items():
        if known:
            wider = model.ranges[family, False, waits]
            assert wider[0] <= low
            assert wider[1] >= high
    assert not math.isnan(sum(model.compute))


def test_a_file_without_a_kind_is_refused(tmp_path: Path) -> None:
    text = FILE.read_text(encoding="utf-8").replace("[kind.softmax]", "[kind.hardmax]")
    path = tmp_path / "step_time.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="softmax"):
        read_model(path)
