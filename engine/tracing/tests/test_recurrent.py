"""Recurrent networks on CUDA: cells are predicted, the layers of cuDNN are computed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.tests.scripts import ADAM, LINEAR, on_a10, written
from engine.script.trace import trace_script
from engine.tests.shared import slow
from engine.tracing.recurrent_layers import COMPUTED
from engine.tracing.tests.lowered import A10, BRAIN, saved
from engine.tracing.unsure import peak_interval, unsure_caveats

RECURRENT = LINEAR.format(optimizer=ADAM, last="pass").replace("model(x).relu()", "model(x)[0]")


LAYERS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


@pytest.mark.parametrize(
    ("layer", "reserved"), [("LSTM", 736_000_000), ("GRU", 864_000_000), ("RNN", 224_000_000)]
)
def test_a_layer_keeps_the_reserve_space_that_cudnn_told(layer: str, reserved: int) -> None:
    def run(train: bool) -> Callable[[], object]:
        return lambda: LAYERS[layer](123, 320, 4).train(train)(torch.ones(1000, 25, 123))

    def spaces(train: bool) -> list[int]:
        return [kept.numel() for kept in saved(run(train)) if kept.dtype is torch.uint8]

    assert spaces(True) == [reserved]
    assert spaces(False) == [0]


@pytest.mark.parametrize("layer", LAYERS)
def test_both_directions_keep_twice_as_much_and_autocast_half(layer: str) -> None:
    def reserve(autocast: bool = False, **options: Any) -> int:
        def run() -> None:
            with torch.autocast("cpu", dtype=BRAIN, enabled=autocast):
                output, _ = LAYERS[layer](8, 16, 2, **options)(torch.ones(5, 3, 8))
            assert output.dtype is (BRAIN if autocast else torch.float32)
            assert output.shape == (5, 3, 32 if options.get("bidirectional") else 16)

        (found,) = [kept.numel() for kept in saved(run) if kept.dtype is torch.uint8]
        return found

    assert reserve(bidirectional=True) == 2 * reserve()
    assert 2 * reserve(autocast=True) == reserve(batch_first=True) == reserve()


@pytest.mark.parametrize("layer", ["LSTM", slow("GRU"), slow("RNN")])
def test_a_layer_is_computed_for_a_gpu_and_traced_for_the_cpu(folder: Path, layer: str) -> None:
    code = RECURRENT.replace("nn.Linear(64, 64)", f"nn.{layer}(64, 64)")
    factory = written(folder, code.replace("(batch_size, 64)", "(batch_size, 40, 64)"))
    found = trace_script(factory, 64, A10)
    lower, higher = peak_interval(found)
    assert 0 < lower <= 0.3 * found.peak_by_category()[0]
    assert 0 < higher <= 0.3 * found.peak_by_category()[0]
    assert unsure_caveats(found) == [COMPUTED]
    flops = {one.phase: one.flops for one in found.operations if "_cudnn_rnn" in one.name}
    assert flops["backward"] == 2 * flops["forward"] > 0
    measured = cpu.run_trial(TrialOrder(factory, 64))
    assert trace_script(factory, 64, None).peak_by_category()[0] == measured.peak_allocated_bytes


PACKED = """
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

lengths = torch.tensor([2, 5, 1])
padded = torch.ones(3, 5, 4, device="cuda", requires_grad=True)
packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
layers = torch.nn.LSTM(4, 6, batch_first=True).cuda()
again, counts = pad_packed_sequence(layers(packed)[0], batch_first=True)
again.sum().backward()
rows, places = packed.data.shape, (packed.data.is_cuda, packed.batch_sizes.is_cuda)
sizes, counts = packed.batch_sizes.tolist(), counts.tolist()
shapes = again.shape, padded.grad.shape
"""


def test_packed_sequences_have_the_rows_of_their_lengths() -> None:
    names = on_a10(PACKED)
    assert (names["rows"], names["places"]) == ((8, 4), (True, False))
    assert (names["sizes"], names["counts"]) == ([3, 2, 1, 1, 1], [2, 5, 1])
    assert names["shapes"] == ((3, 5, 6), (3, 5, 4))


def test_unknown_lengths_are_the_longest_there_can_be() -> None:
    names = on_a10(PACKED.replace("torch.tensor([2, 5, 1])", "torch.rand(3).mul(5).long() + 1"))
    assert names["rows"] == (15, 4)


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
