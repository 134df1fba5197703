from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from engine.allocator.caching import ALLOCATE, FREE
from engine.interface.workload import Workload
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.traces.batch_rule import trace_every_batch_size
from engine.traces.tracer import trace
from engine.tracing.every_batch import AffineTrace, NotAffine
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category, Operation, Trace

small = pytest.mark.usefixtures("small_models")


@pytest.mark.longer
@small
@pytest.mark.parametrize(
    ("model", "precision", "capability"),
    [  # each kind once; test_presets covers every model
        ("bert", "bf16-mixed", 9.0),
        pytest.param("gpt2", "fp16-mixed", 8.6, marks=pytest.mark.slow),
        pytest.param("gpt2", "bf16-true", 9.0, marks=pytest.mark.slow),
        pytest.param("resnet", "fp32", 8.6, marks=pytest.mark.slow),
    ],
)
def test_two_traces_give_every_batch_size(model: str, precision: str, capability: float) -> None:
    workload = small_workload(model, precision=precision)
    behaviour = cuda_behaviour(capability)
    traces = trace_every_batch_size(workload, behaviour)
    for batch_size in (1, 11):
        assert traces.at(batch_size) == trace(workload, batch_size, behaviour)


@pytest.mark.longer
@small
def test_a_trace_is_the_same_in_every_process_and_call() -> None:
    # Autocast drops its cached casts in hash table order; a trace must not depend on it.
    workload = small_workload("bert", precision="bf16-mixed")
    assert trace(workload, 2, None) == trace(workload, 2, None)


@small
@pytest.mark.slow
def test_what_a_detector_keeps_by_size_is_not_there_before_the_first_step() -> None:
    backbone = {"model_type": "rt_detr_resnet", "depths": [1] * 4, "out_indices": [2, 3, 4]}
    config = {"model_type": "rt_detr", "num_queries": 12, "backbone_config": backbone}
    workload = Workload("small", config=config, image_size=64)
    first, second = (trace(workload, 2, None) for _ in range(2))
    assert second.sizes == first.sizes


def test_a_finished_trace_does_not_grow_when_what_was_kept_is_freed() -> None:
    kept = []
    with FakeTensorMode():
        training = SimpleNamespace(model=torch.nn.Linear(4, 4), optimizer=None, phase="forward")
        recorder = MemoryRecorder(training, 1)
        recorder.record_step(lambda: kept.append(training.model(torch.zeros(2, 4))))
    traced = recorder.finish()
    events = list(traced.events)
    kept.clear()
    assert traced.events == events


def test_a_tensor_on_the_meta_device_takes_no_memory() -> None:
    """PyTorch's pipelines keep such ones of what a stage receives, before 2.13 at least."""
    kept = []
    with FakeTensorMode():
        training = SimpleNamespace(model=torch.nn.Linear(4, 4), optimizer=None, phase="forward")
        recorder = MemoryRecorder(training, 1)
        before = recorder.live_bytes
        recorder.record_step(lambda: kept.append(torch.zeros(256, 256, device="meta")))
        assert recorder.live_bytes == before
        recorder.record_step(lambda: kept.append(torch.zeros(256, 256)))
    assert recorder.live_bytes == before + 256 * 256 * 4


@pytest.mark.longer
@small
def test_a_prediction_does_not_touch_a_present_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(*_: object) -> None:
        raise AssertionError("it begins a CUDA context")

    workload = small_workload("bert")
    expected = trace(workload, 2, cuda_behaviour(9.0))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_stream", touched)
    assert trace(workload, 2, cuda_behaviour(9.0)) == expected
    assert torch.cuda.is_available()


@small
def test_a_step_frees_everything_except_the_optimizer_state() -> None:
    traced = trace(small_workload("bert"), 2, None)
    live = {tensor for kind, tensor in traced.events if kind == ALLOCATE}
    live -= {tensor for kind, tensor in traced.events if kind == FREE}
    assert {traced.categories[tensor] for tensor in live} == {
        Category.PARAMETERS,
        Category.OPTIMIZER_STATE,
    }
    last = traced.events[traced.last_step :]
    begun = sorted(tensor for kind, tensor in last if kind == ALLOCATE)
    assert begun == sorted(tensor for kind, tensor in last if kind == FREE)


