from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.answer.economics import FILLED_NOISE, unfilled_noise, within
from engine.core.choices import Precision
from engine.gpus import GPUS
from engine.prediction.timing.kernels import FORMATS, Format, Kind
from engine.prediction.timing.launches import OF_BERT, Launch, launch_of
from engine.prediction.timing.speed_model import speed_model
from engine.prediction.timing.step_time import (
    Family,
    family_of,
    predict_step_seconds,
    ratio_span,
    step_work,
)
from engine.prediction.timing.work import Scales, StepTime
from engine.step.batches import make_batch
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import RECOMPUTATION, Operation

A10 = GPUS["a10"]
T4 = GPUS["t4"]
FP32 = Precision.FP32
MODEL = speed_model()
PRODUCT = (1, 10**5, 10**5, 10**5)
"""The shape of a product that fills every GPU."""


def work(
    name: str,
    dtype: str,
    flops: int,
    moved: int,
    phase: str = "forward",
    shape: tuple[int, ...] = (),
) -> Operation:
    return Operation(name, dtype, flops, moved, phase, shape)


def product(dtype: str = "float32", flops: int = 10**13, phase: str = "forward") -> Operation:
    return work("aten.mm", dtype, flops, 0, phase, PRODUCT)


def convolution(dtype: str = "float32") -> Operation:
    return work("aten.convolution", dtype, 10**13, 0, shape=(10**7, 512, 512, 9, 1, 0))


def gpu_seconds(operation: Operation, precision: Precision = FP32) -> float:
    return predict_step_seconds([operation], A10, precision) - MODEL.kernel_seconds


def share(kind: Kind, unit: Format) -> float:
    return MODEL.compute[kind * FORMATS + unit]


def test_a_matrix_product_is_limited_by_its_flops() -> None:
    reached = MODEL.rates(A10).flops_per_second[Format.FP32] * share(Kind.PRODUCT, Format.FP32)
    assert gpu_seconds(product()) == pytest.approx(10**13 / reached, rel=0.01)


def test_an_elementwise_operation_is_limited_by_its_bytes() -> None:
    addition = work("aten.add", "float32", 0, 10**10)
    memory = MODEL.rates(A10).bytes_per_second * MODEL.bandwidth[Kind.ELEMENTWISE]
    asked = A10.multiprocessors * MODEL.asking[Kind.ELEMENTWISE]
    assert gpu_seconds(addition) == pytest.approx(10**10 * (1 / memory + 1 / asked))


def test_the_shorter_of_moving_and_computing_overlaps_in_part() -> None:
    both = replace(product(), bytes_moved=10**11)
    moving, computing = gpu_seconds(replace(both, flops=0)), gpu_seconds(product())
    longer, shorter = max(moving, computing), min(moving, computing)
    assert gpu_seconds(both) == pytest.approx(longer + MODEL.overlap[Kind.PRODUCT] * shorter)


def test_a_small_step_is_limited_by_the_hosts_launches() -> None:
    tiny = [work("aten.add", "float32", 0, 16)] * 100
    found = step_work(tiny, A10, FP32).timed()
    launching = MODEL.launches[Launch.FUNCTION] * MODEL.host_seconds
    assert found.seconds == pytest.approx(100 * launching)
    assert found.launch_limited
    assert not step_work([product()], A10, FP32).timed().launch_limited


def test_operations_take_as_long_where_a_trace_holds_one_many_times() -> None:
    one, other = product(), work("aten.add", "float32", 0, 10**9)
    shared = [one, other, one, one]
    apart = [replace(operation) for operation in shared]
    taken, expected = (predict_step_seconds(each, A10, FP32, 3) for each in (shared, apart))
    assert taken == pytest.approx(expected, rel=1e-12)


def test_small_products_reach_less_than_large_ones() -> None:
    def speed(rows: int, inner: int) -> float:
        flops = 2 * rows * 1024 * inner
        one = work("aten.mm", "float16", flops, 0, shape=(1, rows, 1024, inner))
        return flops / gpu_seconds(one)

    assert speed(128, 1024) < speed(1024, 1024) < speed(16_384, 1024)
    assert speed(16_384, 32) < speed(16_384, 256)


