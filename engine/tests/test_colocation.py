"""GRPO with vLLM beside it: its share, its sleep, and which of update and generation decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.answer.training_config import training_configs
from engine.errors import InvalidInput
from engine.gpus import GPUS, Gpu
from engine.prediction.colocation import OUTSIDE_BYTES, vllm_caveats, why_vllm_fails
from engine.prediction.probe import predict_trial
from engine.prediction.tracer import trace
from engine.result import Source, Trial
from engine.tests.conftest import small_workload
from engine.tracing.lowering import cuda_behaviour
from engine.tracing.trace import Trace
from engine.workload import Workload

pytestmark = pytest.mark.usefixtures("small_models")

A100 = GPUS["a100-80gb"]


def colocated(**fields: Any) -> Workload:
    return small_workload(
        "llama-3.2-1b", method="grpo", optimizer="sgd", **{"rollout": "vllm"} | fields
    )


@pytest.fixture
def update() -> Trace:
    """Of what every workload here does between two generations."""
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
    assert why_vllm_fails(colocated(), A100, update) == ""


def test_the_update_decides_where_vllm_stays(update: Trace) -> None:
    (told,) = vllm_caveats(colocated(), A100, update)
    assert "the update decides" in told
    assert vllm_caveats(colocated(rollout="server"), A100, update) == []


def test_the_lines_to_paste_set_up_vllm() -> None:
    (config,) = training_configs(colocated(vllm_share=40, vllm_sleep=True), 4)
    assert '    vllm_mode="colocate",\n' in config.text
    assert "    vllm_gpu_memory_utilization=0.4,\n" in config.text
    assert "    vllm_enable_sleep_mode=True,\n" in config.text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"vllm_share": 40}, "vllm_share"),
        ({"method": "grpo", "vllm_sleep": True}, "vllm_sleep"),
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
