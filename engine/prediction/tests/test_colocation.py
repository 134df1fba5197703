"""GRPO with vLLM beside it: its share, its sleep, and which of update and generation decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from engine.answer.training_config import training_configs
from engine.core.errors import InvalidInput
from engine.gpus import GPUS, Gpu
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.prediction.memory.colocation import (
    OUTSIDE_BYTES,
    _awake_bytes,
    vllm_caveats,
    why_vllm_fails,
)
from engine.prediction.probe import predict_trial
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace

pytestmark = pytest.mark.usefixtures("small_models")

A100 = GPUS["a100-80gb"]


def colocated(**fields: Any) -> Workload:
    return small_workload(
        "llama-3.2-1b", method="grpo", optimizer="sgd", **{"rollout": "vllm"} | fields
    )


@pytest.fixture
def update() -> Trace:
    """Trace of what every workload here does between two generations."""
    return trace(colocated(rollout="server"), 2, cuda_behaviour(A100.compute_capability))


def trial_of(update: Trace, gpu: Gpu = A100, **fields: Any) -> Trial:
    return predict_trial(colocated(**fields), gpu, update)


def smaller(more_bytes: int) -> Gpu:
    """A GPU with so many bytes beside its context."""
    return replace(A100, total_bytes=A100.context_bytes + more_bytes)


def test_the_update_has_what_the_share_leaves(update: Trace) -> None:
    alone, beside = trial_of(update, rollout="server"), trial_of(update)
    share = A100.total_bytes * 30 // 100
    assert alone.device_used_bytes is not None
    assert beside.device_used_bytes == alone.device_used_bytes + share
    assert beside.peak_reserved_bytes == alone.peak_reserved_bytes
    assert alone.source is Source.PREDICTED
    assert beside.source is Source.COMPUTED


def test_asleep_vllm_leaves_the_update_all_but_a_remainder(update: Trace) -> None:
    alone = trial_of(update, rollout="server")
    needed, live = alone.peak_reserved_bytes, alone.peak_allocated_bytes
    assert needed is not None
    assert live is not None
    tight = smaller(needed + OUTSIDE_BYTES)
    assert not trial_of(update, tight, vllm_share=60).fits
    asleep = trial_of(update, tight, vllm_sleep=True, vllm_share=5)
    assert asleep.fits
    assert asleep.device_used_bytes == tight.total_bytes
    assert not trial_of(update, smaller(live + OUTSIDE_BYTES - 1), vllm_sleep=True).fits


def test_awake_it_has_to_fit_beside_what_training_keeps(update: Trace) -> None:
    held = sum(update.held_between_steps().values())
    awake = A100.context_bytes + held + A100.total_bytes * 95 // 100
    trial = trial_of(update, vllm_sleep=True, vllm_share=95)
    assert trial.fits
    assert trial.device_used_bytes == awake
    (told,) = vllm_caveats(colocated(vllm_sleep=True, vllm_share=95), A100, update)
    assert told.startswith("Of generation and update, generation needs more memory")

    gpu = replace(A100, context_bytes=A100.total_bytes // 20 + 1)
    trial = trial_of(update, gpu, vllm_sleep=True, vllm_share=95)
    assert not trial.fits
    assert "while it generates" in trial.failure


def test_a_share_below_the_weights_is_refused(update: Trace) -> None:
    gpu = replace(A100, total_bytes=2**25, context_bytes=0)
    trial = trial_of(update, gpu, vllm_sleep=True, vllm_share=1)
    assert not trial.fits
    assert "vLLM does not start: its 1%" in trial.failure
    assert why_vllm_fails(colocated(), A100) == ""


def weights_of(**fields: Any) -> list[int]:
    model = build_model(small_workload("llama-3.2-1b", **fields))
    return [parameter.numel() for parameter in model.parameters()]


SHARDED: dict[str, Any] = {"world_size": 4, "precision": "bf16-mixed", "vllm_sleep": True}


@pytest.mark.parametrize("parallelism", ["fsdp", "zero-1", "zero-2", "zero-3"])
def test_each_gpu_needs_a_share_for_whole_weights_beside_shards(parallelism: str) -> None:
    whole = 2 * sum(weights_of())
    workload = colocated(**SHARDED, parallelism=parallelism, kl_reference=True, vllm_share=1)
    gpu = replace(A100, total_bytes=100 * whole, context_bytes=0)
    assert "vLLM does not start" in why_vllm_fails(workload, gpu)
    assert why_vllm_fails(workload, replace(gpu, total_bytes=100 * whole + 100)) == ""
    halved = replace(workload, vllm_tensor_parallel=2)
    assert why_vllm_fails(halved, gpu) == ""


@pytest.mark.parametrize(
    ("fields", "number_bytes", "gathered"),
    [
        ({"parallelism": "zero-2"}, 0, max),
        ({"parallelism": "zero-3"}, 2, max),
        ({"parallelism": "zero-3", "lora_rank": 4}, 2, sum),
        ({"parallelism": "fsdp"}, 4, max),
    ],
    ids=str,
)
def test_divided_weights_are_gathered_to_hand_them_over(
    update: Trace,
    fields: dict[str, Any],
    number_bytes: int,
    gathered: Callable[[list[int]], int],
) -> None:
    """``_iter_named_params`` of TRL 1.16: one at a time, and all where adapters are merged."""
    workload = colocated(**SHARDED | {"vllm_sleep": False}, **fields)
    held = sum(update.held_between_steps().values())
    awake = A100.context_bytes + held + A100.total_bytes * 30 // 100
    sizes = weights_of(lora_rank=fields.get("lora_rank"))
    assert _awake_bytes(workload, A100, update) == awake + number_bytes * gathered(sizes)
    asleep = replace(workload, vllm_sleep=True)  # its cache, most of its share, comes later
    assert _awake_bytes(asleep, A100, update) == awake


@pytest.mark.slow
def test_on_shards_training_keeps_less_beside_vllm() -> None:
    workload = colocated(**SHARDED, parallelism="zero-3", vllm_share=40)
    traced = trace(workload, 2, cuda_behaviour(A100.compute_capability))
    trial = predict_trial(workload, A100, traced)
    assert trial.source is Source.COMPUTED
    assert trial.fits
    assert trial.device_used_bytes is not None
    assert trial.device_used_bytes >= A100.total_bytes * 40 // 100


def test_the_update_decides_where_vllm_stays(update: Trace) -> None:
    (told,) = vllm_caveats(colocated(), A100, update)
    assert "the update decides" in told
    assert vllm_caveats(colocated(rollout="server"), A100, update) == []


def test_the_lines_to_paste_set_up_vllm() -> None:
    (config,) = training_configs(colocated(vllm_share=40, vllm_sleep=True), 4)
    assert '    vllm_mode="colocate",\n' in config.text
    assert "    vllm_gpu_memory_utilization=0.4,\n" in config.text
    assert "    vllm_enable_sleep_mode=True,\n" in config.text
    assert "    vllm_tensor_parallel_size=1,\n" in config.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"vllm_share": 40}, "vllm_share"),
        ({"method": "grpo", "vllm_sleep": True}, "vllm_sleep"),
        ({"method": "grpo", "vllm_tensor_parallel": 2}, "vllm_tensor_parallel"),
        (
            {"method": "grpo", "rollout": "vllm", "vllm_tensor_parallel": 2},
            "vllm_tensor_parallel",
        ),
        ({"method": "ppo", "rollout": "vllm"}, "rollout"),
        (
            {"method": "grpo", "rollout": "vllm", "lora_rank": 4, "quantization": "int8"},
            "rollout",
        ),
    ],
    ids=str,
)
def test_what_does_not_combine_is_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        small_workload("llama-3.2-1b", **fields)
    assert list(error.value.fields) == [field]
