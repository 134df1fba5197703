"""Scripts that shard their model by themselves: ``fully_shard`` is followed, the rest refused."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from engine.allocator.caching import ALLOCATE, FREE
from engine.gpus import GPUS
from engine.parallel.interconnect import NCCL_GROUP_BYTES, link_bytes_per_second
from engine.script.batch_sizes import trace_script_at_every_batch_size
from engine.script.factory import Factory
from engine.script.request import ScriptRequest
from engine.script.tests.scripts import A10, written
from engine.script.trace import CannotTrace, trace_script
from engine.script_analysis import predict_script
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.trace import Category, Trace

A100 = GPUS["a100-80gb"]

SHARDED = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear({width}, 256), nn.Linear(256, {width})

    def forward(self, x):
        return x + self.down(self.up(x).relu())

def make_model():
    return nn.Sequential(nn.Linear(32, {width}), Block(), Block(), Block(), nn.Linear({width}, 6))

def make_step(batch_size):
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    model = make_model().to(device)
    {before}
    for module in (*model[1:4], model):
        fully_shard(module{options})
    {after}
    assert {{parameter.device for parameter in model.parameters()}} == {{device}}
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        for micro in range({micro_batches}):
            model.set_requires_gradient_sync(micro == {micro_batches} - 1)
            model(torch.randn(batch_size, 32, device=device)).square().mean().backward()
        {stepping}
        optimizer.step()
        optimizer.zero_grad()

    return step
"""
BLOCK = ((256, 64), (256,), (64, 256), (64,))
ROOT = ((64, 32), (64,), (6, 64), (6,))

OF_AN_ENGINES_MODEL = """
import torch, torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from engine.parallel.fsdp import repeated_blocks
from engine.step.batches import make_batch
from engine.step.training import build_model
from engine.tests.shared import small_workload

def make_step(batch_size):
    dist.init_process_group("nccl")
    workload = small_workload("{model}")
    model = build_model(workload).cuda()
    for module in (*repeated_blocks(model), model):
        fully_shard(module{options})
    batch = {{name: part.cuda() for name, part in make_batch(workload, batch_size).items()}}
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled={autocast}):
            loss = model(**batch).loss
        (loss / 1).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
"""
BF16 = ", mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)"


