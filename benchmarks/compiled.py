"""Can the memory of a compiled step be predicted? ``python -m benchmarks.compiled``.

Inductor plans every buffer before it generates code, and estimates the peak of that plan
(``torch/_inductor/memory.py``). This command has it plan on fake tensors, for the CPU and for a GPU
that is not there, and compares the plan for the CPU with the compiled step run for real.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from rich import box
from rich.console import Console
from rich.table import Table

_MIB = 2**20

MODELS: dict[str, tuple[str, dict[str, Any], int]] = {
    "BERT": ("BertForMaskedLM", {"num_hidden_layers": 4, "vocab_size": 1000}, 128),
    "GPT-2": ("GPT2LMHeadModel", {"n_layer": 4, "vocab_size": 1000}, 256),
    "Llama": (
        "LlamaForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 512,
            "intermediate_size": 1376,
            "num_attention_heads": 8,
            "vocab_size": 8000,
        },
        512,
    ),
    "Qwen3": (
        "Qwen3ForCausalLM",
        {
            "num_hidden_layers": 4,
            "hidden_size": 512,
            "intermediate_size": 1536,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "vocab_size": 8000,
        },
        512,
    ),
}
"""The models of transformers: the class, its config's fields and the tokens of a sample."""

BATCH_SIZES = (4, 8)

_A100 = SimpleNamespace(
    type="cuda",
    index=0,
    name="A100",
    major=8,
    minor=0,
    cc=80,
    multi_processor_count=108,
    regs_per_multiprocessor=65_536,
    max_threads_per_multi_processor=2_048,
    max_threads_per_block=1_024,
    warp_size=32,
    total_memory=80 * 2**30,
    shared_memory_per_block=48 * 2**10,
    shared_memory_per_block_optin=163 * 2**10,
    L2_cache_size=40 * 2**20,
    gcnArchName="",
)
"""GPU properties that Inductor reads, as in the CUDA programming guide for capability 8.0."""


@dataclass(frozen=True)
class Comparison:
    """Peaks of forward and backward above what is there between two steps, in bytes.

    Attributes:
        planned_bytes: Peak of Inductor's plan for the CPU, on fake tensors.
        planned_cuda_bytes: Peak of its plan for an A100.
        plan_seconds: Time of the plan for the CPU.
        measured_bytes: Peak of the compiled step on the CPU.
        eager_bytes: Peak of the same step on the CPU without the compiler.
    """

    model: str
    batch_size: int
    planned_bytes: int
    planned_cuda_bytes: int
    plan_seconds: float
    measured_bytes: int
    eager_bytes: int


class _Planned(Exception):
    """Raised where Inductor would go on to generate code."""


