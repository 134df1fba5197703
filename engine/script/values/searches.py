"""PyTorch's LBFGS in a script that is traced: the most that one of its steps can take.

It runs its closure until the loss is flat, ``max_iter`` times at most, and keeps two vectors as
large as all weights for each time, ``history_size`` pairs at most. Both depend on values. Its own
code runs on fake tensors; the history is full before its first step, and no condition on values
ends its loops.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import LBFGS, Optimizer

_FILE = inspect.getfile(LBFGS)
_SPARE = 2
"""Gradients that a line search keeps at most (two of its interval, the first, the one before and
the latest), less those three that it keeps while it goes on (``torch/optim/lbfgs.py``)."""


def begin_search(optimizer: Optimizer) -> None:
    """Give an optimizer on fake tensors the state that it has in the end, if it searches."""
    if not isinstance(optimizer, LBFGS):
        return
    (group,) = optimizer.param_groups
    weights: list[torch.Tensor] = group["params"]
    state = optimizer.state[weights[0]]
    if "old_dirs" in state or not isinstance(weights[0], FakeTensor):
        return
    numbers = sum((2 if p.is_complex() else 1) * p.numel() for p in weights)

    def vectors(count: int) -> list[torch.Tensor]:
        return [torch.empty(numbers, dtype=dtype, device=device) for _ in range(count)]

    def scalars(count: int) -> list[torch.Tensor]:
        return [torch.empty((), dtype=dtype, device=device) for _ in range(count)]

    device, size = weights[0].device, group["history_size"]
    dtype = torch.promote_types(weights[0].dtype.to_real(), weights[-1].dtype.to_real())
    state.update(
        func_evals=size, n_iter=size + 1, old_dirs=vectors(size), old_stps=vectors(size),
        ro=scalars(size), d=vectors(1)[0], t=group["lr"], H_diag=scalars(1)[0],
        prev_flat_grad=vectors(1)[0], prev_loss=0.0,
    )  # fmt: skip
    if group["line_search_fn"] is not None:
        state["spare"] = vectors(_SPARE)


def searches(file: str) -> bool:
    """Whether code in this file searches by values: each condition that would end it is false.

    So is that for keeping the latest pair of vectors: they are there besides a history that is
    full, which takes more than their place in it.
    """
    return file == _FILE


def assumed_of_searches(optimizers: Iterable[Optimizer]) -> list[str]:
    """Sentences about the most that an optimizer's search was taken to do."""
    return [_assumed(one) for one in optimizers if isinstance(one, LBFGS)]


def _assumed(optimizer: LBFGS) -> str:
    (group,) = optimizer.param_groups
    kept = 2 * group["history_size"] * sum(p.numel() * p.element_size() for p in group["params"])
    search = "" if group["line_search_fn"] is None else f", {group['max_eval']:,} with its search"
    return (
        f"LBFGS is assumed to run its closure as often as it may (max_iter={group['max_iter']:,}"
        f"{search}) and to keep its whole history (history_size={group['history_size']:,}, "
        f"{kept / 2**30:,.3f} GiB). Earlier steps, and those that end sooner, take less."
    )
