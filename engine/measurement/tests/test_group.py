"""Measuring on several GPUs: one process each, and none is left behind."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.nn import Module

from engine.core.errors import InvalidInput, MeasurementFailed
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.measurement import checks, measured_analysis, parent
from engine.measurement.measured_analysis import measure_batch
from engine.measurement.parent import (
    OutOfTime,
    measure,
    measure_first_run,
    merged,
    record,
    run_together,
)
from engine.measurement.protocol import GAVE_UP, DeviceFacts, TrialOrder
from engine.measurement.trial_process import Ended
from engine.models.presets import PRESETS
from engine.parallel.group import place
from engine.parallel.interconnect import NCCL_PAIR_BYTES
from engine.step.training import build_model
from engine.traces.tracer import trace

SMALL = PRESETS["bert"].config() | {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
}
BATCH_SIZE = 3


def shared(parallelism: str, **fields: Any) -> Workload:
    given = {"model": "small", "config": SMALL, "sequence_length": 16, "world_size": 2}
    return Workload.parse(given | {"parallelism": parallelism} | fields)


def trial(**fields: Any) -> Trial:
    return replace(Trial(8, True, Source.MEASURED, 100, 200, 300, 0.5, 32.0), **fields)


# Real processes, over Gloo


@pytest.mark.slow
@pytest.mark.parametrize("as_view", [False, True])
def test_measured_ddp_equals_predicted_ddp_to_the_byte(as_view: bool) -> None:
    workload = shared("ddp", gradient_accumulation=2, gradient_as_bucket_view=as_view)
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    peak, breakdown = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert found.fits
    assert found.peak_allocated_bytes == peak
    if as_view:  # a gradient being copied to its bucket may count as either
        for parts in (found.breakdown, breakdown):
            parts["gradients"] += parts.pop("temporaries")
    assert found.breakdown == breakdown
    assert found.step_seconds is not None
    assert found.samples_per_second == pytest.approx(2 * 2 * BATCH_SIZE / found.step_seconds)


TEXTS = PRESETS["gpt2"].config() | {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 1000}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{"method": "dpo"}, {"method": "grpo", "completion_length": 20}], ids=str
)
def test_measured_methods_in_ddp_equal_predicted_ones(fields: dict[str, Any]) -> None:
    workload = shared("ddp", config=TEXTS, sequence_length=64, **fields)
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    assert found.fits, found.failure
    assert found.peak_allocated_bytes == trace(workload, BATCH_SIZE, None).peak_by_category()[0]


@pytest.mark.slow
def test_measured_fsdp_equals_predicted_fsdp_plus_gloos_copies() -> None:
    workload = shared("fsdp")
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**30))
    predicted, parts = trace(workload, BATCH_SIZE, None).peak_by_category()
    assert found.peak_allocated_bytes is not None
    # Unlike NCCL, Gloo reduces and scatters a copy of its input; the largest is the root's.
    copied = _bytes_of_the_root(build_model(workload))
    assert predicted <= found.peak_allocated_bytes <= predicted + copied
    assert found.breakdown["optimizer_state"] == parts["optimizer_state"]


def _bytes_of_the_root(model: Module) -> int:
    inside = sum(p.nbytes for name, p in model.named_parameters() if ".layer." in name)
    padding = sum(p.nbytes // len(p) for p in model.parameters())
    return sum(p.nbytes for p in model.parameters()) - inside + padding


@pytest.mark.slow
def test_none_is_left_waiting_when_one_runs_out_of_memory() -> None:
    workload = shared("ddp")
    begin = time.monotonic()
    found = measure(TrialOrder(workload, BATCH_SIZE, memory_limit_bytes=2**20))
    assert not found.fits
    assert "out of memory in" in found.failure
    assert time.monotonic() - begin < parent.DEADLINE_SECONDS / 2


@pytest.mark.slow
def test_a_step_is_recorded_as_the_first_process_sees_it() -> None:
    workload = shared("ddp")
    step = record(TrialOrder(workload, BATCH_SIZE))
    peak = max(sum(point.bytes.values()) for point in step.timeline)
    assert peak == trace(workload, BATCH_SIZE, None).peak_by_category()[0]
    assert all(not tensor.module.startswith("module") for tensor in step.largest_tensors)


# What is made of their answers


def test_a_group_needs_as_much_as_its_largest_process() -> None:
    needy = trial(peak_allocated_bytes=150, peak_reserved_bytes=180, breakdown={"casts": 150})
    found = merged({0: trial(alloc_retries=0), 1: replace(needy, alloc_retries=2)})
    assert found == replace(needy, peak_reserved_bytes=200, alloc_retries=2)


def test_a_group_fits_only_if_all_of_it_does() -> None:
    found = merged({0: trial(), 1: trial(fits=False, failure="out of memory in backward")})
    assert not found.fits
    assert found.failure == "GPU 1: out of memory in backward"


def test_a_group_of_one_is_unchanged() -> None:
    failed = trial(fits=False, failure="out of memory in backward")
    assert merged({0: trial()}) == trial()
    assert merged({0: failed}) == failed


# Processes side by side


def worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str, grace_seconds: float = 0.5
) -> list[str]:
    """A process that reads its order into ``order`` and then runs the lines."""
    monkeypatch.setattr(parent, "GRACE_SECONDS", grace_seconds)
    script = tmp_path / "child.py"
    begin = ["import json, os, sys, time", "what, _, order = input().rpartition('trial ')"]
    script.write_text("\n".join([*begin, *lines]))
    command = [sys.executable, str(script)]
    monkeypatch.setattr(parent, "CHILD", command)
    return command


def test_each_process_gets_its_own_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = worker(monkeypatch, tmp_path, "print(order.upper())")
    ended = run_together(command, ["one", "two"], {}, 60)
    assert {number: end.answer for number, end in ended.items()} == {0: "ONE", 1: "TWO"}


@pytest.mark.longer
def test_none_is_left_waiting_when_one_dies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = worker(
        monkeypatch, tmp_path, "if order == 'dies': sys.exit('no such kernel')", "time.sleep(600)"
    )
    begin = time.monotonic()
    ended = run_together(command, ["waits", "dies", "waits"], {}, 600)
    assert ended == {1: Ended(1, "", "no such kernel")}
    assert time.monotonic() - begin < 300


def test_processes_that_hang_are_ended_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = worker(monkeypatch, tmp_path, "time.sleep(60)")
    with pytest.raises(OutOfTime):
        run_together(command, ["", ""], {}, 0.3)


def test_out_of_memory_counts_over_the_failures_it_causes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker(
        monkeypatch,
        tmp_path,
        "rank = json.loads(order)['rank']",
        "if rank == 0: sys.exit('connection closed by peer')",
        "time.sleep(0.2)",
        "print(json.dumps({'batch_size': 3, 'fits': False, 'source': 'measured', 'failure': 'oom'}",
        "), flush=True)",
        f"os._exit({GAVE_UP})",
        grace_seconds=60,  # it ends with the last of them, and a busy machine may start it late
    )
    found = measure(TrialOrder(shared("ddp"), BATCH_SIZE))
    assert not found.fits
    assert found.failure == "GPU 1: oom"


def test_a_failure_other_than_memory_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worker(monkeypatch, tmp_path, "sys.exit(f\"rank {json.loads(order)['rank']} has no kernel\")")
    with pytest.raises(MeasurementFailed, match=r"the trial failed: rank [01] has no kernel"):
        measure(TrialOrder(shared("ddp"), BATCH_SIZE))


def test_the_processes_of_a_group_share_one_rendezvous(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    worker(
        monkeypatch,
        tmp_path,
        "told = json.loads(order)",
        f"open({str(seen)!r} + f'/{{told[\"rank\"]}}', 'w').write(told['meeting_file'])",
        "print(json.dumps({'batch_size': 3, 'fits': True, 'source': 'measured'}))",
    )
    measure(TrialOrder(shared("ddp"), BATCH_SIZE))
    places = {path.name: path.read_text() for path in seen.iterdir()}
    assert set(places) == {"0", "1"}
    assert len(set(places.values())) == 1


# What a machine cannot do


def test_offloaded_shards_are_predicted_only() -> None:
    model = build_model(shared("fsdp", cpu_offload=True))
    with pytest.raises(InvalidInput) as refused:
        place(model, shared("fsdp", cpu_offload=True), "cpu")
    assert "predicted only" in refused.value.fields["cpu_offload"]


@pytest.mark.parametrize(
    ("device", "limit_bytes", "message"),
    [
        (DeviceFacts("cuda", "NVIDIA A10", 2**34, 2**28, 8.6), 2**30, r"has 1 GPU\(s\)"),
        (DeviceFacts("cpu", "CPU", 2**32, 0, 0.0, 1), 2**30, r"1 core\(s\)"),
        (
            DeviceFacts("cpu", "CPU", 2**32, 0, 0.0, 8),
            3 * 2**30,
            r"2 times 3\.00 GiB is more than",
        ),
    ],
)
def test_more_gpus_than_the_machine_has_are_refused_before_anything_runs(
    device: DeviceFacts, limit_bytes: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_analysis, "local_device", lambda: device)
    request = AnalysisRequest(shared("ddp"), gpu="local", memory_limit_bytes=limit_bytes)
    with pytest.raises(InvalidInput, match=message):
        measure_batch(request, print)


def test_a_check_of_backward_is_refused_like_an_analysis(monkeypatch: pytest.MonkeyPatch) -> None:
    one = DeviceFacts("cuda", "NVIDIA A10", 2**34, 2**28, 8.6)
    monkeypatch.setattr(checks, "local_device", lambda: one)
    with pytest.raises(InvalidInput, match=r"has 1 GPU\(s\)"):
        checks.validate_backward(shared("ddp"), BATCH_SIZE, "local")


def test_nccls_memory_is_taken_off_each_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    two = DeviceFacts("cuda", "NVIDIA A10", 2**34, 2**28, 8.6, count=2)
    monkeypatch.setattr(measured_analysis, "local_device", lambda: two)
    monkeypatch.setattr(measured_analysis, "measure", lambda order: trial(fits=False))
    gpu, _, _ = measure_batch(AnalysisRequest(shared("ddp"), gpu="local"), print)
    assert gpu.usable_bytes == 2**34 - 2**28 - NCCL_PAIR_BYTES


def test_first_steps_are_only_timed_on_one_gpu() -> None:
    with pytest.raises(InvalidInput, match="on one GPU"):
        measure_first_run(TrialOrder(shared("ddp"), BATCH_SIZE), Path("compiled"))


def test_an_order_has_the_rank_of_its_process() -> None:
    order = TrialOrder(shared("fsdp"), BATCH_SIZE, rank=1, meeting_file="/tmp/met")  # noqa: S108  # no file is made
    assert TrialOrder.from_json(order.to_json()) == order
    assert json.loads(order.to_json())["rank"] == 1
    assert order.samples_per_step == 2 * BATCH_SIZE