@pytest.fixture(autouse=True)
def one_of_four(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As torchrun starts it, with four processes; no group is left to the next test."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    yield
    assert not dist.is_initialized()


def sharded(
    folder: Path,
    options: str = "",
    *,
    before: str = "",
    after: str = "",
    stepping: str = "",
    micro_batches: int = 1,
    width: int = 64,
) -> Factory:
    code = SHARDED.format(
        options=options,
        before=before,
        after=after,
        stepping=stepping,
        micro_batches=micro_batches,
        width=width,
    )
    return written(folder, code, f"mine_{len(list(folder.iterdir()))}")


def padded_bytes(shapes: tuple[tuple[int, ...], ...], processes: int) -> int:
    """Bytes of all parameters, in fp32, each padded to an equal share for every process."""
    return processes * sum(4 * -(-shape[0] // processes) * prod(shape[1:]) for shape in shapes)


def bytes_between_steps(traced: Trace, category: Category) -> int:
    alive = {tensor for kind, tensor in traced.events if kind == ALLOCATE}
    alive -= {tensor for kind, tensor in traced.events if kind == FREE}
    return sum(traced.sizes[one] for one in alive if traced.categories[one] is category)


def communication(traced: Trace) -> list[tuple[str, int, str]]:
    return [
        (op.name, op.bytes_moved, op.phase)
        for op in traced.operations
        if op.name.startswith(("c10d.", "fsdp."))
    ]


def most_at_once(traced: Trace, category: Category) -> int:
    alive = most = 0
    for kind, tensor in traced.events:
        if traced.categories[tensor] is category:
            alive += traced.sizes[tensor] if kind == ALLOCATE else -traced.sizes[tensor]
            most = max(most, alive)
    return most


# What it holds


@pytest.mark.longer
def test_the_first_process_holds_its_share(folder: Path) -> None:
    traced = trace_script(sharded(folder), 4, A10)
    share = padded_bytes((*3 * BLOCK, *ROOT), 4) // 4
    assert traced.world_size == 4
    assert bytes_between_steps(traced, Category.PARAMETERS) == share
    assert bytes_between_steps(traced, Category.OPTIMIZER_STATE) == 2 * share
    assert bytes_between_steps(traced, Category.GRADIENTS) == 0
    assert set(traced.streams) == {0, 1, 2}  # those of gathering and of scattering


@pytest.mark.longer
def test_a_model_without_numbers_gets_its_shards_on_the_gpu(folder: Path) -> None:
    """As in torchtitan: shapes first, shards of them, and memory for these alone."""
    before = "with torch.device('meta'): model = make_model()"
    after = "model.to_empty(device=device)"
    later = trace_script(sharded(folder, before=before, after=after), 4, A10)
    at_once = trace_script(sharded(folder), 4, A10)
    assert later.peak_by_category() == at_once.peak_by_category()


@pytest.mark.slow
@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("model", "mixed"),
    [
        ("bert", False),
        pytest.param("bert", True, marks=pytest.mark.full),
        pytest.param("vit-b", False, marks=pytest.mark.full),
        ("vit-b", True),
    ],
)
def test_a_script_needs_what_the_engines_own_model_does(
    folder: Path, model: str, mixed: bool
) -> None:
    options = BF16 if mixed else ""
    code = OF_AN_ENGINES_MODEL.format(model=model, options=options, autocast=mixed)
    script = trace_script(written(folder, code), 3, A10)
    fields = {"precision": "bf16-mixed"} if mixed else {}
    workload = small_workload(model, parallelism="fsdp", world_size=4, **fields)
    engines = trace(workload, 3, A10)
    (peak, parts), (engines_peak, engines_parts) = (
        traced.peak_by_category() for traced in (script, engines)
    )
    # AdamW keeps a number of steps for each parameter on the host, where only a script has tensors.
    numbers = 4 * len(list(build_model(workload).parameters()))
    assert peak == engines_peak - numbers
    assert parts.pop("optimizer_state") == engines_parts.pop("optimizer_state") - numbers
    for one in (parts, engines_parts):  # a loss may count as either
        one["activations"] += one.pop("temporaries")
    assert parts == engines_parts
    assert communication(script) == communication(engines)


REAL = """
import sys
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.script.factory import Factory

print(cpu.run_trial(TrialOrder(Factory.of(sys.argv[1]), 4)).peak_allocated_bytes)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "micro_batches"),
    [
        pytest.param("", 1, marks=pytest.mark.full),
        pytest.param(", reshard_after_forward=False", 1, marks=pytest.mark.full),
        (", mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32)", 1),
        ("", 3),
    ],
    ids=["default", "kept after forward", "mixed precision", "accumulated"],
)
def test_two_real_processes_need_what_is_predicted_plus_gloos_copies(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: str, micro_batches: int
) -> None:
    factory = sharded(folder, options, micro_batches=micro_batches)
    monkeypatch.setenv("WORLD_SIZE", "2")
    predicted = trace_script(factory, 4, None).peak_by_category()[0]
    # Unlike NCCL, Gloo reduces and scatters a copy of its input; the largest is a block's.
    copied = padded_bytes(BLOCK, 2)
    for measured in in_two_processes(folder, REAL, factory.name):
        assert predicted <= int(measured) <= predicted + copied


def in_two_processes(folder: Path, code: str, argument: str) -> list[str]:
    """Last words of two processes, which find each other as torchrun's do."""
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    here = {"PYTHONPATH": os.pathsep.join([str(Path.cwd()), str(folder)]), "OMP_NUM_THREADS": "1"}
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, argument],
            env=os.environ | here | meeting | {"RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    said = [process.communicate(timeout=120)[0] for process in processes]
    return [text.strip().splitlines()[-1] for text in said]


@pytest.mark.slow
def test_parameters_kept_after_forward_are_gathered_once(folder: Path) -> None:
    def gathered(options: str) -> int:
        done = communication(trace_script(sharded(folder, options), 4, A10))
        return [name for name, _, _ in done].count("c10d._allgather_base_")

    assert gathered(", reshard_after_forward=False") == 4  # three blocks, and the rest
    assert gathered("") == 4 + 3  # each block once more in backward


@pytest.mark.slow
def test_gradients_that_are_not_synchronised_stay_whole(folder: Path) -> None:
    whole = sum(4 * prod(shape) for shape in (*3 * BLOCK, *ROOT))
    apart = trace_script(sharded(folder, micro_batches=2), 4, A10)
    assert most_at_once(apart, Category.GRADIENTS) >= whole


@pytest.mark.slow
def test_a_mesh_of_two_dimensions_shards_over_one_and_reduces_over_the_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesh = 'mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))'
    both = trace_script(sharded(folder, ", mesh=mesh", before=mesh), 4, A10)
    monkeypatch.setenv("WORLD_SIZE", "2")
    two = trace_script(sharded(folder), 4, A10)
    assert both.peak_by_category() == two.peak_by_category()
    reduced = [op for op in communication(both) if op[0] == "c10d.allreduce_"]
    assert [op for op in communication(both) if op not in reduced] == communication(two)
    share = padded_bytes((*3 * BLOCK, *ROOT), 2) // 2
    assert sum(sent for _, sent, _ in reduced) == share  # a ring of two sends each byte once


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines",
    [
        {
            "before": 'with torch.device("meta"): model = make_model()',
            "after": "model.to_empty(device=device); model.apply("
            'lambda one: getattr(one, "reset_parameters", int)())',
        },
        {"before": "model = make_model()"},
        {
            "options": ", mesh=mesh",
            "before": "from torch.distributed.device_mesh import DeviceMesh; "
            'mesh = DeviceMesh(device_type="cuda", mesh=[0, 1, 2, 3])',
        },
        {"stepping": "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()"},
        {"after": "model[1].set_modules_to_forward_prefetch([model[2]])"},
    ],
    ids=["made on meta", "made on the host", "a mesh by its numbers", "clipped", "prefetched"],
)
def test_what_changes_no_peak_changes_none(folder: Path, lines: dict[str, Any]) -> None:
    plain = trace_script(sharded(folder), 4, A10).peak_by_category()
    assert trace_script(sharded(folder, **lines), 4, A10).peak_by_category() == plain


# Every batch size


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", BF16], ids=["fp32", "bf16"])
def test_sizes_are_affine_in_the_batch(folder: Path, options: str) -> None:
    factory = sharded(folder, options)
    traces = trace_script_at_every_batch_size(factory, A10, pytest.fail)
    predicted, traced = traces.at(21), trace_script(factory, 21, A10)
    assert predicted.sizes == traced.sizes
    assert predicted.events == traced.events
    assert predicted.streams == traced.streams
    assert predicted.world_size == 4


# Its answer


@pytest.mark.slow
def test_collectives_take_the_time_of_the_link(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "16")
    factory = sharded(folder, width=64 * 1024)
    request = ScriptRequest(factory, current_batch_size=2, gpu="a100-80gb")
    [trial] = predict_script(request, lambda event: None).trials
    sent = sum(
        sent
        for name, sent, _ in communication(trace_script(factory, 2, A10))
        if name.startswith("c10d.")
    )
    assert trial.step_seconds == pytest.approx(sent / link_bytes_per_second(A100, 16))


@pytest.mark.slow
def test_nccl_takes_memory_and_the_answer_says_what_it_is_of(folder: Path) -> None:
    request = ScriptRequest(sharded(folder), current_batch_size=2, gpu="a100-80gb")
    answer = predict_script(request, lambda event: None)
    [trial] = answer.trials
    assert trial.device_used_bytes is not None
    assert trial.peak_reserved_bytes is not None
    beside = trial.device_used_bytes - trial.peak_reserved_bytes
    assert beside == A100.context_bytes + NCCL_GROUP_BYTES
    told = " ".join(answer.caveats)
    assert "the first of 4 processes" in told
    assert "NCCL is assumed to take 688 MiB" in told
    assert "GB/s" in told


# What is refused


@pytest.mark.parametrize(
    ("lines", "refusal"),
    [
        (
            "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP; FSDP(model)",
            r"FullyShardedDataParallel \(FSDP1\) is not traced; use fully_shard .* "
            r"memorymark predict MODEL --parallelism fsdp\. There is no",
        ),
        (
            "from torch.distributed.fsdp import CPUOffloadPolicy; "
            "fully_shard(model, offload_policy=CPUOffloadPolicy())",
            r"CPUOffloadPolicy .* is not traced; leave the policy out",
        ),
        (
            "from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module; "
            'parallelize_module(model[0], init_device_mesh("cuda", (4,)), ColwiseParallel())',
            "tensor parallelism is not traced; shard with fully_shard alone",
        ),
        (
            "from torch.distributed.tensor import DTensor, Shard; "
            'DTensor.from_local(model[0].weight, init_device_mesh("cuda", (4,)), [Shard(0)])',
            "tensor parallelism is not traced",
        ),
    ],
    ids=["FSDP1", "offload", "tensor parallel", "sharded tensors"],
)
def test_what_is_sharded_otherwise_is_refused_with_what_to_do(
    folder: Path, lines: str, refusal: str
) -> None:
    with pytest.raises(CannotTrace, match=rf"at mine_0\.py, line 25 .*: {refusal}"):
        trace_script(sharded(folder, before=lines), 2, A10)
