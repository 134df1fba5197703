"""CUDA as a custom step sees it while it is traced for a catalogue GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from engine.core.errors import NotPredictable
from engine.gpus import GPUS
from engine.script.machine import pretended_machine
from engine.script.tests.scripts import A10, on_a10, written
from engine.script.trace import CannotTrace, trace_script
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import RECOMPUTATION, Trace

NANOGPT = """
import inspect
from contextlib import nullcontext
import torch
from torch import nn

def make_step(batch_size):
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    dtype = 'bfloat16' if bf16 else 'float16'
    device_type = 'cuda' if 'cuda' in device else 'cpu'
    ptdtype = {'bfloat16': torch.bfloat16, 'float16': torch.float16}[dtype]
    on_cpu = device_type == 'cpu'
    ctx = nullcontext() if on_cpu else torch.amp.autocast(device_type=device_type, dtype=ptdtype)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64))
    model.to(device)
    scaler = torch.cuda.amp.GradScaler(enabled=(dtype == 'float16'))
    fused_available = 'fused' in inspect.signature(torch.optim.AdamW).parameters
    use_fused = fused_available and device_type == 'cuda'
    extra_args = dict(fused=True) if use_fused else dict()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **extra_args)
    data = torch.randn(1000, 64)

    def get_batch():
        ix = torch.randint(len(data), (batch_size,))
        x = torch.stack([data[i] for i in ix])
        if device_type == 'cuda':
            return x.pin_memory().to(device, non_blocking=True)
        return x.to(device)

    def step():
        with ctx:
            loss = model(get_batch()).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item(), torch.cuda.max_memory_allocated() if device_type == 'cuda' else 0)
    return step
"""


def dtypes_of_products(trace: Trace) -> set[str]:
    return {op.dtype for op in trace.operations if op.name in ("aten.addmm", "aten.mm")}


class TestNanoGPTsLines:
    """They choose precision, scaling and the optimizer's kernel by what CUDA says."""

    @pytest.mark.longer
    def test_an_ampere_gpu_trains_in_bf16_with_a_fused_optimizer(self, folder: Path) -> None:
        trace = trace_script(written(folder, NANOGPT), 8, A10)
        assert dtypes_of_products(trace) == {"bfloat16"}
        names = {op.name for op in trace.operations}
        assert "aten._fused_adamw_" in names
        assert "aten.native_dropout" in names
        assert "aten._amp_foreach_non_finite_check_and_unscale_" not in names

    def test_without_bf16_it_scales_fp16(self, folder: Path) -> None:
        code = NANOGPT.replace("is_bf16_supported()", "is_bf16_supported(False)")
        trace = trace_script(written(folder, code), 8, cuda_behaviour(7.5))
        assert dtypes_of_products(trace) == {"float16"}
        names = {op.name for op in trace.operations}
        assert "aten._amp_foreach_non_finite_check_and_unscale_" in names

    def test_the_cpu_takes_its_own_branch(self, folder: Path) -> None:
        code = NANOGPT.replace("torch.cuda.amp.GradScaler(", "torch.amp.GradScaler('cpu', ")
        code = code.replace("enabled=(dtype == 'float16')", "enabled=False")
        trace = trace_script(written(folder, code), 8, None)
        assert dtypes_of_products(trace) == {"float32"}

    def test_only_what_is_on_the_gpu_is_counted(self, folder: Path) -> None:
        """Not the data set of 256,000 bytes, nor the batch before it is moved."""
        trace = trace_script(written(folder, NANOGPT), 8, A10)
        assert 1000 * 64 * 4 not in trace.sizes
        moved = [op for op in trace.operations if op.name == "aten._to_copy"]
        assert moved