def test_tensor_cores_are_slower_where_rows_are_not_aligned() -> None:
    def seconds(columns: int, dtype: str = "float16", phase: str = "forward") -> float:
        shape = (1, 8192, columns, 4096)
        return gpu_seconds(work("aten.mm", dtype, 10**13, 0, phase, shape))

    assert seconds(50_257) > 1.3 * seconds(50_264)
    assert seconds(50_257, "float32") == pytest.approx(seconds(50_264, "float32"), rel=0.01)
    samples = (1, 8191, 4096, 4096)  # any number of samples will do
    product = work("aten.mm", "float16", 10**13, 0, shape=samples)
    assert gpu_seconds(product) == pytest.approx(seconds(4096), rel=0.01)


def test_rows_that_are_not_aligned_cost_hopper_more_than_ampere() -> None:
    def loss(name: str) -> float:
        seconds = [
            predict_step_seconds(
                [work("aten.mm", "bfloat16", 10**14, 0, shape=(1, 8192, columns, 4096))],
                GPUS[name],
                FP32,
            )
            for columns in (50_257, 50_264)
        ]
        return seconds[0] / seconds[1]

    assert loss("h100") > 1.3 * loss("a100-80gb")


def test_a_batch_norm_is_slow_with_few_channels_unless_they_are_last() -> None:
    def seconds(channels: int, dtype: str, *, last: bool = False) -> float:
        norm = work("aten.native_batch_norm", dtype, 0, 10**9, shape=(channels,))
        return gpu_seconds(replace(norm, channels_last=last))

    for dtype in ("bfloat16", "float16"):
        assert seconds(16, dtype) > 2 * seconds(512, dtype)
        assert seconds(16, dtype, last=True) == seconds(512, dtype, last=True)
    assert seconds(64, "bfloat16") > 2 * seconds(64, "float16")  # PyTorch's own and cuDNN's


def test_a_layer_norm_is_slow_over_short_rows() -> None:
    def seconds(length: int) -> float:
        return gpu_seconds(work("aten.native_layer_norm", "float32", 0, 10**9, shape=(length,)))

    assert seconds(32) > seconds(96) > seconds(4096)


def test_long_sums_fill_a_gpu_with_few_tiles() -> None:
    def rate(rows: int, inner: int) -> float:
        flops = 2 * rows * 768 * inner
        return flops / gpu_seconds(
            work("aten.mm", "float32", flops, 0, shape=(1, rows, 768, inner))
        )

    few, many = 768, 8192
    assert rate(few, 768) < 0.8 * rate(many, 768)
    assert rate(few, 32_768) > 0.85 * rate(many, 32_768)


def test_hopper_computes_in_tf32_slower_across_the_sums() -> None:
    def slower(gpu: str) -> float:
        along, across = (
            predict_step_seconds(
                [work("aten.mm", "float32", 10**12, 0, shape=(1, 4096, 4096, 32_768, flag))],
                GPUS[gpu],
                Precision.TF32,
            )
            for flag in (0, 1)
        )
        return across / along

    assert slower("h100") > 1.2
    assert slower("a100-80gb") == 1


def test_hopper_convolves_three_colours_no_faster_in_half_precision_than_in_fp32() -> None:
    def seconds(dtype: str, channels: int) -> float:
        shape = (128 * 14 * 14, 768, channels, 256, 1, 0)
        flops = 2 * 128 * 14 * 14 * 768 * channels * 256
        images = work("aten.convolution", dtype, flops, 0, shape=shape)
        return predict_step_seconds([images], GPUS["h100"], FP32)

    assert seconds("bfloat16", 3) > 4 * seconds("bfloat16", 8) * 3 / 8


def test_elements_loaded_one_by_one_take_longer_on_hopper() -> None:
    added = work("aten.add", "float32", 0, 10**9)
    one_by_one = predict_step_seconds([replace(added, unrolled=True)], GPUS["h100"], FP32)
    assert one_by_one > 1.1 * predict_step_seconds([added], GPUS["h100"], FP32)


