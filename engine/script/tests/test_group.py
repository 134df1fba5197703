"""Scripts that share their training with others: DistributedDataParallel, torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist

from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.tests.scripts import A10, written
from engine.script.trace import trace_script
from engine.tracing.trace import Category

SHARED = """
import contextlib, os, tempfile
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

def make_step(batch_size):
    if not dist.is_initialized():
        if torch.cuda.is_available():
            dist.init_process_group("nccl")
        else:
            file = tempfile.mktemp()
            dist.init_process_group("gloo", init_method=f"file://{file}", rank=0, world_size=1)
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 1))
    model = DDP(model.to(device){options})
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(batch_size, 64).to(device)
    def step():
        for micro in range({micro_batches}):
            last = micro == {micro_batches} - 1
            with contextlib.nullcontext() if last else model.no_sync():
                model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """No process group is left from one test to the next."""
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def shared(options: str = "", micro_batches: int = 1) -> str:
    code = SHARED.replace("{options}", options)
    return code.replace("{micro_batches}", str(micro_batches))


@pytest.mark.parametrize("micro_batches", [1, 3], ids=["each micro-batch", "no_sync"])
@pytest.mark.parametrize(
    "options",
    ["", ", gradient_as_bucket_view=True", ", bucket_cap_mb=1", ", find_unused_parameters=True"],
)
def test_gradient_buckets_equal_those_of_a_real_process_group(
    folder: Path, options: str, micro_batches: int
) -> None:
    factory = written(folder, shared(options, micro_batches))
    measured = cpu.run_trial(TrialOrder(factory, 4))
    dist.destroy_process_group()
    peak, _ = trace_script(factory, 4, None).peak_by_category()
    assert peak == measured.peak_allocated_bytes


def test_torchruns_variables_make_it_the_first_of_several(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    code = shared().replace(
        "    optimizer =",
        "    assert (dist.get_world_size(), dist.get_rank()) == (4, 0)\n"
        "    assert os.environ['LOCAL_RANK'] == '0' and torch.cuda.device_count() == 4\n"
        "    dist.barrier(); dist.all_reduce(torch.ones(1, device=device))\n"
        "    optimizer =",
    )
    trace = trace_script(written(folder, code), 4, A10)
    gradients = sum(
        size
        for size, category in zip(trace.sizes, trace.categories, strict=True)
        if category is Category.GRADIENTS
    )
    assert gradients
    assert trace.world_size == 4
    assert not dist.is_initialized()
    assert "LOCAL_RANK" not in os.environ


NORMED = """
import torch
import torch.distributed as dist
from torch import nn

def make_step(batch_size):
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 8, 3))
    model = {convert}(model).cuda()
    optimizer = torch.optim.SGD(model.parameters())
    def step():
        x = torch.randn(batch_size, 3, 32, 32, device="cuda"){format}
        with torch.autocast("cuda", enabled={casts}):
            loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return step
"""


@pytest.mark.parametrize("casts", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("form", ["", ".to(memory_format=torch.channels_last)"])
def test_batch_norm_over_all_processes_takes_what_that_of_one_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch, casts: bool, form: str
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    def peak(convert: str) -> int:
        code = NORMED.replace("{convert}", convert).replace("{casts}", str(casts))
        found, _ = trace_script(
            written(folder, code.replace("{format}", form)), 16, A10
        ).peak_by_category()
        return found

    alone, together = peak(""), peak("nn.SyncBatchNorm.convert_sync_batchnorm")
    # Besides statistics of its 64 channels, and those of the other process
    assert alone <= together <= alone + 8 * 2 * 64 * 4