def test_torch_cuda_answers_for_the_chosen_gpu() -> None:
    asked = """
properties = torch.cuda.get_device_properties(0)
seen = (
    torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device(),
    torch.cuda.get_device_name(), torch.cuda.get_device_capability(), properties.total_memory,
    properties.major, torch.cuda.is_bf16_supported(), torch.cuda.memory_allocated(),
    torch.cuda.mem_get_info()[1], torch.backends.cuda.is_built(), torch.cuda.is_initialized(),
)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream), torch.cuda.device(0):
    stream.wait_stream(torch.cuda.current_stream())
    x = torch.ones(3, device='cuda')
    x.record_stream(stream)
start = torch.cuda.Event(enable_timing=True)
start.record()
torch.cuda.synchronize(); torch.cuda.empty_cache(); torch.cuda.reset_peak_memory_stats()
torch.manual_seed(0); torch.cuda.manual_seed_all(0)
torch.cuda.set_rng_state(torch.cuda.get_rng_state())
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32
"""
    gpu = GPUS["a10"]
    assert on_a10(asked)["seen"] == (
        *(True, 1, 0, "NVIDIA A10", (8, 6), gpu.total_bytes, 8, True, 0, gpu.total_bytes),
        *(True, True),
    )


def test_streams_are_current_where_they_are_entered() -> None:
    found = on_a10("""
current, default = torch.cuda.current_stream, torch.cuda.default_stream()
one, other, seen = torch.cuda.Stream(), torch.cuda.Stream(), []
seen.append(current() is default)
with torch.cuda.stream(one):
    with other:
        seen.append(current() is other)
    with torch.cuda.stream(None):
        seen.append(current() is one)
seen.append(current() is default)
torch.cuda.set_stream(one)
seen.append(current() is one)
""")
    assert found["seen"] == [True] * 5
    assert not isinstance(torch.cpu.current_stream(), type(found["one"]))


def test_a_tensor_is_made_in_the_stream_that_is_current(folder: Path) -> None:
    code = """
import torch
def make_step(batch_size):
    model, stream = torch.nn.Linear(8, 8).cuda(), torch.cuda.Stream()
    def step():
        with torch.cuda.stream(stream):
            x = torch.randn(batch_size, 8).cuda(non_blocking=True)
        torch.cuda.current_stream().wait_stream(stream)
        model(x).sum().backward()
        model.zero_grad()
    return step
"""
    traced = trace_script(written(folder, code), 4, A10)
    beside = [size for size, stream in zip(traced.sizes, traced.streams, strict=True) if stream]
    assert beside == [4 * 8 * 4] * 3  # the batch of each step


@pytest.mark.parametrize(
    ("autocast", "dtype"),
    [
        ("torch.autocast('cuda')", torch.float16),
        ("torch.autocast(device_type='cuda', dtype=torch.bfloat16)", torch.bfloat16),
        ("torch.cuda.amp.autocast()", torch.float16),
        ("torch.amp.autocast('cuda', enabled=False)", torch.float32),
        ("torch.autocast('cpu')", torch.float32),
    ],
)
def test_autocast_casts_what_is_on_the_gpu(autocast: str, dtype: torch.dtype) -> None:
    code = f"""
model, x = torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2, device='cuda')
with {autocast}:
    y = model(x).dtype
    inside = torch.is_autocast_enabled('cuda')
"""
    names = on_a10(code)
    assert names["y"] is dtype
    assert names["inside"] is (dtype is not torch.float32)


def test_offloaded_activations_take_no_gpu_memory(folder: Path) -> None:
    code = """
import torch
from torch import nn
from contextlib import nullcontext

def make_step(batch_size):
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(8)]
    model = nn.Sequential(*layers).cuda()
    def step():
        with {hooks}:
            model(torch.randn(batch_size, 64, device='cuda')).sum().backward()
        model.zero_grad()
    return step
"""

    def peak(hooks: str) -> int:
        factory = written(folder, code.replace("{hooks}", hooks), f"mine{len(hooks)}")
        return trace_script(factory, 512, A10).peak_by_category()[0]

    kept, offloaded = 512 * 64 * 4, peak("torch.autograd.graph.save_on_cpu(pin_memory=True)")
    assert peak("nullcontext()") - offloaded > 4 * kept


def test_checkpointing_finds_the_gpus_generator_and_autocast(folder: Path) -> None:
    code = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