@given(low=st.integers(1, 5000), high=st.integers(1, 5000), name=st.sampled_from(sorted(GPUS)))
def test_more_samples_take_no_less_time_and_fill_no_less(low: int, high: int, name: str) -> None:
    def step(batch: int) -> StepTime:
        rows = 64 * batch
        operations = [
            work("aten.mm", "float16", 2 * rows * 512 * 512, 1024 * rows, "forward",
                 (1, rows, 512, 512)),
            work("aten.gelu", "float16", 0, 2048 * rows),
        ]  # fmt: skip
        return step_work(operations, GPUS[name], Precision.FP16_MIXED).timed()

    low, high = sorted((low, high))
    assert step(low).seconds <= step(high).seconds * (1 + 1e-9)
    assert 0 < step(low).filled <= step(high).filled * (1 + 1e-9) <= 1 + 1e-6


def test_a_large_product_fills_the_gpu_and_a_small_one_does_not() -> None:
    def filled(rows: int) -> float:
        flops = 2 * rows * 1024 * 1024
        one = work("aten.mm", "float16", flops, 0, shape=(1, rows, 1024, 1024))
        return step_work([one] * 1000, GPUS["h100"], Precision.FP16_MIXED).timed().filled

    assert filled(10**6) > 0.95
    assert filled(4096) < 0.9
    assert filled(64) < 0.3


def test_tf32_speeds_up_matrix_products_only_if_enabled() -> None:
    assert gpu_seconds(product(), Precision.TF32) < gpu_seconds(product()) * 0.8


def test_convolutions_use_tf32_by_default() -> None:
    units = replace(A10, tf32_flops=None)
    slower = predict_step_seconds([convolution()], units, FP32)
    assert predict_step_seconds([convolution()], A10, FP32) < slower * 0.8


def test_half_precision_uses_the_tensor_cores() -> None:
    assert gpu_seconds(product("float16")) < gpu_seconds(product()) * 0.4


SIZES = st.sampled_from([64, 256, 1000, 4096, 50257])


@pytest.mark.longer
@given(st.sampled_from([1, 12, 384]), SIZES, SIZES, SIZES, st.sampled_from(["mm", "bmm"]))
def test_half_precision_gains_what_units_and_bytes_do_over_tf32(
    times: int, rows: int, columns: int, inner: int, name: str
) -> None:
    """Tensor cores compute twice as much in half precision, and numbers take half the bytes.

    On Hopper products gain somewhat more, as ours did.
    """
    times = times if name == "bmm" else 1
    numbers = times * (rows * inner + inner * columns + rows * columns)
    flops, shape = 2 * times * rows * columns * inner, (times, rows, columns, inner)
    single = work(f"aten.{name}", "float32", flops, 4 * numbers, shape=shape)
    half = work(f"aten.{name}", "float16", flops, 2 * numbers, shape=shape)
    for gpu in (one for one in GPUS.values() if one.tf32_flops):
        in_fp32 = predict_step_seconds([single], gpu, FP32)
        in_tf32 = predict_step_seconds([single], gpu, Precision.TF32)
        in_half = predict_step_seconds([half], gpu, FP32)
        assert in_tf32 <= in_fp32 * 1.01, gpu.name
        assert in_half <= in_tf32 <= in_half * 2.5, gpu.name


def test_without_units_for_bf16_it_is_computed_in_fp32() -> None:
    in_fp32, in_bf16 = (
        predict_step_seconds([product(dtype)], T4, FP32) for dtype in ("float32", "bfloat16")
    )
    assert in_bf16 == pytest.approx(in_fp32)


def test_a_gpu_of_little_power_does_not_reach_its_peak() -> None:
    # An A10 has more fp32 units than an A100, and 150 W for them.
    on_a10, on_a100 = (
        predict_step_seconds([product()], GPUS[name], FP32) for name in ("a10", "a100-40gb")
    )
    assert A10.fp32_flops > GPUS["a100-40gb"].fp32_flops
    assert on_a10 > on_a100


