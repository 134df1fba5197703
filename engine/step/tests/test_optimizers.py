from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from engine.core.errors import EngineError, InvalidInput
from engine.core.optimizers import Optimizer
from engine.interface.workload import Workload
from engine.step.batches import make_batch
from engine.step.optimizers import make_optimizer, refresh_caveats
from engine.step.optimizers.bitsandbytes_adamw import AdamWLayout, paged_caveats
from engine.step.optimizers.lion import Lion
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import slow, small_workload
from engine.traces.tracer import trace
from engine.tracing.operations import tensors_in
from engine.tracing.trace import Category

OF_BITSANDBYTES = (
    Optimizer.ADAMW_8BIT,
    Optimizer.PAGED_ADAMW,
    Optimizer.PAGED_ADAMW_8BIT,
    Optimizer.GALORE_8BIT,
)
PROJECTING = [o for o in Optimizer if o.spec.rank is not None]
REAL = [o for o in Optimizer if o not in (Optimizer.NONE, *OF_BITSANDBYTES)]


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("optimizer", [slow(one) if one is Optimizer.SOAP else one for one in REAL])
def test_every_optimizer_trains(optimizer: Optimizer) -> None:
    model = "bert" if optimizer in PROJECTING else "gpt2"  # whose layers are no nn.Linear
    workload = small_workload(model, optimizer=optimizer, mode="eval")
    training = prepare(workload, build_model(workload))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    for _ in range(2 if optimizer is Optimizer.SOAP else 1):  # its first only makes its state
        training_step(training, make_batch(workload, 2))
    after = training.model.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_lion_moves_by_the_sign_and_keeps_one_buffer() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = Lion([parameter], lr=0.5)
    parameter.grad = torch.tensor([2.0, -0.001, 0.0])
    optimizer.step()
    assert parameter.tolist() == [-0.5, 0.5, 0.0]
    assert list(optimizer.state[parameter]) == ["exp_avg"]
    assert optimizer.state[parameter]["exp_avg"].tolist() == pytest.approx([0.02, -1e-5, 0.0])


def test_8bit_adamw_keeps_a_byte_per_value_and_a_scale_per_block() -> None:
    large = torch.nn.Parameter(torch.zeros(5000))
    small = torch.nn.Parameter(torch.zeros(4095))
    optimizer = AdamWLayout([large, small], lr=1.0, bits=8)
    large.grad, small.grad = torch.ones_like(large), torch.ones_like(small)
    optimizer.step()
    optimizer.step()
    kept = sum(tensor.nbytes for tensor in tensors_in(optimizer.state[large]))
    assert kept == 2 * (5000 + 4 * 20)  # 20 blocks of 256
    assert sum(tensor.nbytes for tensor in tensors_in(optimizer.state[small])) == 2 * 4 * 4095


@pytest.mark.parametrize(
    ("bits", "counted", "moved"), [(8, 2 * 4 * 400, 2 * 102_400), (32, 0, 2 * 4 * 102_400)]
)
def test_what_is_paged_is_not_the_allocators(bits: int, counted: int, moved: int) -> None:
    large = torch.nn.Parameter(torch.zeros(102_400))
    small = torch.nn.Parameter(torch.zeros(99_999))
    optimizer = AdamWLayout([large, small], lr=1.0, bits=bits, is_paged=True)
    plain = AdamWLayout([small], lr=1.0, bits=bits)
    large.grad, small.grad = torch.ones_like(large), torch.ones_like(small)
    for one in (optimizer, plain):
        one.step()
    assert sum(tensor.nbytes for tensor in tensors_in(optimizer.state[large])) == counted
    assert optimizer.state[large]["paged_bytes"] == moved
    assert optimizer.state[small]["paged_bytes"] == 0
    kept = [
        sum(tensor.nbytes for tensor in tensors_in(one.state[small])) for one in (optimizer, plain)
    ]
    assert kept[0] == kept[1] > 0