def make_step(batch_size):
    block = nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1)).cuda()
    def step():
        x = torch.randn(batch_size, 64, device='cuda', requires_grad=True)
        with torch.autocast('cuda', torch.bfloat16):
            loss = checkpoint(block, x, use_reentrant={reentrant}).sum()
        loss.backward()
    return step
"""
    for reentrant in ("True", "False"):
        factory = written(folder, code.replace("{reentrant}", reentrant), f"mine{reentrant}")
        operations = trace_script(factory, 8, A10).operations
        again = [op for op in operations if op.phase == RECOMPUTATION and op.name == "aten.addmm"]
        assert [op.dtype for op in again] == ["bfloat16"]


def test_a_second_gpu_is_not_there(folder: Path) -> None:
    code = "import torch\ndef make_step(b):\n    torch.ones(b, device='cuda:1')"
    with pytest.raises(CannotTrace, match=r"invalid device ordinal.* With all on cuda:0"):
        trace_script(written(folder, code), 2, A10)


def test_fake_tensors_that_pytorch_puts_on_the_gpu_need_none() -> None:
    """As its sharded tensors do, to find the shape of a result."""
    with pretended_machine(A10), _disable_current_modes(), FakeTensorMode():
        shape_only = torch.empty(2, device="meta")
        there = torch.empty_like(shape_only, device=torch.device("cuda", 0))
        assert there.shape == shape_only.shape


def test_nothing_of_it_stays_behind() -> None:
    before = (torch.cuda.is_available, torch.Generator, torch.get_autocast_dtype("cpu"))
    on_a10("torch.ones(3).cuda()")
    assert before == (torch.cuda.is_available, torch.Generator, torch.get_autocast_dtype("cpu"))
    assert torch.Generator().device.type == "cpu"


ACCELERATED = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def make_step(batch_size):
    accelerator = Accelerator(mixed_precision="{precision}")
    model = nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(256, 64)), batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    def step():
        (x,) = next(iter(loader))
        loss = model(x).square().mean()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(accelerator.gather(loss).item())
    return step
"""


@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16")])
def test_accelerate_finds_the_gpu_and_its_precision(
    folder: Path, precision: str, dtype: str
) -> None:
    """Each time anew, though it remembers both for as long as a process lives."""
    factory = written(folder, ACCELERATED.replace("{precision}", precision), precision)
    assert dtypes_of_products(trace_script(factory, 8, A10)) == {dtype}


def test_what_is_all_on_the_gpu_is_traced_like_the_cpu_in_its_place(folder: Path) -> None:
    """Two ways to trace the same step: tensors that say where they are, and the CPU as a GPU."""
    code = """
import torch
from torch import nn

def make_step(batch_size):
    with torch.device({device}):
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1))
        x = torch.randn(batch_size, 64)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    def step():
        optimizer.zero_grad()
        with torch.autocast({device}, torch.bfloat16):
            loss = model(x).float().square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return step
"""
    gpu, cpu = (
        trace_script(
            written(folder, code.replace("{device}", repr(device)), f"on_{device}"), 8, A10
        )
        for device in ("cuda", "cpu")
    )
    assert (gpu.events, gpu.sizes, gpu.operations) == (cpu.events, cpu.sizes, cpu.operations)


@pytest.mark.parametrize(
    "code",
    ["torch.cuda.CUDAGraph()", "torch.cuda.make_graphed_callables(torch.nn.Linear(1, 1), ())"],
)
def test_cuda_graphs_are_refused_by_name(code: str) -> None:
    with pytest.raises(NotPredictable, match="CUDA graphs"):
        on_a10(code)


@pytest.mark.parametrize(
    "code",
    [
        "torch.cuda.memory._record_memory_history(max_entries=9)",
        "torch.cuda.memory._dump_snapshot('memory.pickle')",
        "torch.cuda.profiler.start(); torch.cuda.profiler.stop()",
        "torch.cuda.utilization() + torch.cuda.temperature()",
    ],
)
def test_what_only_looks_at_the_gpu_goes_on(code: str) -> None:
    on_a10(code)
