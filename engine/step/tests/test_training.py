from __future__ import annotations

import pytest
import torch

from engine.step.batches import make_batch
from engine.step.training import TrainingState, build_model, forward_pass, prepare, training_step
from engine.tests.shared import small_workload

pytestmark = pytest.mark.usefixtures("small_models")

MODELS = ["bert", "gpt2", "resnet"]


def ready(model: str, **fields: object) -> TrainingState:
    workload = small_workload(model, **fields)
    return prepare(workload, build_model(workload))


def weights(training: TrainingState) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in training.model.parameters()])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", ["sgd", "sgd-momentum", "adamw"])
def test_a_step_changes_the_weights(model: str, optimizer: str) -> None:
    training = ready(model, optimizer=optimizer)
    before = weights(training).clone()
    training_step(training, make_batch(small_workload(model), 2))
    assert not torch.equal(before, weights(training))


@pytest.mark.parametrize("model", MODELS)
def test_without_an_optimizer_a_step_still_runs_backward(model: str) -> None:
    training = ready(model, optimizer="none")
    seen: list[torch.Size] = []
    for parameter in training.model.parameters():
        parameter.register_hook(lambda gradient: seen.append(gradient.shape))
    before = weights(training).clone()
    training_step(training, make_batch(small_workload(model), 2))
    assert len(seen) == len(list(training.model.parameters()))
    assert torch.equal(before, weights(training))


def test_a_step_leaves_no_gradients_behind() -> None:
    training = ready("bert")
    training_step(training, make_batch(small_workload("bert"), 2))
    assert all(parameter.grad is None for parameter in training.model.parameters())


@pytest.mark.parametrize("precision", ["fp32", "bf16-mixed", "fp16-mixed", "bf16-true"])
def test_parameters_are_kept_in_the_precisions_format(precision: str) -> None:
    kept = {parameter.dtype for parameter in ready("gpt2", precision=precision).model.parameters()}
    assert kept == {torch.bfloat16 if precision == "bf16-true" else torch.float32}


def test_only_fp16_scales_its_gradients() -> None:
    assert ready("bert", precision="fp16-mixed").scaler.is_enabled()
    assert not ready("bert", precision="bf16-mixed").scaler.is_enabled()


def test_the_mode_only_affects_dropout() -> None:
    assert ready("bert", mode="train").model.training
    assert not ready("bert", mode="eval").model.training


def test_a_failed_step_names_its_phase() -> None:
    training = ready("bert")
    assert training.phase == "idle"

    def fail(gradient: torch.Tensor) -> None:
        raise ArithmeticError

    next(training.model.parameters()).register_hook(fail)
    with pytest.raises(ArithmeticError):
        training_step(training, make_batch(small_workload("bert"), 2))
    assert training.phase == "backward"


def test_the_forward_pass_alone_keeps_no_graph() -> None:
    training = ready("bert")
    forward_pass(training, make_batch(small_workload("bert"), 2))
    assert all(parameter.grad is None for parameter in training.model.parameters())
