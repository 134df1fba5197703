"""Scripts and libraries that launch Triton's kernels are predicted as any other."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

from engine.script.devices.cuda_device import CUDA
from engine.script.devices.triton_kernels import _Driver
from engine.script.machine import pretended_machine
from engine.script.tests.scripts import A10, written
from engine.script.trace import CannotTrace, trace_script
from engine.tracing.trace import Trace

pytestmark = pytest.mark.torch

_JIT = """
class JITFunction:
    def __init__(self, fn):
        self.fn = fn

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.run(*args, grid=grid, warmup=False, **kwargs)

    def warmup(self, *args, grid, **kwargs):
        return self.run(*args, grid=grid, warmup=True, **kwargs)

    def run(self, *args, **kwargs):
        raise AssertionError("libcuda.so cannot found!")
"""
_AUTOTUNER = "from .jit import JITFunction\nclass Autotuner(JITFunction):\n    pass\n"
_RUNTIME = """
class DriverConfig:
    _active = None

    @property
    def active(self):
        assert self._active is not None, "0 active drivers"
        return self._active

driver = DriverConfig()
"""
_TRITON = """
from . import language
from .runtime.autotuner import Autotuner
from .runtime.jit import JITFunction as jit

class Config:
    def __init__(self, meta):
        self.meta = meta

def autotune(configs, key):
    return Autotuner
"""
_COMPILER = """
from collections import namedtuple
GPUTarget = namedtuple("GPUTarget", "backend arch warp_size")
"""
_FILES = {
    "__init__.py": _TRITON,
    "language.py": "constexpr = int",
    "runtime/__init__.py": _RUNTIME,
    "runtime/jit.py": _JIT,
    "runtime/autotuner.py": _AUTOTUNER,
    "backends/__init__.py": "",
    "backends/compiler.py": _COMPILER,
}
"""Triton as far as scripts see it. It comes with PyTorch's builds for CUDA only."""

_STEP = """
import torch
import triton
import triton.language as tl
from torch import nn

@triton.jit
def kernel(x, y, size, BLOCK: tl.constexpr):
    pass

@triton.autotune(configs=[triton.Config({{"BLOCK": 64}}), triton.Config({{"BLOCK": 128}})], key=[])
@triton.jit
def tuned(x, y, size, BLOCK: tl.constexpr):
    pass

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.empty_like(x)
        {forward}
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2

def make_step(batch_size):
    model = nn.Linear(512, 512).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, 512).cuda()
    def step():
        optimizer.zero_grad()
        {body}
        loss.backward()
        optimizer.step()
    return step
"""
_PLAIN = "loss = Scaled.apply(model(x)).sum()"


@pytest.fixture
def triton(folder: Path) -> None:
    """Triton, or something like it where there is none."""
    if find_spec("triton") is None:
        for name, text in _FILES.items():
            path = folder / "triton" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        importlib.invalidate_caches()


def _traced(folder: Path, forward: str, body: str = _PLAIN, name: str = "mine") -> Trace:
    factory = written(folder, _STEP.format(forward=forward, body=body), name)
    return trace_script(factory, 32, A10)


@pytest.mark.usefixtures("triton")
@pytest.mark.parametrize(
    "launched",
    [
        "kernel[(8,)](x, y, x.numel(), BLOCK=64)",
        "kernel[lambda meta: (meta['BLOCK'],)](x, y=y, size=x.numel(), BLOCK=64)",
        "tuned[(8,)](x, y, x.numel())",
    ],
)
def test_a_launch_takes_no_memory_and_the_time_of_its_tensors(folder: Path, launched: str) -> None:
    trace = _traced(folder, launched)
    same = _traced(folder, "torch.mul(x, 2, out=y)", name="other")
    assert trace.peak_of_last_step() == same.peak_of_last_step()
    (operation,) = [one for one in trace.operations if one.name == "memorymark.triton_kernel"]
    assert operation.bytes_moved == 2 * 32 * 512 * 4
    assert any("mine launches Triton kernels" in caveat for caveat in trace.caveats)
    assert not any("Triton" in caveat for caveat in same.caveats)


@pytest.mark.usefixtures("triton")
def test_a_kernel_that_is_only_compiled_is_not_launched(folder: Path) -> None:
    trace = _traced(folder, "kernel.warmup(x, y, x.numel(), BLOCK=64, grid=(8,))")
    assert not [one for one in trace.operations if "triton" in one.name]
    assert not any("Triton" in caveat for caveat in trace.caveats)


@pytest.mark.usefixtures("triton")
def test_nobody_knows_what_a_kernel_wrote(folder: Path) -> None:
    reading = "size = torch.tensor([4]); {}; loss = model(x[:int(size)]).sum()"
    assert _traced(folder, "pass", reading.format("pass")).peak_of_last_step()
    launched = reading.format("kernel[(1,)](size, size, 1, BLOCK=64)")
    with pytest.raises(CannotTrace, match=r"int\(size\)"):
        _traced(folder, "pass", launched, "other")


@pytest.mark.usefixtures("triton")
def test_triton_finds_the_gpu_that_is_asked_about() -> None:
    with pretended_machine(A10):
        driver = importlib.import_module("triton.runtime").driver.active
        target = driver.get_current_target()
        assert (target.backend, target.arch, target.warp_size) == ("cuda", 86, 32)
        assert driver.get_active_torch_device() == CUDA
        assert driver.utils.get_device_properties(0)["max_shared_mem"] == 99 << 10
    left = vars(importlib.import_module("triton.runtime").driver).values()
    assert not any(isinstance(one, _Driver) for one in left)