@pytest.mark.longer
@pytest.mark.parametrize(
    ("paged", "plain", "share"),
    [
        ("paged-adamw-8bit", "adamw-8bit", 1),
        ("paged-adamw", "adamw", 7 / 8),  # PyTorch's says that it writes gradients too
    ],
)
def test_a_paged_state_is_read_and_written_and_takes_no_memory(
    paged: str, plain: str, share: float
) -> None:
    config = {"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 5000}
    steps = [
        trace(Workload("own", config=config, optimizer=one, sequence_length=2), 1, None)  # type: ignore[arg-type]  # as text
        for one in (paged, plain)
    ]
    states = [one.peak_by_category()[1][Category.OPTIMIZER_STATE] for one in steps]
    assert states[0] < states[1]
    moved = [
        sum(one.bytes_moved for one in step.operations if one.phase == "optimizer")
        for step in steps
    ]
    assert moved[0] == pytest.approx(share * moved[1], rel=0.01)


def test_a_paged_optimizer_says_where_its_state_is() -> None:
    (caveat,) = paged_caveats(Workload("bert", optimizer=Optimizer.PAGED_ADAMW_8BIT))
    assert "2 bytes" in caveat
    assert "managed memory" in caveat
    assert not paged_caveats(Workload("bert"))


@pytest.mark.parametrize("optimizer", OF_BITSANDBYTES)
def test_the_optimizers_of_bitsandbytes_are_only_measured_with_it(
    optimizer: Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    workload = Workload("bert", optimizer=optimizer)
    blocks = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(1, 1))))
    with pytest.raises(EngineError, match="pip install bitsandbytes"):
        make_optimizer(workload, blocks, predicting=False)


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("in_backward", [False, True])
def test_8bit_galore_keeps_moments_of_the_projected_size(in_backward: bool) -> None:
    workload = small_workload(
        "mistral-7b",
        optimizer="galore-8bit",
        optimizer_rank=64,
        optimizer_in_backward=in_backward,
        precision="bf16-true",
    )
    training = prepare(workload, build_model(workload, predicting=True), predicting=True)
    for _ in range(2):
        training_step(training, make_batch(workload, 2))
    assert training.optimizer is not None
    for weight, state in training.optimizer.state.items():
        rows, columns = weight.shape if weight.ndim == 2 else (1, weight.numel())
        is_projected = "projection" in state
        count = max(rows, columns) * min(rows, columns, 64) if is_projected else rows * columns
        kept = sum(one.nbytes for one in tensors_in(state["moments"]))
        assert kept == (2 * (count + 4 * -(-count // 256)) if count >= 4096 else 8 * count)
        assert weight.grad is None


def test_frozen_parameters_get_no_state() -> None:
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    optimizer = make_optimizer(Workload("bert", optimizer=Optimizer.SGD), layer, predicting=False)
    assert optimizer is not None
    assert optimizer.param_groups[0]["params"] == [layer.weight]


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("model", "apart"),
    [
        ("bert", ["embeddings", "classifier", "norm", "bias"]),
        ("gpt2", ["wte", "wpe", "ln_", "bias"]),
        ("mistral-7b", ["embed_tokens", "lm_head", "norm"]),
        ("t5-small", ["shared", "relative_attention_bias", "layer_norm"]),
        ("qwen3-30b-a3b", ["embed_tokens", "lm_head", "norm", "experts"]),
    ],
)
def test_muon_trains_hidden_matrices_alone(model: str, apart: list[str]) -> None:
    workload = small_workload(model, optimizer="muon")
    built = build_model(workload)
    optimizer = make_optimizer(workload, built, predicting=False)
    assert optimizer is not None
    muon, *others = optimizer.param_groups
    by_muon = {id(parameter) for parameter in muon["params"]}
    by_adamw = {id(parameter) for group in others for parameter in group["params"]}
    for name, parameter in built.named_parameters():
        is_apart = any(part in name.lower() for part in apart)
        assert (id(parameter) in by_adamw) == is_apart, name
        assert (id(parameter) in by_muon) != is_apart, name


@pytest.mark.usefixtures("small_models")
def test_muon_trains_the_matrices_of_adapters() -> None:
    workload = small_workload("mistral-7b", lora_rank=4, optimizer="muon")
    optimizer = make_optimizer(workload, build_model(workload), predicting=False)
    assert isinstance(optimizer, torch.optim.Muon)
    (group,) = optimizer.param_groups
    assert len(group["params"]) == 2 * 2 * 7  # two matrices, two blocks, seven layers


@pytest.mark.usefixtures("small_models")
def test_muon_needs_matrices() -> None:
    with pytest.raises(InvalidInput, match="matrices"):
        prepare(workload := small_workload("resnet", optimizer="muon"), build_model(workload))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("optimizer", ["adamw", "sgd-momentum", "adafactor"])
def test_an_optimizer_in_backward_reaches_the_same_weights(optimizer: str) -> None:
    reached = []
    for in_backward in (False, True):
        torch.manual_seed(0)
        fields = {"optimizer": optimizer, "optimizer_in_backward": in_backward}
        workload = small_workload("bert", mode="eval", **fields)
        training = prepare(workload, build_model(workload))
        for _ in range(2):
            training_step(training, make_batch(workload, 2))
        reached.append(list(training.model.parameters()))
        assert all(parameter.grad is None for parameter in reached[-1])
    assert all(torch.equal(one, other) for one, other in zip(*reached, strict=True))


@pytest.mark.parametrize(
    "fields",
    [
        {"optimizer": "none"},
        {"optimizer": "muon"},
        {"gradient_accumulation": 2},
        {"precision": "fp16-mixed"},
        {"parallelism": "ddp", "world_size": 2},
    ],
    ids=str,
)
def test_an_optimizer_in_backward_needs_gradients_one_by_one(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload("bert", optimizer_in_backward=True, **fields)
    assert list(raised.value.fields) == ["optimizer_in_backward"]


@pytest.mark.usefixtures("small_models")
def test_adam_mini_refuses_what_it_has_no_rows_for() -> None:
    workload = small_workload("bert", optimizer="adam-mini")
    with pytest.raises(InvalidInput, match=r"embeddings.layernorm.weight is not a matrix"):
        prepare(workload, build_model(workload))


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("optimizer", PROJECTING)
def test_linear_layers_of_blocks_are_projected(optimizer: Optimizer) -> None:
    workload = small_workload("mistral-7b", optimizer=optimizer)
    model = build_model(workload)
    made = make_optimizer(workload, model, predicting=True)
    assert made is not None
    others, projected = made.param_groups
    assert projected["rank"] == optimizer.spec.rank
    known = {id(parameter) for parameter in projected["params"]}
    for name, parameter in model.named_parameters():
        assert (id(parameter) in known) == ("proj" in name), name
    assert len(others["params"]) + len(known) == len(list(model.parameters()))


@pytest.mark.usefixtures("small_models")
def test_a_model_without_linear_layers_has_nothing_to_project() -> None:
    workload = small_workload("gpt2", optimizer="galore")
    with pytest.raises(InvalidInput, match=r"nn\.Linear"):
        prepare(workload, build_model(workload))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"optimizer": "galore", "lora_rank": 8}, "optimizer"),
        ({"optimizer": "apollo", "frozen_backbone": True}, "optimizer"),
        ({"optimizer_rank": 8}, "optimizer_rank"),
        ({"optimizer": "soap", "parallelism": "fsdp", "world_size": 2}, "optimizer"),
        ({"optimizer": "galore", "optimizer_offload": True}, "optimizer_offload"),
    ],
    ids=str,
)
def test_what_does_not_combine_with_projections_is_said(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        Workload("bert", **fields)
    assert list(raised.value.fields) == [field]


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("precision", ["fp32", "bf16-true"])
def test_galore_keeps_few_vectors_unless_gradients_are_in_fp32(precision: str) -> None:
    kept = {}
    for rank in (1, 8):
        workload = small_workload(
            "mistral-7b", optimizer="galore", optimizer_rank=rank, precision=precision
        )
        training = prepare(workload, build_model(workload))
        training_step(training, make_batch(workload, 2))
        assert training.optimizer is not None
        storages = {
            state["projection"].untyped_storage().nbytes()
            for state in training.optimizer.state.values()
            if "projection" in state
        }
        kept[rank] = max(storages)
    assert (kept[1] == kept[8]) == (precision == "fp32")


def test_a_decomposition_says_what_is_assumed_of_it() -> None:
    (caveat,) = refresh_caveats(Workload("bert", optimizer=Optimizer.SOAP))
    assert "cuSOLVER does not document" in caveat
    assert not refresh_caveats(Workload("bert", optimizer=Optimizer.APOLLO))
