"""Scripts with optimizers of packages that project gradients or decompose matrices."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from engine.script.libraries import paged_state
from engine.script.libraries.paged_state import PAGED
from engine.script.machine import pretended_machine
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script
from engine.script_analysis import predict_script
from engine.tracing.trace import Category
from engine.tracing.unsure import peak_interval

SCRIPT = """
import torch
from torch import nn
{imported}

def make_step(batch_size):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).cuda()
    projected = [model[0].weight, model[2].weight]
    others = [model[0].bias, model[2].bias]
    settings = dict(rank=8, update_proj_gap=200, proj_type="std", scale=1.0)
    optimizer = {made}
    x = torch.randn(batch_size, 64).cuda()
    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return step
"""
WEIGHTS = 2 * 64 * 256
BIASES = 64 + 256
LOW_RANK = 4 * (2 * BIASES + 2 * 2 * 8 * 256)
"""Bytes of two moments: of the biases, and of two matrices of rank 8 by 256."""


@pytest.mark.parametrize(
    ("package", "made", "state_bytes", "every"),
    [
        (
            "galore_torch",
            "GaLoreAdamW([dict(params=others), dict(params=projected, **settings)])",
            LOW_RANK,
            200,
        ),
        (
            "galore_torch",
            "GaLoreAdamW8bit([dict(params=others), dict(params=projected, **settings)])",
            4 * 2 * BIASES + 2 * 2 * 8 * 256 // 2,
            200,
        ),
        (
            "apollo_torch",
            'APOLLOAdamW([dict(params=others), dict(params=projected, proj="random", '
            'scale_type="channel", **settings)])',
            LOW_RANK,
            200,
        ),
        (
            "pytorch_optimizer",
            "SOAP(model.parameters())",
            4 * (2 * (WEIGHTS + BIASES) + 2 * 2 * (64**2 + 256**2)),
            10,
        ),
    ],
    ids=["galore", "galore-8bit", "apollo", "soap"],
)
def test_a_script_with_an_optimizer_of_a_package_is_traced(
    folder: Path, package: str, made: str, state_bytes: int, every: int
) -> None:
    pytest.importorskip(package)
    imported = f"from {package} import {made.split('(')[0]}"
    found = trace_script(written(folder, SCRIPT.format(imported=imported, made=made)), 4, A10)
    assert found.peak_by_category()[0] > state_bytes + 2 * 4 * (WEIGHTS + BIASES)
    assert f"anew every {every:,} steps" in " ".join(found.caveats)
    assert bool(peak_interval(found)[1]) == (package != "apollo_torch")


def test_shampoo_says_what_the_trace_did_not_meet(folder: Path) -> None:
    pytest.importorskip("pytorch_optimizer")
    made = "ScalableShampoo(model.parameters())"
    code = SCRIPT.format(imported="from pytorch_optimizer import ScalableShampoo", made=made)
    found = trace_script(written(folder, code), 4, A10)
    assert "computes its preconditioners every 1,000 steps" in " ".join(found.caveats)


DECOMPOSED = """
import torch
from torch import nn

class Decomposed(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            torch.linalg.svd(parameter.grad, full_matrices=False)

def make_step(batch_size):
    model = nn.Linear(512, 512, bias=False)
    optimizer = Decomposed(model.parameters())
    x = torch.randn(batch_size, 512)
    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return step
"""


def test_an_answer_says_what_is_assumed_of_a_decomposition_at_the_peak(folder: Path) -> None:
    factory = written(folder, DECOMPOSED)
    request = ScriptRequest(factory, gpu="a10", current_batch_size=4)
    caveats = predict_script(request, lambda _: None).caveats
    assert any("cuSOLVER does not document its workspace" in caveat for caveat in caveats)


LIMITED = """
import torch
from torch import nn

class Limited(torch.optim.SGD):
    @torch.no_grad()
    def step(self, closure=None):
        for parameter in self.param_groups[0]["params"]:
            limit = max(torch.norm(parameter.grad), 1.01) / 1.01
            parameter.add_(parameter.grad / limit, alpha=-0.1)

def make_step(batch_size):
    model = nn.Linear(64, 64)
    optimizer = Limited(model.parameters())
    x = torch.randn(batch_size, 64)
    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return step
"""


def test_a_single_number_of_an_optimizer_may_be_a_tensor_or_not(folder: Path) -> None:
    """As in APOLLO's limit on the growth of norms: it is no memory that counts."""
    found = trace_script(written(folder, LIMITED), 4, A10)
    assert "Other placeholders give the same memory" in " ".join(found.caveats)


PAGED_STEP = """
import bitsandbytes
import torch
from torch import nn

def make_step(batch_size):
    model = nn.Linear(512, 512).cuda()
    optimizer = bitsandbytes.optim.{name}(model.parameters())
    x = torch.randn(batch_size, 512).cuda()
    def step():
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return step
"""


@pytest.mark.parametrize(("bits", "each"), [("", 4), ("8bit", 1)])
def test_what_is_paged_takes_none_of_the_gpus_memory(folder: Path, bits: str, each: int) -> None:
    pytest.importorskip("bitsandbytes")
    plain, paged = (
        trace_script(written(folder, PAGED_STEP.format(name=name + bits), name), 4, A10)
        for name in ("AdamW", "PagedAdamW")
    )
    state = [one.peak_by_category()[1][Category.OPTIMIZER_STATE] for one in (plain, paged)]
    assert state[0] - state[1] == 2 * each * 512 * 512
    assert PAGED in paged.caveats
    assert PAGED not in plain.caveats


def test_managed_memory_is_asked_for_without_a_gpu_in_a_trace_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    functional: Any = ModuleType("bitsandbytes.functional")
    for name in ("get_paged", "fill", "prefetch_tensor"):
        setattr(functional, name, lambda *given, **_: calls.append(given))
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", functional)
    paged_state._change()
    with pretended_machine(A10) as machine:
        gradient = torch.ones(4, 8, device="cuda")
        made = functional.get_paged(4, 8, dtype=torch.float32, device=gradient.device)
        functional.fill(made, 0)
        functional.prefetch_tensor(made)
        assert made.add_(gradient).shape == (4, 8)  # in one operator with what is on the GPU
        assert machine.caveats == [PAGED]
    assert calls == []
    functional.get_paged(4, 8)
    assert calls == [(4, 8)]


@pytest.mark.parametrize("name", ["optimizer_update_32bit", "optimizer_update_8bit_blockwise"])
@pytest.mark.parametrize("is_operator", [False, True], ids=["in its library", "by an operator"])
def test_an_update_is_called_where_it_can_be_followed(
    monkeypatch: pytest.MonkeyPatch, name: str, is_operator: bool
) -> None:
    calls: list[object] = []
    functional: Any = ModuleType("bitsandbytes.functional")
    for one in ("get_paged", "fill", "prefetch_tensor", name):
        setattr(functional, one, lambda *given, **_: calls.append(given))
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", functional)
    operators = SimpleNamespace(**{name: print} if is_operator else {})
    monkeypatch.setattr(torch.ops, "bitsandbytes", operators, raising=False)
    paged_state._change()
    with pretended_machine(A10):
        getattr(functional, name)("adam", 8)
    assert calls == ([("adam", 8)] if is_operator else [])
    getattr(functional, name)("adam", 32)
    assert calls[-1] == ("adam", 32)