@pytest.mark.parametrize("activation", ["silu", "mish"])
def test_an_operator_with_a_kernel_of_its_own_is_not_taken_apart(activation: str) -> None:
    """PyTorch could make these of others too, as it does where a backend has no kernel."""
    function = getattr(torch.nn.functional, activation)
    with FakeTensorMode():
        model = torch.nn.Linear(4, 4)
        training = SimpleNamespace(model=model, optimizer=None, phase="backward")
        recorder = MemoryRecorder(training, 1)
        recorder.record_step(lambda: function(model(torch.zeros(2, 4))).sum().backward())
    names = {operation.name for operation in recorder.finish().operations}
    assert f"aten.{activation}_backward" in names
    assert not names & {"aten.sigmoid", "aten.tanh", "aten.sigmoid_backward"}


@small
def test_categories_match_the_model() -> None:
    workload = small_workload("bert")
    traced = trace(workload, 2, None)
    model = build_model(workload)
    parameters = sum(p.nbytes for p in model.parameters())
    buffers = sum(b.nbytes for b in model.buffers())

    def total(category: Category) -> int:
        return sum(
            size
            for size, sorted_into in zip(traced.sizes, traced.categories, strict=True)
            if sorted_into is category
        )

    assert total(Category.PARAMETERS) == parameters + buffers
    assert total(Category.GRADIENTS) == 2 * parameters  # once in each of the two steps
    steps = 4 * len(list(model.parameters()))  # AdamW counts its steps in one scalar per parameter
    assert total(Category.OPTIMIZER_STATE) == 2 * parameters + steps
    assert total(Category.INPUTS) == 2 * (2 * 32 * 8 + 2 * 32 * 8 + 2 * 8)


@small
def test_the_peak_by_category_adds_up() -> None:
    peak, categories = trace(small_workload("gpt2"), 2, None).peak_by_category()
    assert sum(categories.values()) == peak
    assert all(size >= 0 for size in categories.values())


def phase_of(traced: Trace, index: int) -> int:
    return bisect_right([begin for begin, _ in traced.phases], index)


@small
@pytest.mark.parametrize("checkpointing", [False, True])
def test_temporaries_die_in_their_phase_and_activations_do_not(
    checkpointing: bool,
) -> None:
    traced = trace(small_workload("bert", gradient_checkpointing=checkpointing), 2, None)
    made: dict[int, int] = {}
    seen = set()
    for index, (kind, tensor) in enumerate(traced.events):
        if kind == ALLOCATE:
            made[tensor] = phase_of(traced, index)
        elif traced.categories[tensor] in (Category.ACTIVATIONS, Category.TEMPORARIES):
            same = made[tensor] == phase_of(traced, index)
            assert same == (traced.categories[tensor] is Category.TEMPORARIES)
            seen.add(traced.categories[tensor])
    assert len(seen) == 2


