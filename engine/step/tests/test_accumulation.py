"""Gradients that add up, as the engine of autograd does it where nobody looks."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import embedding

from engine.tracing.recorder import MemoryRecorder

ROWS, WIDTH = 64, 8
TABLE = 4 * ROWS * WIDTH
"""Bytes of a shared table of embeddings, and of each gradient of it."""


class _Shared(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(ROWS, WIDTH))


def _peak(loss: Callable[[torch.Tensor], torch.Tensor]) -> int:
    """Gradients of the table that are alive at once while a loss runs backward."""
    with FakeTensorMode():
        model = _Shared()
        training = SimpleNamespace(model=model, optimizer=None, phase="backward")
        recorder = MemoryRecorder(training, 1)
        recorder.record_step(lambda: loss(model.table).backward())
    live = peak = 0
    sizes = recorder.trace.sizes
    for kind, tensor in recorder.trace.events:
        live += (-1 if kind else 1) * (sizes[tensor] == TABLE)
        peak = max(peak, live)
    return peak - 1  # the table itself


def _read(table: torch.Tensor) -> torch.Tensor:
    return embedding(torch.zeros(3, dtype=torch.long), table)


def _read_often(times: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda table: torch.stack([_read(table).sum() for _ in range(times)]).sum()


@pytest.mark.parametrize("times", [2, 3, 5])
def test_passes_through_one_embedding_add_up_in_place(times: int) -> None:
    assert _peak(_read_often(times)) == 2


def test_one_pass_makes_one_gradient() -> None:
    assert _peak(_read_often(1)) == 1


def test_what_somebody_else_holds_is_not_written_to() -> None:
    kept: list[torch.Tensor] = []

    def loss(table: torch.Tensor) -> torch.Tensor:
        first = table.clone()
        first.register_hook(kept.append)
        return first.sin().sum() + table.clone().sin().sum()

    assert _peak(loss) > _peak(lambda table: table.clone().sum() + table.clone().sum())
    assert len(kept) == 1


def test_additions_of_the_forward_pass_make_new_tensors() -> None:
    with FakeTensorMode():
        model = _Shared()
        training = SimpleNamespace(model=model, optimizer=None, phase="forward")
        recorder = MemoryRecorder(training, 1)
        with recorder.recording():
            _ = model.table + model.table
    assert recorder.trace.makers.count("aten.add") == 1


def test_state_that_an_optimizer_makes_at_once_is_counted() -> None:
    with FakeTensorMode():
        model = _Shared()
        optimizer = torch.optim.Adagrad(model.parameters(), foreach=True)
        training = SimpleNamespace(model=model, optimizer=optimizer, phase="idle")
        recorder = MemoryRecorder(training, 1)
    assert recorder.trace.sizes.count(TABLE) == 2