def test_images_with_their_channels_first_are_laid_out_anew_for_tensor_cores() -> None:
    first = work("aten.convolution", "float16", 10**9, 10**9, shape=(10**6, 64, 64, 9, 1, 0))
    assert gpu_seconds(first) > gpu_seconds(replace(first, channels_last=True)) * 1.2


def test_a_step_is_of_the_family_that_most_of_its_flops_are() -> None:
    patches = replace(convolution(), flops=10**12)
    assert family_of([product(), patches]) is Family.TRANSFORMERS
    assert family_of([convolution(), work("aten.mm", "float32", 10**9, 0)]) is Family.CONVOLUTIONAL
    assert family_of([convolution(), product()]) is Family.OTHER
    assert family_of([work("aten.add", "float32", 0, 10)]) is Family.OTHER


FULL = StepTime(1.0, 1.0, 0.1, filled=0.97, fastest=1.0, slowest=1.0, ahead=1.0)
EMPTY = StepTime(1.0, 0.5, 1.0, filled=0.4, fastest=1.0, slowest=1.0, ahead=1.0)


def test_a_ratio_is_better_known_where_both_batches_fill_the_gpu() -> None:
    assert ratio_span(FULL, FULL, 4.0) == within(FILLED_NOISE)
    for ratio in (1.0, 1.2, 4.0):
        unsure = within(unfilled_noise(ratio))
        assert ratio_span(FULL, EMPTY, ratio) == ratio_span(EMPTY, FULL, ratio) == unsure
    assert FILLED_NOISE < unfilled_noise(1.0) < unfilled_noise(1.2) < unfilled_noise(4.0)
    assert unfilled_noise(0.25) == unfilled_noise(4.0)


def test_a_ratio_is_as_uncertain_as_the_host_makes_it() -> None:
    waiting = replace(EMPTY, fastest=0.5, slowest=3.0)
    low, high = within(unfilled_noise(2.0))
    assert ratio_span(waiting, FULL, 2.0) == pytest.approx((0.5 * low, 3 * high))
    assert ratio_span(FULL, waiting, 2.0) == pytest.approx((low / 3, 2 * high))
    assert ratio_span(waiting, waiting, 2.0) == (low, high)  # both on the same host


def test_where_the_launch_time_is_known_no_host_is_assumed() -> None:
    step = [work("aten.add", "float32", 0, 10) for _ in range(1000)]
    assumed = step_work(step, A10, FP32).timed()
    assert assumed.fastest < assumed.seconds < assumed.slowest
    assert assumed.slowest == pytest.approx(4 * assumed.fastest)  # 15 and 60 microseconds
    known = step_work(step, replace(A10, launch_seconds=40e-6), FP32).timed()
    assert known.fastest == known.seconds == known.slowest
    assert known.host_seconds == pytest.approx(assumed.host_seconds * 2)
    assert known.launch_limited


def test_a_step_that_fills_the_gpu_does_not_depend_on_its_host() -> None:
    step = step_work([product()], A10, FP32).timed()
    assert step.fastest == step.seconds == step.slowest


@pytest.mark.parametrize(
    ("name", "phase", "launch"),
    [
        ("aten.addmm", "forward", Launch.MODULE),
        ("aten.native_layer_norm", "forward", Launch.MODULE),
        ("aten.add", "forward", Launch.FUNCTION),
        ("aten._to_copy", "forward", Launch.CAST),
        ("aten.mm", "backward", Launch.BACKWARD),
        ("aten.copy_", "backward", Launch.BACKWARD_CAST),
        ("aten.addmm", "recomputation", Launch.MODULE),
        ("aten._fused_adamw_", "optimizer", Launch.OPTIMIZER),
    ],
)
def test_launches_by_what_runs_on_the_host(name: str, phase: str, launch: Launch) -> None:
    assert launch_of(work(name, "float32", 0, 10, phase)) is launch


