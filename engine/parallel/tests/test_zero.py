"""DeepSpeed's ZeRO: what each stage keeps, against the formulas that DeepSpeed publishes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

from engine.allocator.caching import ALLOCATE
from engine.core.errors import InvalidInput
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source
from engine.interface.workload import Workload
from engine.parallel.group import place
from engine.parallel.zero_division import Division, Parts
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.probe import predict_trial
from engine.tests.shared import small_workload
from engine.traces.tracer import meta_model, trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Category, Trace

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("small_models"), pytest.mark.torch]

A100 = GPUS["a100-80gb"]
AMPERE = cuda_behaviour(8.0)
BATCH_SIZE = 2
BUCKET = 5_000


def zero(stage: int, model: str = "gpt2", world_size: int = 8, **fields: Any) -> Workload:
    fields = {"reduce_bucket_size": BUCKET, "precision": "bf16-mixed"} | fields
    return small_workload(model, parallelism=f"zero-{stage}", world_size=world_size, **fields)


def count(workload: Workload) -> int:
    return sum(parameter.numel() for parameter in meta_model(workload).parameters())


def alive(traced: Trace, until: str = "") -> dict[Category, int]:
    """Bytes of each category between steps, or the most of gradients in a phase."""
    tensors: set[int] = set()
    for kind, tensor in traced.events:
        (tensors.add if kind == ALLOCATE else tensors.discard)(tensor)
    found = dict.fromkeys(Category, 0)
    for tensor in tensors:
        found[traced.categories[tensor]] += traced.sizes[tensor]
    return found


def most(traced: Trace, *categories: Category) -> int:
    return most_of(traced.events[traced.last_step :], traced, *categories)


def most_of(events: list[tuple[int, int]], traced: Trace, *categories: Category) -> int:
    bytes_now = found = 0
    for kind, tensor in events:
        if traced.categories[tensor] in categories:
            bytes_now += traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor]
            found = max(found, bytes_now)
    return found


@pytest.mark.parametrize("stage", [1, 2])
def test_between_steps_each_gpu_keeps_all_weights_and_its_part_of_the_rest(stage: int) -> None:
    """``estimate_zero2_model_states_mem_needs``: 2 bytes a weight, and 18 for each one's part.

    Of those, 12 stay between steps: the fp32 weights and AdamW's moments.
    """
    workload = zero(stage)
    kept, weights = alive(trace(workload, BATCH_SIZE, AMPERE)), count(workload)
    assert kept[Category.PARAMETERS] == pytest.approx(2 * weights, rel=0.02)
    assert kept[Category.OPTIMIZER_STATE] == pytest.approx(12 * weights / 8, rel=0.01)
    assert kept[Category.GRADIENTS] == 0


def test_stage_3_divides_the_weights_too() -> None:
    """``estimate_zero3_model_states_mem_needs``: 18 bytes for each one's part, 4 then temporary."""
    workload = zero(3)
    kept, weights = alive(trace(workload, BATCH_SIZE, AMPERE)), count(workload)
    whole = small_weights(meta_model(workload))
    assert kept[Category.OPTIMIZER_STATE] == pytest.approx(12 * weights / 8, rel=0.01)
    assert kept[Category.PARAMETERS] == pytest.approx(2 * weights / 8 + 2 * whole, rel=0.01)
    assert kept[Category.GRADIENTS] == pytest.approx(2 * weights / 8 + 2 * BUCKET, rel=0.01)


