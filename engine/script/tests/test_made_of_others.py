"""Tensors that are made of others, as those of torchao: quantized weights and optimizer state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.script.machine import pretended_machine
from engine.script.program import Program
from engine.script.tests.scripts import A10, real
from engine.script.trace import trace_script
from engine.tracing.trace import Category

pytestmark = pytest.mark.torch

_SCRIPT = """
import torch
from torch import nn
from torch.utils._python_dispatch import return_and_correct_aliasing

device = "cuda" if torch.cuda.is_available() else "cpu"

class Bytes(torch.Tensor):
    @staticmethod
    def __new__(cls, codes, scale):
        return torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=scale.dtype, device=codes.device
        )

    def __init__(self, codes, scale):
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self):
        return ["codes", "scale"], self.device

    @staticmethod
    def __tensor_unflatten__(parts, device, size, stride):
        return Bytes(parts["codes"], parts["scale"])

    __torch_function__ = torch._C._disabled_torch_function_impl

    def whole(self):
        return self.codes * self.scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        kwargs = kwargs or {{}}
        if func is torch.ops.aten.copy_.default:
            args[0].codes.copy_((args[1] / args[0].scale).to(torch.int8))
            return args[0]
        if func in (torch.ops.aten.detach.default, torch.ops.aten._to_copy.default):
            place = {{"device": kwargs["device"]}} if "device" in kwargs else {{}}
            made = Bytes(args[0].codes.to(**place), args[0].scale.to(**place))
            return return_and_correct_aliasing(func, args, kwargs, made)
        plain = [one.whole() if isinstance(one, Bytes) else one for one in args]
        return func(*plain, **kwargs)

def in_bytes(*size):
    return Bytes(torch.zeros(size, dtype=torch.int8), torch.ones(1))

class Momentum(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {{}})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state["momentum"] = in_bytes(*parameter.shape).to(parameter.device)
            momentum = state["momentum"] * 0.9 + parameter.grad
            state["momentum"].copy_(momentum)
            parameter -= 0.1 * momentum

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(in_bytes(512, 512), requires_grad=False)
        self.bias = nn.Linear(512, 512)

    def forward(self, x):
        return x @ self.weight + self.bias(x)

batch_size = 16
model = Layer(){put}
assert model.weight.device.type == device and model.weight.is_cuda == (device == "cuda")
optimizer = Momentum([one for one in model.parameters() if one.requires_grad])
for _ in range(5):
    loss = model(torch.randn(batch_size, 512, device=device)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class Moving(torch.Tensor):
    """A class that moves its tensors by itself, as the weights in 4 bits of torchao do."""

    codes: torch.Tensor

    @staticmethod
    def __new__(cls, codes: torch.Tensor) -> Moving:
        made: Moving = torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, dtype=torch.float32, device=codes.device
        )
        made.codes = codes
        return made

    def __tensor_flatten__(self) -> tuple[list[str], torch.device]:
        return ["codes"], self.device

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # PyTorch declares it without defaults
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return NotImplemented

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MOVES:
            return Moving(getattr(args[0].codes, _MOVES[func])(*args[1:], **kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


_MOVES = {torch.Tensor.to: "to", torch.Tensor.cuda: "cuda"}


def _program(folder: Path, put: str = ".to(device)") -> Program:
    path = folder / "train.py"
    path.write_text(_SCRIPT.format(put=put))
    return Program(str(path), by_constant=True)


def test_they_take_what_they_take_in_a_real_run(tmp_path: Path) -> None:
    program = _program(tmp_path)
    assert trace_script(program, 16, None).peak_of_last_step() == (
        real(program, 16).peak_allocated_bytes
    )


@pytest.mark.parametrize("put", [".cuda()", ".to(device)", ".to('cuda:0')"])
def test_on_the_gpu_they_are_where_their_parts_are(tmp_path: Path, put: str) -> None:
    trace = trace_script(_program(tmp_path, put=put), 16, A10)
    of = dict.fromkeys(Category, 0)
    for size, category in zip(trace.sizes, trace.categories, strict=True):
        of[category] += size
    weight, bias = 512 * 512, 512
    assert of[Category.PARAMETERS] == weight + 4 + 4 * (weight + bias)
    assert of[Category.OPTIMIZER_STATE] == 2 * 4 + weight + bias


@pytest.mark.parametrize("names", [{"device": "cuda"}, {"device": 0, "non_blocking": True}, {}])
def test_a_class_that_moves_by_itself_does_so(names: dict[str, Any]) -> None:
    with pretended_machine(A10):
        there = Moving(torch.zeros(8, dtype=torch.int8))
        moved = there.to(**names) if names else there.cuda()
        assert (there.device.type, moved.device.type) == ("cpu", "cuda")
        assert type(moved) is Moving
        assert moved.codes.is_cuda
        assert moved.to("cpu").is_cpu
    assert torch.zeros(2).is_cpu