@dataclass
class Planner:
    """A backend of ``torch.compile`` that lets Inductor plan a graph, and generates no code.

    Args:
        for_cuda: Whether to plan for an A100 in the place of the CPU.

    Attributes:
        peaks: The estimated peak of each graph, in bytes.
    """

    for_cuda: bool
    peaks: list[int] = field(default_factory=list)

    def __call__(self, graph: Any, inputs: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(graph, inputs, inner_compile=self._plan)

    def _plan(self, graph: Any, inputs: Any, **options: Any) -> Any:
        """Plan one graph; what is returned makes its outputs on fake tensors."""
        import torch
        from torch._inductor.compile_fx import compile_fx_inner
        from torch._inductor.exc import InductorError

        results = [
            node.meta["val"] if isinstance(node, torch.fx.Node) else node
            for node in next(iter(graph.graph.find_nodes(op="output"))).args[0]
        ]
        layouts = [
            (one.shape, one.stride(), one.dtype) if isinstance(one, torch.Tensor) else None
            for one in results
        ]
        try:
            with self._stopping_at_the_plan():
                compile_fx_inner(graph, inputs, **options)
        except InductorError as error:
            if not isinstance(error.inner_exception, _Planned):
                raise

        def run(_args: Any) -> tuple[Any, ...]:
            return tuple(
                torch.empty_strided(layout[0], layout[1], dtype=layout[2]) if layout else result
                for layout, result in zip(layouts, results, strict=True)
            )

        run._boxed_call = True  # type: ignore[attr-defined]  # as AOTAutograd asks for
        return run

    @contextmanager
    def _stopping_at_the_plan(self) -> Iterator[None]:
        import torch._inductor.graph
        import torch._inductor.memory as memory

        reorder = memory.reorder_for_peak_memory
        lowering = torch._inductor.graph.GraphLowering
        begin: Callable[..., None] = lowering.__init__

        def see_the_plan(
            nodes: Any, buffers: Any, fused: Any, inputs: Any, outputs: Any, *rest: Any, **more: Any
        ) -> Any:
            ordered = reorder(nodes, buffers, fused, inputs, outputs, *rest, **more)
            freed = memory.get_freeable_input_buf(ordered, inputs)
            self.peaks.append(memory.estimate_peak_memory(ordered, freed, outputs)[0])
            return ordered

        def begin_on_cuda(one: Any, graph: Any, example_inputs: Any, **more: Any) -> None:
            _move_to_cuda(graph)
            begin(one, graph, [_on_cuda(given) for given in example_inputs], **more)

        def stop(one: Any) -> None:
            one._update_scheduler()
            raise _Planned

        with ExitStack() as stack:
            stack.enter_context(patch.object(memory, "reorder_for_peak_memory", see_the_plan))
            stack.enter_context(patch.object(lowering, "codegen", stop))
            if self.for_cuda:
                stack.enter_context(patch.object(lowering, "__init__", begin_on_cuda))
                stack.enter_context(_with_an_a100())
            yield


@contextmanager
def _with_an_a100() -> Iterator[None]:
    """Let Inductor's lowering find a GPU and Triton; only properties of both are read."""
    import torch
    import torch._inductor.scheduler
    from torch._dynamo.device_interface import CudaInterface

    def properties(_device: Any = None) -> SimpleNamespace:
        return _A100

    with ExitStack() as stack:
        for owner, name, answer in (
            (torch.cuda, "get_device_properties", properties),
            (torch.cuda, "get_device_capability", lambda *_: (8, 0)),
            (torch.cuda, "current_device", lambda: 0),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "device", _NoSwitch),
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "get_rng_state", lambda *_: torch.zeros(16, dtype=torch.uint8)),
            (torch.cuda, "set_rng_state", lambda *_: None),
            (CudaInterface, "get_device_properties", staticmethod(properties)),
            (CudaInterface.Worker, "get_device_properties", staticmethod(properties)),
            (CudaInterface.Worker, "current_device", staticmethod(lambda: 0)),
            (CudaInterface, "get_compute_capability", staticmethod(lambda *_: 80)),
            (torch._inductor.scheduler, "has_triton", lambda *_: True),
        ):
            stack.enter_context(patch.object(owner, name, answer))
        yield


class _NoSwitch:
    """In the place of ``torch.cuda.device``: there is no device to switch to."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _move_to_cuda(graph: Any) -> None:
    """Change the device of everything in a graph that was traced on the CPU."""
    import torch
    from torch.utils._pytree import tree_map

    for node in graph.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = tree_map(_on_cuda, node.meta["val"])
        if node.kwargs.get("device") == torch.device("cpu"):
            node.kwargs = {**node.kwargs, "device": torch.device("cuda:0")}
    graph.recompile()


def _on_cuda(one: Any) -> Any:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    if not isinstance(one, FakeTensor):
        return one
    with torch.utils._mode_utils.no_dispatch():
        like = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device="meta")
    return FakeTensor(one.fake_mode, like, torch.device("cuda:0"))


def planned_peak(name: str, batch_size: int, *, for_cuda: bool) -> tuple[int, float]:
    """The peak of Inductor's plan, in bytes, and the seconds that the plan took."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    planner = Planner(for_cuda)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, batch = _model_and_batch(name, batch_size)
        begin = time.perf_counter()
        step: Any = torch.compile(model, backend=planner)
        step(**batch).loss.backward()
        return max(planner.peaks), time.perf_counter() - begin