def small_weights(*models: torch.nn.Module) -> int:
    """Numbers of weights below ``stage3_param_persistence_threshold``, whole from update to update.

    Their place is rounded up to the parts of all GPUs.
    """
    most = Division(3, 8).small_elements
    sizes = [one.numel() for model in models for one in model.parameters()]
    return sum(-(-size // 8) * 8 for size in sizes if size <= most)


def test_the_step_needs_what_the_published_formula_says() -> None:
    """In the step all 18 bytes of a part are there, beside the weights, and its gradients twice.

    ``copy_grads_in_partition`` keeps those of weights whole that lie in a part, and ``flatten``
    copies the part before it becomes fp32 (stage_1_and_2.py), as DeepSpeed's own steps show.
    """
    workload = zero(2, optimizer="adamw", world_size=2)
    traced = trace(workload, BATCH_SIZE, AMPERE)
    parts = Parts([one.numel() for one in meta_model(workload).parameters()], 2)
    within = most(traced, Category.GRADIENTS)
    assert within == pytest.approx(2 * parts.whole + 2 * parts.size + 4 * parts.size, rel=0.01)
    states = sum(alive(traced)[one] for one in (Category.PARAMETERS, Category.OPTIMIZER_STATE))
    published = 2 * count(workload) + 18 * parts.size
    assert states + within >= published + 2 * parts.whole - 2 * BUCKET


def test_weights_that_lie_in_several_parts_count_in_each() -> None:
    parts = Parts([10, 2, 4], gpus=4)
    assert (parts.size, parts.whole) == (4, 12)
    assert parts.holds([2])
    assert not parts.holds([0])
    assert not parts.holds([1, 2])


def test_stage_1_keeps_gradients_where_stage_2_does_not() -> None:
    first, second = (
        most(trace(zero(stage, world_size=64), BATCH_SIZE, AMPERE), Category.GRADIENTS)
        for stage in (1, 2)
    )
    assert first >= 2 * count(zero(1))
    assert second < first


def test_adapters_alone_are_divided() -> None:
    pytest.importorskip("peft")
    workload = zero(3, "llama-3.2-1b", lora_rank=4)
    model = meta_model(workload)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert {parameter.dtype for parameter in trained} == {torch.bfloat16}
    part = -(-sum(parameter.numel() for parameter in trained) // 8)
    kept = alive(trace(workload, BATCH_SIZE, AMPERE))
    assert kept[Category.OPTIMIZER_STATE] == pytest.approx(12 * part, abs=16)


def test_a_larger_bucket_takes_its_memory() -> None:
    small, large = (
        trace(zero(3, reduce_bucket_size=size), BATCH_SIZE, AMPERE).replay().peak_allocated_bytes
        for size in (BUCKET, BUCKET + 1_000_000)
    )
    assert large - small == pytest.approx(2_000_000, abs=1024)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("size", [BUCKET, 3_000_000])
def test_a_second_bucket_fills_while_the_first_is_reduced(stage: int, size: int) -> None:
    """``setup_buckets``: two buffers of ``reduce_bucket_size`` numbers of bf16 in place of one."""
    one, two = (
        _buffers(trace(zero(stage, reduce_bucket_size=size, overlap_comm=on), BATCH_SIZE, AMPERE))
        for on in (False, True)
    )
    assert (one, two) == ([2 * size], [2 * size] * 2)


def _buffers(traced: Trace) -> list[int]:
    """Gradients' tensors that are made of nothing, in the last step, and as large as the bucket."""
    made = [tensor for kind, tensor in traced.events[traced.last_step :] if kind == ALLOCATE]
    sizes = [traced.sizes[one] for one in made if traced.categories[one] is Category.GRADIENTS]
    return [size for size in sizes if size in (2 * BUCKET, 6_000_000)]


def test_what_is_reduced_meanwhile_has_a_pool_of_its_own() -> None:
    """``reduction_stream``: the flattened copies and this GPU's part are made in it."""
    alone, overlapped = (
        trace(zero(2, overlap_comm=on), BATCH_SIZE, AMPERE) for on in (False, True)
    )
    assert set(alone.streams) == {0}
    of_it = [stream for stream in overlapped.streams if stream]
    sizes = zip(overlapped.sizes, overlapped.streams, strict=True)
    largest = max(size for size, stream in sizes if stream)
    assert set(of_it) == {1}
    assert largest >= 2 * count(zero(2)) // 8
    steps = 2
    assert sum(overlapped.sizes) - sum(alone.sizes) == steps * 2 * BUCKET


@pytest.mark.parametrize("overlaps", [False, True])
def test_stage_1_makes_its_buckets_in_the_first_backward_pass(overlaps: bool) -> None:
    """``process_gradients`` calls ``setup_buckets``; gradients are reduced after the last pass."""
    fields: dict[str, Any] = {"overlap_comm": overlaps, "gradient_accumulation": 2}
    found = trace(zero(1, **fields), BATCH_SIZE, AMPERE)
    sent = [one.phase for one in found.operations if "allreduce" in one.name]
    assert _buffers(found) == [2 * BUCKET] * (1 + overlaps)
    assert sent
    assert ("backward" in sent) == overlaps


def test_its_numbers_are_computed_and_less_certain() -> None:
    workload = zero(2)
    trial = predict_trial(workload, A100, trace(workload, BATCH_SIZE, AMPERE))
    assert trial.source is Source.COMPUTED
    assert trial.device_used_bytes
    assert trial.device_used_high_bytes
    assert trial.device_used_high_bytes >= 1.14 * trial.device_used_bytes


def test_an_analysis_says_that_it_is_computed() -> None:
    request = AnalysisRequest(zero(3), gpu="a10", current_batch_size=8, memory_limit_bytes=2**31)
    result = analyze_predicted(request, lambda event: None)
    assert result.source is Source.COMPUTED
    told = " ".join(result.caveats)
    assert "zero-3 is computed" in told
    assert "Computed memory may be off by −15% to +15%" in told


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("precision", {"precision": "fp32"}),
        ("optimizer", {"optimizer": "adafactor"}),
        ("cpu_offload", {"cpu_offload": True}),
    ],
)
def test_what_is_not_predicted_with_it_is_refused(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        zero(2, **fields)
    assert field in refused.value.fields


@pytest.mark.parametrize("fields", [{"quantization": "int8"}, {"cpu_offload": True}], ids=str)
def test_stage_3_does_not_divide_or_offload_every_quantized_weight(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        zero(3, "llama-3.2-1b", lora_rank=4, **{"quantization": "nf4"} | fields)
    assert list(refused.value.fields) == list(fields)


@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("stage", [1, 2])
def test_each_gpu_keeps_all_quantized_weights(stage: int, quantization: str) -> None:
    """DeepSpeed casts and divides floating-point numbers alone: here those of the adapters."""
    pytest.importorskip("peft")
    fields: dict[str, Any] = {"lora_rank": 4, "quantization": quantization}
    divided = zero(stage, "llama-3.2-1b", **fields)
    whole = small_workload("llama-3.2-1b", precision="bf16-true", **fields)
    kept = [alive(trace(one, BATCH_SIZE, AMPERE)) for one in (divided, whole)]
    trained = sum(one.numel() for one in meta_model(divided).parameters() if one.requires_grad)
    weights = [one[Category.PARAMETERS] for one in kept]
    assert weights[0] == pytest.approx(weights[1], abs=2 * trained + 512)  # adapters in bf16
    assert kept[0][Category.OPTIMIZER_STATE] == pytest.approx(12 * trained / 8, abs=16)


def test_stage_3_divides_the_packed_weights() -> None:
    """``bnb_4bit_quant_storage``: they are kept as numbers of bf16, of four weights each."""
    pytest.importorskip("peft")
    workload = zero(3, "llama-3.2-1b", lora_rank=4, quantization="nf4")
    model = meta_model(workload)
    assert {one.dtype for one in model.parameters()} == {torch.bfloat16}
    scales = sum(one.nbytes for one in model.buffers())
    kept = alive(trace(workload, BATCH_SIZE, AMPERE))
    expected = 2 * count(workload) / 8 + 2 * small_weights(model) + scales
    assert kept[Category.PARAMETERS] == pytest.approx(expected, rel=0.01)


def test_packed_weights_are_whole_on_each_gpu_before_they_are_divided() -> None:
    """DeepSpeed's engine moves a model to the GPU that was not made within ``zero.Init``."""
    pytest.importorskip("peft")
    workload = zero(3, "llama-3.2-1b", lora_rank=4, quantization="nf4")
    model, found = meta_model(workload), trace(workload, BATCH_SIZE, AMPERE)
    whole = 2 * count(workload) + sum(one.nbytes for one in model.buffers())
    master = found.categories.index(Category.OPTIMIZER_STATE)
    at_start = found.events[: found.events.index((ALLOCATE, master))]
    held = most_of(at_start, found, Category.PARAMETERS)
    assert held == pytest.approx(whole, rel=0.01)  # shards are of whole rows
    # Weight by weight: the parts fill the places of a few, and the others' are left whole.
    left = Counter(found.sizes[tensor] for kind, tensor in at_start if kind != ALLOCATE)
    for size, weights in Counter(one.nbytes for one in model.parameters()).items():
        assert left[size] >= weights * 7 // 8


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_one_gpu_keeps_everything(stage: int) -> None:
    workload = zero(stage, world_size=1)
    kept, weights = alive(trace(workload, BATCH_SIZE, AMPERE)), count(workload)
    assert kept[Category.OPTIMIZER_STATE] == pytest.approx(12 * weights, rel=0.01)
    assert kept[Category.PARAMETERS] >= 2 * weights


def test_one_gpu_offloads_its_optimizer() -> None:
    """ZeRO-Offload: the GPU keeps weights in bf16, the host 16 bytes for each, and copies."""
    workload = zero(2, world_size=1, optimizer_offload=True)
    found, weights = trace(workload, BATCH_SIZE, AMPERE), count(workload)
    assert alive(found)[Category.OPTIMIZER_STATE] == 0
    assert found.host_bytes >= 16 * weights


def test_only_zero_has_its_bucket() -> None:
    with pytest.raises(InvalidInput) as refused:
        small_workload("gpt2", parallelism="fsdp", world_size=2, reduce_bucket_size=BUCKET)
    assert "reduce_bucket_size" in refused.value.fields


@pytest.mark.parametrize("parallelism", ["zero-3", "fsdp"])
def test_only_the_first_stages_have_a_second_bucket(parallelism: str) -> None:
    fields: dict[str, Any] = {"parallelism": parallelism, "precision": "bf16-mixed"}
    with pytest.raises(InvalidInput) as refused:
        small_workload("gpt2", world_size=2, overlap_comm=True, **fields)
    assert "overlap_comm" in refused.value.fields


def test_it_cannot_be_measured() -> None:
    with pytest.raises(InvalidInput) as refused:
        place(torch.nn.Linear(2, 2), zero(2), "cpu")
    assert "computed only" in refused.value.fields["parallelism"]