def test_a_launch_is_the_mean_of_berts() -> None:
    mean = sum(MODEL.launches[launch] * times for launch, times in OF_BERT.items())
    mean += MODEL.step_launches
    assert mean == pytest.approx(sum(OF_BERT.values()), rel=0.01)


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_what_checkpointing_runs_again_keeps_the_host_as_busy_as_a_forward_pass() -> None:
    plain, again = (
        trace(small_workload("bert", gradient_checkpointing=each), 4, cuda_behaviour(9.0))
        for each in (False, True)
    )
    assert not [one for one in plain.operations if one.phase == RECOMPUTATION]
    forward = [one for one in again.operations if one.phase == "forward"]
    recomputed = [one for one in again.operations if one.phase == RECOMPUTATION]
    assert 0.5 * len(forward) < len(recomputed) <= len(forward)
    assert {one.name for one in recomputed} <= {one.name for one in forward} | {"aten.detach"}


def micro_batch(flops: int) -> list[Operation]:
    return [
        work("aten._to_copy", "float32", 0, 10**6, "inputs"),
        product(flops=flops),
        product(flops=flops, phase="backward"),
    ]


@pytest.mark.parametrize("operator", ["aten._fused_adamw_", "aten.mul", "aten.lerp_"])
def test_an_accumulated_step_runs_the_optimizer_once(operator: str) -> None:
    update = work(operator, "float32", 0, 10**10, "optimizer")
    optimizer = predict_step_seconds([update], A10, FP32)
    first, later = micro_batch(10**13), micro_batch(2 * 10**13)
    one, another = (predict_step_seconds(each, A10, FP32) for each in (first, later))
    for micro_batches in (2, 3, 16):
        # A trace of an accumulated step has two micro-batches; only the second is repeated.
        seconds = predict_step_seconds([*first, *later, update], A10, FP32, micro_batches)
        assert seconds == pytest.approx(one + (micro_batches - 1) * another + optimizer)


def test_a_micro_batch_whose_data_is_on_the_gpu_begins_with_its_forward_pass() -> None:
    first, later = micro_batch(10**13)[1:], micro_batch(2 * 10**13)[1:]
    once, twice = (predict_step_seconds(each, A10, FP32) for each in (first, later))
    seconds = predict_step_seconds([*first, *later], A10, FP32, 8)
    assert seconds == pytest.approx(once + 7 * twice)


def test_a_micro_batch_may_have_two_passes_with_data_of_their_own() -> None:
    passes = [*micro_batch(10**13), *micro_batch(2 * 10**13)]
    once = predict_step_seconds(passes, A10, FP32)
    assert predict_step_seconds([*passes, *passes], A10, FP32, 8) == pytest.approx(8 * once)


def test_a_step_without_accumulation_is_timed_as_traced() -> None:
    traced = [product(), work("aten.add", "float32", 0, 10)]
    assert predict_step_seconds(traced, A10, FP32, 1) == predict_step_seconds(traced, A10, FP32)


def test_scales_are_factors_on_the_rates() -> None:
    operations = [product(), product(), work("aten.add", "float32", 0, 10**11)]
    found = step_work(operations, A10, FP32)
    assert sorted(found.passes[0][0].kernels.values()) == [1, 2]
    assert found.seconds() == predict_step_seconds(operations, A10, FP32)
    twice = Scales(compute=2.0, bandwidth=2.0, kernels=2.0, host=2.0, copy=2.0)
    assert found.seconds(twice) == pytest.approx(found.seconds() / 2)


def test_a_batch_is_copied_over_the_hosts_link_before_the_step() -> None:
    copy = work("aten._to_copy", "float32", 0, 2 * 10**9, "inputs")
    rest = [product(), work("aten.add", "float32", 0, 10**10)]
    without = predict_step_seconds(rest, A10, FP32)
    copying = 10**9 / MODEL.copy_bytes_per_second
    assert predict_step_seconds([copy, *rest], A10, FP32) == pytest.approx(copying + without)
    assert step_work([copy, *rest], A10, FP32).copied_bytes == 10**9


@pytest.mark.longer
@pytest.mark.usefixtures("small_models")
def test_the_bytes_of_the_batch_are_copied() -> None:
    workload = small_workload("resnet")
    batch = sum(tensor.nbytes for tensor in make_batch(workload, 4).values())
    traced = trace(workload, 4, cuda_behaviour(9.0))
    assert step_work(traced.operations, A10, FP32).copied_bytes == batch
