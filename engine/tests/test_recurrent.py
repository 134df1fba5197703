"""Recurrent networks on CUDA: cells are predicted, layers of cuDNN are refused in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.trace import CannotTrace, trace_script
from engine.tests.lowered import A10, BRAIN, saved
from engine.tests.scripts import ADAM, LINEAR, written

RECURRENT = LINEAR.format(optimizer=ADAM, last="pass").replace("model(x).relu()", "model(x)[0]")


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_a_layer_is_refused_with_its_line_for_a_gpu_and_traced_for_the_cpu(
    folder: Path, layer: str
) -> None:
    code = RECURRENT.replace("nn.Linear(64, 64)", f"nn.{layer}(64, 64)")
    factory = written(folder, code.replace("(batch_size, 64)", "(batch_size, 4, 64)"))
    with pytest.raises(CannotTrace) as refused:
        trace_script(factory, 4, A10)
    said = str(refused.value)
    line = "at mine.py, line 11 (loss = model(x)[0].sum())"
    assert f"{line}: cuDNN keeps a reserve space for nn.{layer}" in said
    assert ". There is no prediction: measure it (--gpu local)" in said
    measured = cpu.run_trial(TrialOrder(factory, 4))
    assert trace_script(factory, 4, None).peak_by_category()[0] == measured.peak_allocated_bytes


def kept_rows(run: Callable[[], object], width: int) -> list[int]:
    """How many rows of the hidden state's width each tensor has that is kept for backward."""
    return sorted(kept.numel() // width for kept in saved(run))


@pytest.mark.parametrize("autocast", [False, True])
def test_a_cell_saves_what_its_fused_kernel_saves(autocast: bool) -> None:
    batch, width = 2, 8

    def run(cell: Callable[..., torch.nn.Module]) -> Callable[[], object]:
        def forward() -> None:
            made = cell(width, width)
            with torch.autocast("cpu", dtype=BRAIN, enabled=autocast):
                state = made(torch.ones(batch, width))
                outputs = state if isinstance(state, tuple) else (state,)
                assert {one.dtype for one in outputs} == {BRAIN if autocast else torch.float32}
                sum(one.float().sum() for one in outputs).backward()
            assert all(parameter.grad is not None for parameter in made.parameters())

        return forward

    # An LSTM's four gates of input and hidden state, and the four that the kernel worked out; a
    # GRU's five rows.
    assert kept_rows(run(torch.nn.LSTMCell), width).count(4 * batch) >= 3
    assert 5 * batch in kept_rows(run(torch.nn.GRUCell), width)
