"""Makes the optimizer of a workload."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...core.optimizers import Optimizer
from ...interface.workload import Workload
from .adam_mini import adam_mini
from .bitsandbytes_adamw import AdamWLayout, bitsandbytes_adamw
from .in_backward import InBackward, Make
from .lion import Lion
from .low_rank import ApolloAdamW, GaLoreAdamW, GaLoreAdamW8bit, LowRankAdamW, projected_weights
from .muon import muon_with_adamw
from .on_host import OnHost, torchao_optimizer
from .schedule_free import ScheduleFreeAdamW
from .shampoo import Shampoo
from .soap import Soap

_LEARNING_RATE = 1e-5
_TRACED_ITERATIONS = 2
"""Traced iterations of Shampoo's inverse roots, each of which takes the same memory."""

Parameters = list[torch.nn.Parameter]


def make_optimizer(
    workload: Workload, model: torch.nn.Module, *, predicting: bool
) -> torch.optim.Optimizer | None:
    """The optimizer of a workload, over the trainable parameters.

    ``foreach`` is PyTorch's default on CUDA; set explicitly, it applies on every device.

    Args:
        workload: Says which one; ``none`` gives ``None``.
        model: Its trainable parameters are updated.
        predicting: Whether the step is only traced.

    Raises:
        EngineError: If the optimizer needs a package that is not installed.
        InvalidInput: If it has no parameter to update.
    """
    if workload.optimizer is Optimizer.NONE:
        return None
    if workload.optimizer is Optimizer.MUON:
        return muon_with_adamw(model, lr=_LEARNING_RATE)
    if workload.optimizer is Optimizer.ADAM_MINI:
        return adam_mini(model, lr=_LEARNING_RATE)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if workload.optimizer.spec.rank is not None:
        make = _low_rank(workload, model, predicting=predicting)
    else:
        make = _maker(workload.optimizer, predicting=predicting)
    if workload.optimizer_offload:
        if not predicting:
            return torchao_optimizer(parameters, lr=_LEARNING_RATE)  # type: ignore[no-any-return]
        return OnHost(parameters, make)
    return InBackward(parameters, make) if workload.optimizer_in_backward else make(parameters)


def _maker(optimizer: Optimizer, *, predicting: bool) -> Make:
    return (_MAKERS if predicting else _MAKERS | _RUN)[optimizer]


def _low_rank(workload: Workload, model: torch.nn.Module, *, predicting: bool) -> Make:
    """Makes the optimizer of some parameters of a model, of which it projects those in blocks."""
    kind: Callable[..., LowRankAdamW] = _LOW_RANK_MAKERS[workload.optimizer]
    if workload.optimizer is Optimizer.GALORE_8BIT:
        kind = partial(kind, moments=_maker(Optimizer.ADAMW_8BIT, predicting=predicting))
    rank = workload.optimizer_rank or workload.optimizer.spec.rank
    targets = {id(parameter) for parameter in projected_weights(model)}

    def make(parameters: Parameters) -> torch.optim.Optimizer:
        projected = [one for one in parameters if id(one) in targets]
        others = [one for one in parameters if id(one) not in targets]
        return kind(others, projected, lr=_LEARNING_RATE, rank=rank)

    return make


def _adafactor(parameters: Parameters) -> Any:
    """As the Trainer sets it up: with a given learning rate."""
    from transformers.optimization import Adafactor  # loads peft and is rarely needed

    return Adafactor(parameters, lr=_LEARNING_RATE, scale_parameter=False, relative_step=False)


_LOW_RANK_MAKERS: dict[Optimizer, type[LowRankAdamW]] = {
    Optimizer.GALORE: GaLoreAdamW,
    Optimizer.GALORE_8BIT: GaLoreAdamW8bit,
    Optimizer.APOLLO: ApolloAdamW,
}

_MAKERS: dict[Optimizer, Make] = {
    Optimizer.SGD: lambda p: torch.optim.SGD(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.SGD_MOMENTUM: lambda p: torch.optim.SGD(
        p, lr=_LEARNING_RATE, momentum=0.9, foreach=True
    ),
    # Fused is the Hugging Face Trainer's default since PyTorch 2.8.
    Optimizer.ADAMW: lambda p: torch.optim.AdamW(p, lr=_LEARNING_RATE, fused=True),
    Optimizer.ADAMW_FOREACH: lambda p: torch.optim.AdamW(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.ADAMW_8BIT: lambda p: AdamWLayout(p, lr=_LEARNING_RATE, bits=8),
    Optimizer.PAGED_ADAMW: lambda p: AdamWLayout(p, lr=_LEARNING_RATE, bits=32, is_paged=True),
    Optimizer.PAGED_ADAMW_8BIT: lambda p: AdamWLayout(p, lr=_LEARNING_RATE, bits=8, is_paged=True),
    Optimizer.ADAFACTOR: _adafactor,
    Optimizer.SCHEDULE_FREE_ADAMW: lambda p: ScheduleFreeAdamW(p, lr=_LEARNING_RATE),
    Optimizer.SOAP: lambda p: Soap(p, lr=_LEARNING_RATE),
    Optimizer.SHAMPOO: lambda p: Shampoo(p, lr=_LEARNING_RATE, iterations=_TRACED_ITERATIONS),
    Optimizer.LION: lambda p: Lion(p, lr=_LEARNING_RATE),
    Optimizer.RMSPROP: lambda p: torch.optim.RMSprop(p, lr=_LEARNING_RATE, foreach=True),
    Optimizer.ADAGRAD: lambda p: torch.optim.Adagrad(p, lr=_LEARNING_RATE, foreach=True),
}

_RUN: dict[Optimizer, Make] = {
    optimizer: partial(bitsandbytes_adamw, optimizer, lr=_LEARNING_RATE)
    for optimizer in Optimizer
    if optimizer.spec.bitsandbytes and optimizer in _MAKERS
} | {Optimizer.SHAMPOO: lambda p: Shampoo(p, lr=_LEARNING_RATE)}
"""Real optimizers whose steps are predicted by their layout alone, or without a look at values."""
