from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from engine.choices import Optimizer
from engine.errors import EngineError, InvalidInput
from engine.step.batches import make_batch
from engine.step.optimizers import make_optimizer
from engine.step.optimizers.bitsandbytes_adamw import AdamW8bitLayout
from engine.step.optimizers.lion import Lion
from engine.step.training import build_model, prepare, training_step
from engine.tests.conftest import small_workload
from engine.workload import Workload

REAL = [o for o in Optimizer if o not in (Optimizer.NONE, Optimizer.ADAMW_8BIT)]


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("optimizer", REAL)
def test_every_optimizer_trains(optimizer: Optimizer) -> None:
    workload = small_workload("bert", optimizer=optimizer, mode="eval")
    training = prepare(workload, build_model(workload))
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
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
    optimizer = AdamW8bitLayout([large, small], lr=1.0)
    large.grad, small.grad = torch.ones_like(large), torch.ones_like(small)
    optimizer.step()
    optimizer.step()
    kept = sum(tensor.nbytes for tensor in optimizer.state[large].values())
    assert kept == 2 * (5000 + 4 * 20)  # 20 blocks of 256
    assert sum(tensor.nbytes for tensor in optimizer.state[small].values()) == 2 * 4 * 4095


def test_8bit_adamw_is_only_measured_with_bitsandbytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    workload = Workload("bert", optimizer=Optimizer.ADAMW_8BIT)
    with pytest.raises(EngineError, match="pip install bitsandbytes"):
        make_optimizer(workload, torch.nn.Linear(1, 1), predicting=False)


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