def measured_peak(name: str, batch_size: int, *, compiled: bool) -> int:
    """The peak of forward and backward in the second step, in bytes, above its beginning.

    The profiler sees every allocation of PyTorch's CPU allocator, also those of compiled code.
    """
    import torch

    model, batch = _model_and_batch(name, batch_size)
    step = torch.compile(model) if compiled else model
    step(**batch).loss.backward()
    model.zero_grad(set_to_none=True)
    with torch.profiler.profile(profile_memory=True) as profiler:
        step(**batch).loss.backward()
    results = profiler.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def _model_and_batch(name: str, batch_size: int) -> tuple[Any, dict[str, Any]]:
    import torch
    import transformers

    class_name, fields, length = MODELS[name]
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**fields, use_cache=False)
    # The CPU's kernel for attention is another than CUDA's.
    config._attn_implementation = "eager"
    model = model_class(config)
    ids = torch.zeros(batch_size, length, dtype=torch.int64)
    return model, {"input_ids": ids, "labels": ids.clone()}


def compare_here(name: str, batch_size: int) -> Comparison:
    import torch
    import torch._inductor.config

    torch.set_num_threads(1)
    torch._inductor.config.force_disable_caches = True
    planned, seconds = planned_peak(name, batch_size, for_cuda=False)
    torch.compiler.reset()
    on_cuda, _ = planned_peak(name, batch_size, for_cuda=True)
    torch.compiler.reset()
    return Comparison(
        name,
        batch_size,
        planned_bytes=planned,
        planned_cuda_bytes=on_cuda,
        plan_seconds=seconds,
        measured_bytes=measured_peak(name, batch_size, compiled=True),
        eager_bytes=measured_peak(name, batch_size, compiled=False),
    )


def compare_in_fresh_process(name: str, batch_size: int) -> Comparison:
    """Compare in a process of its own, since the compiler keeps what it has seen."""
    command = [sys.executable, "-m", "benchmarks.compiled", "--here", name, str(batch_size)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Comparison(**json.loads(output.splitlines()[-1]))


def render(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("model", style="cyan")
    for heading in (
        "batch",
        "eager, run\nMiB",
        "compiled, run\nMiB",
        "planned\nMiB",
        "error\n%",
        "planned for\nA100, MiB",
        "plan\ns",
    ):
        table.add_column(heading, justify="right")
    for one in comparisons:
        table.add_row(
            one.model,
            str(one.batch_size),
            f"{one.eager_bytes / _MIB:.1f}",
            f"{one.measured_bytes / _MIB:.1f}",
            f"{one.planned_bytes / _MIB:.1f}",
            f"{100 * (one.planned_bytes / one.measured_bytes - 1):+.2f}",
            f"{one.planned_cuda_bytes / _MIB:.1f}",
            f"{one.plan_seconds:.1f}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled",
        description="Compare the memory that Inductor plans for a compiled step on fake tensors "
        "with the compiled step on the CPU. It needs a C++ compiler.",
    )
    parser.add_argument("models", nargs="*", help=f"any of {', '.join(MODELS)}; default all")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--here", nargs=2, metavar=("MODEL", "BATCH"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.here:
        sys.stdout.write(json.dumps(asdict(compare_here(chosen.here[0], int(chosen.here[1])))))
        return 0
    names = chosen.models or list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"no such model: {', '.join(unknown)}; choose from {', '.join(MODELS)}")
    found = [compare_in_fresh_process(name, size) for name in names for size in BATCH_SIZES]
    if chosen.json:
        sys.stdout.write(json.dumps({"comparisons": [asdict(one) for one in found]}) + "\n")
    else:
        Console().print(render(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
