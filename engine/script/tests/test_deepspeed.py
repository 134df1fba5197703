"""A script on DeepSpeed has the memory of the same training run, described by its settings."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.allocator.caching import ALLOCATE
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.parallel.zero_division import Division
from engine.script.on_import import when_imported
from engine.script.process.deepspeed_config import (
    batch_sizes,
    division_of,
    fields_of,
    not_followed,
    read,
)
from engine.script.program import Program
from engine.script.tests.scripts import A10
from engine.script.trace import CannotTrace, trace_script
from engine.tests.shared import slow, small_workload
from engine.tests.small import made_small
from engine.traces.tracer import trace
from engine.tracing.trace import Category, Trace

pytestmark = pytest.mark.torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 8,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 2,
        "reduce_bucket_size": 2e8,
        "overlap_comm": True,
        "offload_optimizer": {"device": "cpu"},
    },
}
FIELDS = {
    "precision": "bf16-mixed",
    "parallelism": "zero-2",
    "world_size": 8,
    "current_batch_size": 8,
    "gradient_accumulation": 4,
    "reduce_bucket_size": 200_000_000,
    "overlap_comm": True,
    "optimizer_offload": True,
}


def test_the_fields_of_an_analysis_say_what_the_config_says() -> None:
    assert fields_of(CONFIG, 8) == FIELDS
    AnalysisRequest.parse({"model": "qwen3-0.6b", "gpu": "a100-80gb", **FIELDS})


@pytest.mark.parametrize(
    ("config", "gpus", "expected"),
    [
        ({}, 1, {}),
        ({}, 2, {"parallelism": "ddp", "world_size": 2}),
        ({"zero_optimization": {"stage": 1}}, 1, {"parallelism": "zero-1"}),
        ({"train_micro_batch_size_per_gpu": "auto"}, 1, {}),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
            1,
            {"parallelism": "zero-3", "cpu_offload": True},
        ),
        # Stage 3 has no second bucket, and what is on a disk is not predicted.
        (
            {
                "zero_optimization": {
                    "stage": 3,
                    "overlap_comm": True,
                    "offload_optimizer": {"device": "nvme"},
                }
            },
            1,
            {"parallelism": "zero-3"},
        ),
    ],
)
def test_what_a_config_leaves_open_is_left_open(
    config: dict[str, Any], gpus: int, expected: dict[str, Any]
) -> None:
    assert fields_of(config, gpus) == {"precision": "bf16-mixed", **expected}


def _written(config: dict[str, Any], folder: Path) -> str:
    (folder / "ds.json").write_text(json.dumps(config))
    return str(folder / "ds.json")


@pytest.mark.parametrize(
    "give",
    [
        lambda config, folder: config,
        _written,
        lambda config, folder: base64.urlsafe_b64encode(json.dumps(config).encode()).decode(),
    ],
)
def test_a_config_may_be_given_in_each_way_that_deepspeed_takes(
    give: Callable[[dict[str, Any], Path], object], tmp_path: Path
) -> None:
    assert read(give(CONFIG, tmp_path)) == CONFIG


@pytest.mark.parametrize("config", [None, "no.json", "[1]", "e30x"])
def test_what_is_no_config_says_nothing(config: object) -> None:
    assert read(config) == {}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"train_micro_batch_size_per_gpu": 4}, (4, 1)),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2}, (4, 2)),
        ({"train_batch_size": 64}, (8, 1)),
        ({"train_batch_size": 64, "gradient_accumulation_steps": 2}, (4, 2)),
        ({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2}, (2, 4)),
    ],
)
def test_two_of_three_sizes_tell_the_third(
    config: dict[str, Any], expected: tuple[int, int]
) -> None:
    assert batch_sizes(config, 8) == expected


def test_a_config_says_how_weights_are_divided() -> None:
    assert division_of(CONFIG, 8) == Division(2, 8, 200_000_000, overlaps=True, micro_batches=4)
    three = {
        "stage": 3,
        "overlap_comm": True,
        "stage3_max_reuse_distance": 2e6,
        "stage3_prefetch_bucket_size": 1e6,
        "stage3_max_live_parameters": 3e6,
        "stage3_param_persistence_threshold": 1e4,
    }
    expected = Division(
        3,
        2,
        reuse_elements=2_000_000,
        ahead_elements=1_000_000,
        live_elements=3_000_000,
        small_elements=10_000,
    )
    assert division_of({"zero_optimization": three}, 2) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"zero_optimization": {"stage": 2}}, []),
        ({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}}, []),
        ({}, ["zero_optimization.stage 0"]),
        (CONFIG, []),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "nvme"}}},
            ["zero_optimization.offload_optimizer"],
        ),
        (
            {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}},
            ["zero_optimization.offload_param"],
        ),
        (
            {"zero_optimization": {"stage": 1}, "torch_autocast": {"enabled": True}},
            ["torch_autocast"],
        ),
        (
            {"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}},
            ["zero_optimization.zero_hpz_partition_size"],
        ),
        (CONFIG | {"data_types": {"grad_accum_dtype": None}}, []),
        (CONFIG | {"data_types": {"grad_accum_dtype": "bfloat16"}}, []),
        (CONFIG | {"data_types": {"grad_accum_dtype": "fp32"}}, ["data_types.grad_accum_dtype"]),
    ],
)
def test_what_is_not_computed_is_named(config: dict[str, Any], expected: list[str]) -> None:
    assert list(not_followed(config)) == expected


PACKAGE = """
import sys, torch
from types import ModuleType
class FusedAdam: pass  # which compiles a kernel where it is made
class Schedule:
    def __init__(self, optimizer, warmup_num_steps): self.optimizer = optimizer
    def step(self): assert self.optimizer.state, "the schedule follows the step"