@small
@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "bf16-true"])
def test_only_autocast_copies_weights(precision: str) -> None:
    workload = small_workload("bert", precision=precision)
    traced = trace(workload, 2, None)
    copied = [
        module
        for module, category in zip(traced.modules, traced.categories, strict=True)
        if category is Category.CASTS
    ]
    linear = [
        name
        for name, module in build_model(workload).named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    # A weight and a bias of each layer, in each of the two steps.
    assert sorted(copied) == sorted(linear * 4 if precision == "bf16-mixed" else [])


@small
@pytest.mark.parametrize("checkpointing", [False, True])
def test_each_tensor_has_its_module_in_forward_and_in_backward(
    checkpointing: bool,
) -> None:
    workload = small_workload("bert", gradient_checkpointing=checkpointing)
    traced = trace(workload, 2, cuda_behaviour(8.6))
    names = {name for name, _ in build_model(workload).named_modules()}
    assert set(traced.modules) <= names
    by_operator: dict[str, set[str]] = {}
    for module, maker in zip(traced.modules, traced.makers, strict=True):
        by_operator.setdefault(maker, set()).add(module)
    activations = {f"bert.encoder.layer.{n}.intermediate.intermediate_act_fn" for n in (0, 1)}
    assert by_operator["aten.gelu"] == by_operator["aten.gelu_backward"] == activations
    words = {"bert.embeddings.word_embeddings"}
    assert words < by_operator["aten.embedding_dense_backward"]
    assert "aten._scaled_dot_product_efficient_attention" in by_operator


@small
def test_a_parameter_its_gradient_and_its_state_have_its_module() -> None:
    workload = small_workload("gpt2")
    traced = trace(workload, 2, None)
    model = build_model(workload)
    owners = sorted(name.rpartition(".")[0] for name, _ in model.named_parameters())

    def named(category: Category) -> list[str]:
        pairs = zip(traced.modules, traced.categories, strict=True)
        return sorted(module for module, sorted_into in pairs if sorted_into is category)

    assert named(Category.GRADIENTS) == sorted(owners * 2)
    assert named(Category.OPTIMIZER_STATE) == sorted(owners * 3)
    assert set(named(Category.PARAMETERS)) >= set(owners)


@pytest.mark.longer
@small
def test_phases_come_in_order() -> None:
    traced = trace(small_workload("bert", gradient_accumulation=2), 2, None)
    micro = ["inputs", "forward", "backward"]
    step = [*micro, *micro, "optimizer", "idle"]
    assert [name for _, name in traced.phases] == ["idle", *step, *step]
    begins = [index for index, _ in traced.phases]
    assert begins == sorted(begins)
    assert (traced.last_step, "inputs") in traced.phases


@pytest.mark.slow
@small
@pytest.mark.parametrize("optimizer", ["lion", pytest.param("adafactor", marks=pytest.mark.slow)])
def test_operations_have_their_phase_with_any_optimizer(optimizer: str) -> None:
    plain, accumulated = (
        Counter(
            operation.phase
            for operation in trace(
                small_workload("bert", optimizer=optimizer, gradient_accumulation=micro_batches),
                2,
                None,
            ).operations
        )
        for micro_batches in (1, 2)
    )
    assert set(plain) == {"inputs", "forward", "backward", "optimizer"}
    for phase in ("inputs", "forward"):
        assert accumulated[phase] == 2 * plain[phase]
    assert accumulated["backward"] > 2 * plain["backward"]  # the second adds to its gradients
    assert accumulated["optimizer"] == plain["optimizer"]


@small
def test_8bit_adamw_moves_fewer_bytes_than_adamw() -> None:
    workload = small_workload("bert", optimizer="adamw-8bit")
    model = build_model(workload)
    sizes = [parameter.numel() for parameter in model.parameters()]
    # Reads weight, gradient and both moments, writes all but the gradient. A moment is a byte with
    # a scale of 4 to each 256, or 4 bytes where there are fewer than 4,096.
    moments = [2 * (n + 4 * -(-n // 256)) if n >= 4096 else 8 * n for n in sizes]
    updates = [op for op in trace(workload, 2, None).operations if op.phase == "optimizer"]
    assert {op.name for op in updates} == {"memorymark.adamw_8bit_"}
    assert [op.bytes_moved for op in updates] == [
        12 * n + 2 * kept for n, kept in zip(sizes, moments, strict=True)
    ]


def by_hand(batch_size: int, name: str = "aten.mm") -> Trace:
    return Trace(
        batch_size=batch_size,
        events=[(ALLOCATE, 0), (ALLOCATE, 1), (FREE, 1)],
        sizes=[100, 7 * batch_size + 3],
        categories=[Category.PARAMETERS, Category.ACTIVATIONS],
        last_step=1,
        operations=[Operation(name, "float32", 10 * batch_size, 4 * batch_size + 8, "forward")],
    )


def test_traces_far_apart_give_the_sizes_in_between() -> None:
    assert AffineTrace(by_hand(2), by_hand(10)).at(5) == by_hand(5)


def test_traces_of_different_steps_are_refused() -> None:
    with pytest.raises(NotAffine, match="not alike at batch 2 and 3"):
        AffineTrace(by_hand(2), by_hand(3, name="aten.bmm"))
