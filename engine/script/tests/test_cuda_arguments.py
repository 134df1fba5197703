"""Stand-ins for CUDA's functions while a script is traced take what these take."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from engine.core.errors import NotPredictable
from engine.script.devices.cuda_memory import REFUSED as REFUSED_FUNCTIONS
from engine.script.machine import pretended_machine
from engine.script.tests.scripts import A10, ADAM, LINEAR, written
from engine.script.trace import CannotTrace, trace_script

MODULES = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs,
           torch.cuda.nvtx, torch.accelerator, torch.nn.parallel.comm)  # fmt: skip
REAL = {module: dict(vars(module)) for module in MODULES}


def stand_ins() -> Iterator[tuple[ModuleType, str, Any, Any]]:
    """Replacements of the pretended machine: module, name, the real one, the stand-in."""
    for module, real in REAL.items():
        for name, one in real.items():
            if callable(one) and vars(module)[name] is not one:
                yield module, name, one, vars(module)[name]


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    """Name, default and kind of each argument."""
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.default, one.kind) for one in parameters]


def on_a10(code: str) -> dict[str, Any]:
    """The names that code leaves behind which runs on a machine with an A10."""
    names: dict[str, Any] = {"torch": torch}
    with pretended_machine(A10):
        exec(code, names)  # noqa: S102 - the test's own code
    return names


def test_all_that_is_replaced_takes_what_the_real_one_takes() -> None:
    with pretended_machine(A10):
        # Types of tensors (torch.cuda.FloatTensor) are built in and have no signature.
        replaced = [one for one in stand_ins() if not one[1].endswith("Tensor")]
        for module, name, real, stand_in in replaced:
            taken, more = arguments(real), arguments(stand_in)
            assert more[: len(taken)] == taken, f"{module.__name__}.{name}"
            # Later releases take more, such as ``CUDAGraph(keep_graph=True)``.
            assert all(
                default is not inspect.Parameter.empty for _, default, _ in more[len(taken) :]
            )
    names = {f"{module.__name__}.{name}" for module, name, _, _ in replaced}
    assert len(names) > 90
    assert {"torch.cuda.stream", "torch.cuda.Event", "torch.cuda.device_of"} <= names


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *[("Stream", name) for name in ("wait_event", "wait_stream", "record_event", "query")],
        *[("Event", name) for name in ("record", "wait", "query", "elapsed_time", "synchronize")],
    ],
)
def test_methods_of_streams_and_events_take_the_same(kind: str, method: str) -> None:
    real = getattr(getattr(torch.cuda, kind), method)
    with pretended_machine(A10):
        assert arguments(getattr(getattr(torch.cuda, kind), method)) == arguments(real)


def test_they_can_be_called_with_all_arguments_by_name() -> None:
    with pretended_machine(A10):
        for _, name, real, stand_in in stand_ins():
            if inspect.isclass(real) or name.startswith("_") or name in ("scatter", "gather"):
                continue
            if name in REFUSED_FUNCTIONS:
                continue
            known = inspect.signature(real).parameters.values()
            alone = [None for one in known if one.kind is one.POSITIONAL_ONLY]
            given = {
                one.name: None if one.default is one.empty else one.default
                for one in known
                if one.kind is one.POSITIONAL_OR_KEYWORD
            }
            stand_in(*alone, **given)
            with pytest.raises(TypeError, match="no_such_argument"):
                stand_in(*alone, **given, no_such_argument=1)


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.cuda.max_memory_allocated(device=0) >= 0",
        "x = torch.cuda.mem_get_info(device='cuda')[1] > 0",
        "x = torch.cuda.memory_stats(device=None)['allocated_bytes.all.peak'] == 0",
        "torch.cuda.set_rng_state(new_state=torch.cuda.get_rng_state(device=0), device=0); x = 1",
        "torch.cuda.set_stream(stream=torch.cuda.Stream(device=0, priority=-1)); x = 1",
        "x = torch.cuda.is_bf16_supported(including_emulation=False)",
        "x = torch.Event(device='cuda', enable_timing=True).query()",
        "x = isinstance(torch.cuda.Event(blocking=True), torch.Event)",
        "x = torch.cuda.nvtx.range_push(msg='forward') == 0",
        "with torch.cuda.device_of(obj=torch.ones(1)), torch.cuda.device(device=0): x = 1",
        "with torch.autocast('cuda'): x = torch.is_autocast_enabled(device_type='cuda')",
    ],
)
def test_calls_by_name_work(code: str) -> None:
    assert on_a10(code)["x"]


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("m.to(torch.ones(1, device='cuda', dtype=torch.half))", ("cuda", torch.half)),
        ("m.cuda().to(tensor=torch.ones(1, dtype=torch.double))", ("cpu", torch.double)),
        ("m.to(torch.ones(1, device='cuda').long() * 1.0, non_blocking=True)", ("cuda", None)),
        ("m.to(device='cuda', dtype=torch.bfloat16, non_blocking=True)", ("cuda", torch.bfloat16)),
        ("m.to('cuda', torch.half, True)", ("cuda", torch.half)),
        ("m.to(0).to(dtype=torch.half)", ("cuda", torch.half)),
        ("m.to(memory_format=torch.channels_last, device=0)", ("cuda", None)),
        ("m.cuda(device=0)", ("cuda", None)),
    ],
)
def test_modules_move_as_they_are_told(code: str, seen: tuple[str, torch.dtype | None]) -> None:
    names = on_a10(f"m = torch.nn.Conv2d(2, 2, 3)\n{code}\nw = m.weight\nseen = w.device.type")
    assert names["seen"] == seen[0]
    assert names["w"].dtype is (seen[1] or torch.float32)
    assert names["w"].is_contiguous(memory_format=torch.channels_last) is ("last" in code)


@pytest.mark.parametrize(
    ("move", "seen"),
    [
        (".to(other=torch.ones(1, device='cuda').half())", ("cuda", torch.half, False)),
        (".to(torch.ones(1, device='cuda').half(), True)", ("cuda", torch.half, False)),
        (".to(None, torch.half)", ("cpu", torch.half, False)),
        (".to(torch.half, copy=True)", ("cpu", torch.half, False)),
        (".to('cuda', torch.half, True, True)", ("cuda", torch.half, False)),
        (".to(device=0, memory_format=torch.channels_last)", ("cuda", torch.float32, True)),
        (".cuda(memory_format=torch.channels_last)", ("cuda", torch.float32, True)),
        (".cuda(device=0, non_blocking=True)", ("cuda", torch.float32, False)),
        (".cuda().cpu(memory_format=torch.channels_last)", ("cpu", torch.float32, True)),
        (".pin_memory(device='cuda').cuda(None, True)", ("cuda", torch.float32, False)),
    ],
)
def test_tensors_move_as_they_are_told(move: str, seen: tuple[str, torch.dtype, bool]) -> None:
    names = on_a10(
        f"x = torch.ones(2, 3, 4, 5){move}\n"
        "last = x.is_contiguous(memory_format=torch.channels_last)\n"
        "seen = (x.device.type, x.dtype, last)"
    )
    assert names["seen"] == seen


CALLS: dict[str, str] = {
    "CUDAPluggableAllocator": "('a.so', 'take', 'give')",
    "CudaError": "(2)",
    "ExternalStream": "(1)",
    "GreenContext": ".create(num_sms=8)",
    "StreamContext": "(torch.cuda.Stream())",
    "caching_allocator_alloc": "(1024)",
    "caching_allocator_delete": "(1)",
    "can_device_access_peer": "(0, 1)",
    "change_current_allocator": "(None)",
    "check_error": "(0)",
    "comm": "",
    "device": "(0)",
    "device_of": "(torch.ones(1))",
    "export_dot": "('graph.dot')",
    "export_graph_data": "('graph.json')",
    "get_stream_from_external": "(1)",
    "graph": "(torch.cuda.CUDAGraph())",
    "make_graphed_callables": "(torch.nn.Linear(2, 2), (torch.ones(2, 2),))",
    "manual_seed": "(1)",
    "manual_seed_all": "(1)",
    "set_device": "(0)",
    "set_per_process_memory_fraction": "(0.5)",
    "set_rng_state": "(torch.cuda.get_rng_state())",
    "set_rng_state_all": "(torch.cuda.get_rng_state_all())",
    "set_stream": "(torch.cuda.Stream())",
    "set_sync_debug_mode": "('warn')",
    "stream": "(torch.cuda.Stream())",
    "use_mem_pool": "(None)",
}
"""Arguments of what takes some."""

REFUSED = {
    "CUDAGraph": "CUDA graphs", "graph": "CUDA graphs", "make_graphed_callables": "CUDA graphs",
    "MemPool": "memory pools", "use_mem_pool": "memory pools",
    "CUDAPluggableAllocator": "another allocator", "change_current_allocator": "another allocator",
    "caching_allocator_alloc": "without a tensor", "caching_allocator_delete": "without a tensor",
    "caching_allocator_disabled": "without its caching allocator",
    "GreenContext": "multiprocessors",
}  # fmt: skip
"""Names that have memory or time of its own that no trace follows, with words of the refusal."""


def public_names() -> list[str]:
    """Functions and classes that ``torch.cuda`` makes public, but for types of tensors."""
    names = sorted({*torch.cuda.__all__, *torch.cuda.memory.__all__})
    of_tensors = ("Tensor", "Storage")
    made = [name for name in names if not name.endswith(of_tensors)]
    return [name for name in made if callable(getattr(torch.cuda, name))]


@pytest.mark.parametrize("name", public_names())
def test_every_public_function_answers_or_is_refused_in_words(name: str) -> None:
    code = f"x = torch.cuda.{name}{CALLS.get(name, '()')}"
    if name not in REFUSED:
        on_a10(code)
        return
    with pytest.raises(NotPredictable, match=REFUSED[name]):
        on_a10(code)


@pytest.mark.parametrize("kind", ["Stream", "ExternalStream", "Event"])
def test_streams_and_events_have_all_that_is_public(kind: str) -> None:
    real = getattr(torch.cuda, kind)
    public = [name for one in real.__mro__[:-1] for name in vars(one) if name[0] != "_"]
    with pretended_machine(A10):
        made = getattr(torch.cuda, kind)
        assert [name for name in public if not hasattr(made, name)] == []


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.cuda.memory_stats_as_nested_dict()['allocated_bytes']['all']['peak'] == 0",
        "x = torch.cuda.host_memory_stats()['allocated_bytes.current'] == 0",
        "x = torch.cuda.host_memory_stats_as_nested_dict()['segment']['all']['peak'] == 0",
        "torch.cuda.set_per_process_memory_fraction(0.5, device=0)\n"
        "x = torch.cuda.get_per_process_memory_fraction() == 0.5",
        "torch.cuda.set_sync_debug_mode('warn'); x = torch.cuda.get_sync_debug_mode() == 1",
        "torch.cuda.set_sync_debug_mode(2); x = torch.cuda.get_sync_debug_mode() == 2",
        "x = torch.cuda.get_allocator_backend() == 'native'",
        "x = torch.cuda.nccl.version() > (2, 10)",
        "x = torch.cuda.Stream.priority_range() == (0, -5)",
        "x = len(torch.cuda.Event(interprocess=True).ipc_handle()) == 64",
        "x = torch.cuda.Event.from_ipc_handle(0, bytes(64)).query()",
        "with torch.cuda.stream(torch.cuda.ExternalStream(1)): x = True",
        "with torch.cuda.StreamContext(torch.cuda.Stream()): x = True",
        "x = torch.cuda.cudart().cudaProfilerStart() == 0",
        "x = torch.cuda.cudart().cudaMemGetInfo(0)[1] > 2**30",
        "p = torch.cuda.get_device_properties(0); x = str(p.uuid).count('-') == 4",
        "x = torch.cuda.get_device_properties(0).L2_cache_size > 2**20",
        "p = torch.cuda.get_device_properties(0); x = p.regs_per_multiprocessor == 65536",
        "p = torch.cuda.get_device_properties(0); x = p.max_threads_per_multi_processor == 1536",
        "p = torch.cuda.get_device_properties(0); x = p.shared_memory_per_block_optin == 99 * 1024",
        "p = torch.cuda.get_device_properties(0); x = p.multi_processor_count == 84",
    ],
)
def test_answers_are_what_code_makes_of_them(code: str) -> None:
    assert on_a10(code)["x"]


def test_without_the_caching_allocator_nothing_is_predicted() -> None:
    on_a10("torch.cuda.caching_allocator_enable(True)")
    with pytest.raises(NotPredictable, match="without its caching allocator"):
        on_a10("torch.cuda.caching_allocator_enable(False)")


@pytest.mark.parametrize(
    "line",
    ["torch._C._cuda_of_a_later_release()", "raise RuntimeError(DUMMY)"],
)
def test_what_only_builds_with_cuda_have_is_not_blamed_on_the_script(
    line: str, folder: Path
) -> None:
    code = LINEAR.format(optimizer=ADAM, last=line)
    dummy = "DUMMY = 'Tried to instantiate dummy base class Later'\n"
    with pytest.raises(CannotTrace) as refused:
        trace_script(written(folder, dummy + code), 8, A10)
    assert "in what stands in for a GPU here" in str(refused.value)
    assert "fix that" not in str(refused.value)
