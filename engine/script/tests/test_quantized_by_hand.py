"""Layers of bitsandbytes that a script makes itself, with a stand-in for the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.core.errors import NotPredictable
from engine.script.devices.cuda_device import on_gpu
from engine.script.machine import pretended_machine
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script
from engine.step.four_bits import FourBitLayout

PACKAGE = """
import torch
class Params4bit(torch.nn.Parameter):
    def __new__(cls, data, requires_grad=False, **_):
        return torch.Tensor._make_subclass(cls, data, requires_grad)
class Linear4bit(torch.nn.Linear):
    def __init__(self, input_features, output_features, bias=True, compute_dtype=None,
                 compress_statistics=True, quant_type="fp4", quant_storage=None, device=None):
        super().__init__(input_features, output_features, bias, device)
        self.weight = Params4bit(self.weight.data)
class LinearNF4(Linear4bit):
    def __init__(self, input_features, output_features, bias=True, **given):
        super().__init__(input_features, output_features, bias, quant_type="nf4", **given)
class Linear8bitLt(torch.nn.Linear):
    def __init__(self, input_features, output_features, bias=True, **_):
        super().__init__(input_features, output_features, bias)
        self.weight = Params4bit(self.weight.data)
"""

TRAINED = """
import torch
from bitsandbytes.nn.modules import Linear4bit

def make_step(batch_size):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 64), Linear4bit(64, 256, bias={bias}), torch.nn.Linear(256, 8)
    ).to("cuda")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    def step():
        model(torch.randn(batch_size, 4, 64, device="cuda")).sum().backward()
        assert (model[1].bias is None) or model[1].bias.grad.shape == (256,)
        assert model[1].weight.grad is None
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


@pytest.fixture(autouse=True)
def package(folder: Path) -> None:
    """The classes whose constructors fail on fake tensors, as the package's own do."""
    (folder / "bitsandbytes" / "nn").mkdir(parents=True)
    (folder / "bitsandbytes" / "__init__.py").touch()
    (folder / "bitsandbytes" / "nn" / "__init__.py").write_text("from .modules import *\n")
    (folder / "bitsandbytes" / "nn" / "modules.py").write_text(PACKAGE)


def test_a_layer_takes_over_the_weight_of_another() -> None:
    with pretended_machine(A10):
        from bitsandbytes.nn.modules import Linear4bit, Params4bit

        whole = torch.nn.Linear(64, 256)
        layer = Linear4bit(64, 256, quant_type="nf4")
        layer.weight = Params4bit(whole.weight.data, requires_grad=False, quant_type="nf4")
        assert layer.weight.shape == (256, 64)
        layer = layer.to("cuda")
    weight: Any = layer.weight
    assert isinstance(layer, FourBitLayout)
    assert (weight.dtype, weight.quant_type) == (torch.uint8, "nf4")
    assert not weight.requires_grad


def test_weights_are_whole_until_they_are_on_the_gpu() -> None:
    with pretended_machine(A10):
        import bitsandbytes.nn

        layer = bitsandbytes.nn.LinearNF4(64, 256, compute_dtype=torch.bfloat16)
        layer.load_state_dict(torch.nn.Linear(64, 256).state_dict())
        assert layer.weight.shape == (256, 64)
        layer = layer.to("cuda")
        again = layer.cuda()
    assert again is layer
    assert isinstance(layer, FourBitLayout)
    assert isinstance(layer, bitsandbytes.nn.Linear4bit)
    assert (layer.weight.dtype, layer.weight.numel()) == (torch.uint8, 64 * 256 // 2)
    assert (layer.compute_dtype, layer.weight.quant_type) == (torch.bfloat16, "nf4")
    assert on_gpu(layer.weight)
    assert on_gpu(layer.scales)


@pytest.mark.parametrize("bias", [True, False])
def test_a_step_trains_what_is_not_quantized(folder: Path, bias: bool) -> None:
    trace = trace_script(written(folder, TRAINED.format(bias=bias)), 4, A10)
    assert trace.peak_by_category()[0] > 0


def test_the_first_input_decides_the_format_of_products() -> None:
    with pretended_machine(A10):
        import bitsandbytes.nn

        layer = bitsandbytes.nn.Linear4bit(64, 32).to("cuda")
        given = torch.ones(2, 64, device="cuda", dtype=torch.bfloat16)
        assert layer(given).dtype is torch.bfloat16
    assert (layer.dtype, layer.bias.dtype) == (torch.bfloat16, torch.bfloat16)


def test_hooks_stay_when_the_weights_are_quantized() -> None:
    seen = []
    with pretended_machine(A10):
        import bitsandbytes.nn

        layer = bitsandbytes.nn.Linear4bit(64, 32)
        layer.register_forward_hook(lambda *_: seen.append(1))
        layer.to("cuda")(torch.ones(2, 64, device="cuda"))
    assert seen == [1]


def test_8_bits_are_refused_with_what_works() -> None:
    with pretended_machine(A10):
        import bitsandbytes.nn

        with pytest.raises(NotPredictable, match="load_in_8bit"):
            bitsandbytes.nn.Linear8bitLt(64, 32)