schedules = ModuleType("deepspeed.runtime.lr_schedules")
schedules.WarmupLR = Schedule
sys.modules[schedules.__name__] = schedules
def initialize(**given): raise SystemExit("the engine runs on real tensors alone")
def init_distributed(dist_backend=None, auto_mpi_discovery=True):
    assert not auto_mpi_discovery, "there is no MPI"
    torch.distributed.init_process_group("nccl")
"""
"""The part of the package that a script calls; the tests do not install it."""

TRAINING = """
import argparse, json, torch
{first}
import deepspeed
from transformers import AutoModelForCausalLM, GPT2Config
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int)
size = parser.parse_args().batch
deepspeed.init_distributed()
model = AutoModelForCausalLM.from_config(GPT2Config.from_dict({model}))
config = {config} | {{"train_micro_batch_size_per_gpu": size}}
engine, _, _, _ = deepspeed.initialize(
    model=model, optimizer={optimizer}, model_parameters=model.parameters(), config=config
)
for _ in range(5 * engine.gradient_accumulation_steps()):
    ids = torch.randint(0, 1000, (size, 128), device=engine.device)
    loss = engine(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss
    engine.backward(loss)
    engine.step()
"""
ADAMW = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
GPUS_OF_RUN = 4


@pytest.fixture
def traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Trace]:
    """Traces a script that trains a small GPT-2 with a DeepSpeed config."""
    monkeypatch.setenv("WORLD_SIZE", str(GPUS_OF_RUN))
    (tmp_path / "deepspeed.py").write_text(PACKAGE)

    def trace_with(config: dict[str, Any], optimizer: str = "None", first: str = "") -> Trace:
        model = made_small(PRESETS["gpt2"].config())
        code = TRAINING.format(config=config, optimizer=optimizer, first=first, model=model)
        (tmp_path / "train.py").write_text(code)
        return trace_script(Program(str(tmp_path / "train.py"), (), "--batch"), 4, A10)

    return trace_with


def _config(stage: int, **more: Any) -> dict[str, Any]:
    zero = {"stage": stage, "reduce_bucket_size": 20_000}
    return {"bf16": {"enabled": True}, "zero_optimization": zero, **more}


def _described(stage: int, **more: Any) -> Workload:
    """The same training run as settings without a script."""
    return small_workload(
        "gpt2",
        parallelism=f"zero-{stage}",
        world_size=GPUS_OF_RUN,
        precision="bf16-mixed",
        reduce_bucket_size=20_000,
        sequence_length=128,
        **more,
    )


def _peak(trace: Trace) -> int:
    live = most = 0
    for index, (kind, tensor) in enumerate(trace.events):
        live += trace.sizes[tensor] if kind == ALLOCATE else -trace.sizes[tensor]
        most = max(most, live) if index >= trace.last_step else most
    return most


@pytest.mark.slow
@pytest.mark.parametrize("stage", [slow(1), 2, slow(3)])
@pytest.mark.usefixtures("small_models")
def test_a_script_needs_what_the_same_settings_need(
    stage: int, traced: Callable[..., Trace]
) -> None:
    """Its batches come from elsewhere, and its loss is divided by the micro-batches: some bytes."""
    config = _config(stage, gradient_accumulation_steps=2, **ADAMW)
    found = traced(config)
    described = _described(stage, gradient_accumulation=2)
    assert _peak(found) == pytest.approx(_peak(trace(described, 4, A10)), rel=0.01)
    assert found.world_size == GPUS_OF_RUN
    assert found.computed
    assert any(f"ZeRO {stage} is computed" in caveat for caveat in found.caveats)


@pytest.mark.slow
@pytest.mark.parametrize("stage", [slow(1), 2, slow(3)])
@pytest.mark.parametrize("micro_batches", [1, slow(2)])
@pytest.mark.usefixtures("small_models")
def test_an_optimizer_on_the_host_leaves_what_the_same_settings_leave(
    stage: int, micro_batches: int, traced: Callable[..., Trace]
) -> None:
    config = _config(stage, gradient_accumulation_steps=micro_batches, **ADAMW)
    config["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    found = traced(config)
    described = _described(stage, gradient_accumulation=micro_batches, optimizer_offload=True)
    expected = trace(described, 4, A10)
    assert _peak(found) == pytest.approx(_peak(expected), rel=0.01)
    assert found.host_bytes == pytest.approx(expected.host_bytes, rel=0.15)  # whole at first
    assert not any(category is Category.OPTIMIZER_STATE for category in found.categories)
    assert any("optimizer runs on the host" in caveat for caveat in found.caveats)


@pytest.mark.slow
def test_the_optimizer_of_a_script_updates_its_part_of_the_weights(
    traced: Callable[..., Trace],
) -> None:
    """``foreach``, PyTorch's default on a GPU, makes temporaries as large as the part."""
    fused = traced(_config(2, **ADAMW))
    own = traced(_config(2), "torch.optim.AdamW(model.parameters())")
    plain = traced(_config(2, optimizer={"type": "SGD", "params": {"lr": 0.1}}))
    moments = _kept(fused, Category.OPTIMIZER_STATE)
    assert _kept(own, Category.OPTIMIZER_STATE) == pytest.approx(moments, rel=0.01)
    assert _kept(plain, Category.OPTIMIZER_STATE) == pytest.approx(moments / 3, rel=0.01)
    assert _made_in_optimizer(own) > moments / 4 > _made_in_optimizer(fused)


def _made_in_optimizer(trace: Trace) -> int:
    """Bytes allocated in the last step while the optimizer was at work."""
    made, phase = 0, ""
    phases = dict(trace.phases)
    for index, (kind, tensor) in enumerate(trace.events):
        phase = phases.get(index, phase)
        if index >= trace.last_step and phase == "optimizer" and kind == ALLOCATE:
            made += trace.sizes[tensor]
    return made


def _kept(trace: Trace, category: Category) -> int:
    """Bytes of a category between steps."""
    alive: set[int] = set()
    for kind, tensor in trace.events:
        (alive.add if kind == ALLOCATE else alive.discard)(tensor)
    return sum(trace.sizes[one] for one in alive if trace.categories[one] is category)


@pytest.mark.longer
def test_a_schedule_of_the_config_follows_the_step(traced: Callable[..., Trace]) -> None:
    schedule = {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}
    assert traced(_config(2, scheduler=schedule, **ADAMW)).sizes


@pytest.mark.parametrize("first", ["", "import importlib.util as u; u.find_spec('deepspeed')"])
def test_what_is_not_computed_gets_the_command_that_predicts_the_same(
    first: str, traced: Callable[..., Trace]
) -> None:
    config = _config(3, gradient_accumulation_steps=4, **ADAMW)
    config["zero_optimization"]["offload_param"] = {"device": "cpu"}
    with pytest.raises(CannotTrace) as refused:
        traced(config, first=first)
    said = str(refused.value)
    assert "train.py, line 12" in said
    assert "zero_optimization.offload_param" in said
    assert "memorymark analyze MODEL --current-batch-size 4 --precision bf16-mixed" in said
    assert "--parallelism zero-3 --world-size 4" in said
    assert "--cpu-offload" in said


@pytest.mark.parametrize(
    ("config", "optimizer", "reason"),
    [
        (_config(2), "None", "trains nothing"),
        (_config(2, optimizer={"type": "OneBitAdam"}), "None", "OneBitAdam is not traced"),
        (_config(2), "len", "int is not an optimizer"),
    ],
)
def test_without_an_optimizer_that_is_known_it_is_refused(
    config: dict[str, Any], optimizer: str, reason: str, traced: Callable[..., Trace]
) -> None:
    if optimizer == "len":
        optimizer = "lambda parameters: len(list(parameters))"
    with pytest.raises(CannotTrace, match=reason):
        traced(config, optimizer)


def test_a_module_is_changed_whether_or_not_it_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names = ("loaded_before", "loaded_after")
    for name in names:
        (tmp_path / f"{name}.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    changed: list[str] = []
    __import__("loaded_before")
    when_imported({name: partial(changed.append, name) for name in names})
    assert changed == ["loaded_before"]
    __import__("loaded_after")
    assert changed == ["loaded_before", "loaded_after"]
