"""Our own optimizers take the memory of the packages that people install, to the byte."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch

from engine.step.batches import make_batch
from engine.step.optimizers.adam_mini import adam_mini
from engine.step.optimizers.low_rank import (
    ApolloAdamW,
    GaLoreAdamW,
    GaLoreAdamW8bit,
    projected_weights,
)
from engine.step.optimizers.schedule_free import ScheduleFreeAdamW
from engine.step.optimizers.shampoo import Shampoo
from engine.step.optimizers.soap import Soap
from engine.step.training import TrainingState, build_model, prepare, training_step
from engine.tests.shared import small_workload
from engine.tracing.recorder import MemoryRecorder
from engine.tracing.trace import Category, Trace

pytestmark = pytest.mark.usefixtures("small_models")

STEPS = 3
RATE = 1e-3
Make = Callable[[TrainingState], torch.optim.Optimizer]


def trained(model: str, precision: str, make: Make) -> tuple[Trace, list[torch.Tensor]]:
    """Record of real steps on the CPU, and the parameters that they lead to."""
    torch.manual_seed(0)
    workload = small_workload(model, mode="eval", optimizer="none", precision=precision)
    training = prepare(workload, build_model(workload))
    training.optimizer = make(training)
    recorder = MemoryRecorder(training, 2)
    batch = make_batch(workload, 2)
    for _ in range(STEPS):
        recorder.record_step(lambda: training_step(training, batch))
    return recorder.trace, [parameter.detach() for parameter in training.model.parameters()]


def assert_same(
    model: str, own: Make, published: Make, precision: str = "fp32", *, is_random: bool = False
) -> None:
    (ours, reached), (theirs, expected) = (
        trained(model, precision, make) for make in (own, published)
    )
    assert ours.peak_by_category() == theirs.peak_by_category()
    assert state_bytes(ours) == state_bytes(theirs)
    if is_random:
        return
    torch.testing.assert_close(reached, expected, rtol=1e-4, atol=1e-6)


def state_bytes(trace: Trace) -> int:
    """Bytes of the state that the last step leaves behind."""
    alive: set[int] = set()
    for _, tensor in trace.events:
        alive ^= {tensor}
    kept = (one for one in alive if trace.categories[one] is Category.OPTIMIZER_STATE)
    return sum(trace.sizes[one] for one in kept)


def parameters(training: TrainingState) -> list[torch.nn.Parameter]:
    return list(training.model.parameters())


@pytest.mark.parametrize("model", ["bert", "gpt2", "resnet"])
def test_schedule_free_adamw_is_that_of_schedulefree(model: str) -> None:
    package: Any = pytest.importorskip("schedulefree")

    def published(training: TrainingState) -> torch.optim.Optimizer:
        optimizer = package.AdamWScheduleFree(parameters(training), lr=RATE)
        optimizer.train()
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, lambda t: ScheduleFreeAdamW(parameters(t), lr=RATE), published)


@pytest.mark.parametrize(("model", "heads", "kv"), [("gpt2", 4, 4), ("mistral-7b", 4, 2)])
def test_adam_mini_is_that_of_adam_mini(model: str, heads: int, kv: int) -> None:
    package: Any = pytest.importorskip("adam_mini")

    def published(training: TrainingState) -> torch.optim.Optimizer:
        named = training.model.named_parameters()
        sizes = {"dim": 64, "n_heads": heads, "n_kv_heads": kv}
        optimizer = package.Adam_mini(named, lr=RATE, verbose=False, **sizes)
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, lambda t: adam_mini(t.model, lr=RATE), published)


def low_rank_groups(training: TrainingState, **settings: Any) -> list[dict[str, Any]]:
    """The groups of those packages: what is projected comes last."""
    projected = projected_weights(training.model)
    known = {id(parameter) for parameter in projected}
    others = [parameter for parameter in parameters(training) if id(parameter) not in known]
    return [{"params": others}, {"params": projected, "update_proj_gap": 1, **settings}]


@pytest.mark.parametrize(
    ("model", "precision", "rank"),
    [("bert", "fp32", 8), ("mistral-7b", "bf16-true", 8), ("mistral-7b", "fp32", 500)],
)
def test_galore_is_that_of_galore_torch(model: str, precision: str, rank: int) -> None:
    package: Any = pytest.importorskip("galore_torch.adamw")
    settings = {"rank": rank, "scale": 0.25, "proj_type": "std"}

    def own(training: TrainingState) -> torch.optim.Optimizer:
        others, projected = (group["params"] for group in low_rank_groups(training))
        return GaLoreAdamW(others, projected, RATE, rank=rank, refresh_every=1)

    def published(training: TrainingState) -> torch.optim.Optimizer:
        groups = low_rank_groups(training, **settings)
        optimizer = package.AdamW(groups, lr=RATE, no_deprecation_warning=True)
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, own, published, precision)


@pytest.mark.parametrize(
    ("model", "precision", "rank"), [("bert", "fp32", 8), ("mistral-7b", "bf16-true", 64)]
)
def test_8bit_galore_is_that_of_galore_torch(
    model: str, precision: str, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = pytest.importorskip("galore_torch.adamw8bit")
    of_moments: Any = pytest.importorskip("bitsandbytes").optim.AdamW8bit
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    settings = {"rank": rank, "scale": 0.25, "proj_type": "std"}
    plain = {"lr": RATE, "weight_decay": 0.0}

    def own(training: TrainingState) -> torch.optim.Optimizer:
        others, projected = (group["params"] for group in low_rank_groups(training))
        rank_ = {"rank": rank, "refresh_every": 1}
        return GaLoreAdamW8bit(
            others, projected, RATE, moments=partial(of_moments, **plain), **rank_
        )

    def published(training: TrainingState) -> torch.optim.Optimizer:
        optimizer = package.AdamW8bit(low_rank_groups(training, **settings), **plain)
        optimizer.args.max_unorm, optimizer.args.skip_zeros = 0.0, False  # meant for older versions
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, own, published, precision)


@pytest.mark.parametrize(
    ("model", "precision", "rank"), [("bert", "fp32", 8), ("mistral-7b", "bf16-true", 1)]
)
def test_apollo_is_that_of_apollo_torch(model: str, precision: str, rank: int) -> None:
    package: Any = pytest.importorskip("apollo_torch.apollo")
    settings = {"rank": rank, "proj_type": "std", "proj": "random"}
    settings |= {"scale": 128.0, "scale_type": "tensor"} if rank == 1 else {}
    settings |= {} if rank == 1 else {"scale": 1.0, "scale_type": "channel"}

    def own(training: TrainingState) -> torch.optim.Optimizer:
        others, projected = (group["params"] for group in low_rank_groups(training))
        return ApolloAdamW(others, projected, RATE, rank=rank, refresh_every=1)

    def published(training: TrainingState) -> torch.optim.Optimizer:
        optimizer = package.AdamW(low_rank_groups(training, **settings), lr=RATE)
        return cast(torch.optim.Optimizer, optimizer)

    assert_same(model, own, published, precision, is_random=True)


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        pytest.param(model, precision, marks=() if model == "bert" else pytest.mark.slow)
        for model, precision in (("bert", "fp32"), ("gpt2", "bf16-true"), ("resnet", "fp32"))
    ],
)
@pytest.mark.parametrize("name", ["SOAP", "ScalableShampoo"])
def test_preconditioned_ones_are_those_of_pytorch_optimizer(
    name: str, model: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    package: Any = pytest.importorskip("pytorch_optimizer")
    roots = importlib.import_module("pytorch_optimizer.optimizer.utils.preconditioner")
    # In inference mode, a recorder does not see what is made within composite operators.
    seen = inspect.unwrap(roots.compute_power_schur_newton)
    monkeypatch.setattr(roots, "compute_power_schur_newton", seen)
    monkeypatch.setattr(torch.linalg, "eigh", _eigenvectors)
    every = "precondition_frequency" if name == "SOAP" else "preconditioning_compute_steps"
    kind: Any = Soap if name == "SOAP" else Shampoo
    refresh_every = 1 if name == "SOAP" else 2

    def own(training: TrainingState) -> torch.optim.Optimizer:
        made = kind(parameters(training), lr=RATE, refresh_every=refresh_every)
        return cast(torch.optim.Optimizer, made)

    def published(training: TrainingState) -> torch.optim.Optimizer:
        optimizer = getattr(package, name)
        made = optimizer(parameters(training), lr=RATE, **{every: refresh_every})
        return cast(torch.optim.Optimizer, made)

    assert_same(model, own, published, precision)


def _eigenvectors(matrix: torch.Tensor, decompose: Any = torch.linalg.eigh) -> Any:
    """As PyTorch's; what it refuses does not stay alive in the frames of a recorder."""
    if matrix.dtype is torch.bfloat16:
        del matrix
        raise RuntimeError
    return decompose(matrix)
