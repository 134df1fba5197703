"""Answers state what a prediction leaves out where it matters."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.coverage.small_configs import small_config
from engine.gpus import GPUS
from engine.interface.request import AnalysisRequest
from engine.interface.trial import Source, Trial
from engine.interface.workload import Workload
from engine.parallel import interconnect
from engine.parallel.interconnect import accumulation_caveats, unsynchronised_bytes
from engine.prediction.caveats import negatives_caveats, whole_experts
from engine.prediction.predicted_analysis import analyze_predicted
from engine.prediction.refusals import does_not_fit
from engine.prediction.requested_gpu import gpu_facts
from engine.prediction.timing.intervals import RelativeRange
from engine.step import building
from engine.step.batches import Batch
from engine.step.building import cache_caveats, caches_keys_and_values, code_caveats
from engine.step.training import TrainingState, inputs_on_device
from engine.tests.shared import small_workload
from engine.traces import tracer
from engine.tracing.lowering import cuda_behaviour

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("small_models", "kept_traces")]


@pytest.mark.longer
@pytest.mark.parametrize(
    ("model", "convolves"),
    [
        ("resnet", True),
        pytest.param("bert", False, marks=pytest.mark.slow),
        *(
            pytest.param(name, True, marks=pytest.mark.slow)
            for name in ("vit-b", "whisper", "clip")
        ),
    ],
)
def test_a_model_with_convolutions_has_a_caveat_on_cudnn_workspaces(
    model: str, convolves: bool
) -> None:
    request = AnalysisRequest(
        small_workload(model), gpu="t4", batch_multiple=256, memory_limit_bytes=2**30
    )
    caveats = " ".join(analyze_predicted(request, lambda _: None).caveats)
    assert ("cuDNN's convolution workspaces are predicted by a rule" in caveats) is convolves


@pytest.mark.longer
def test_the_range_of_memory_is_that_of_the_recommended_batch() -> None:
    request = AnalysisRequest(
        small_workload("bert"), gpu="t4", batch_multiple=256, memory_limit_bytes=2**30
    )
    result = analyze_predicted(request, lambda _: None)
    trial = next(one for one in result.trials if one.batch_size == result.recommended_batch_size)
    used, low, high = (getattr(trial, f"device_used_{name}bytes") for name in ("", "low_", "high_"))
    said = f"Predicted memory may be off by {RelativeRange(low / used, high / used)}."
    assert [caveat for caveat in result.caveats if caveat.startswith(said)]


@pytest.mark.parametrize(
    ("model", "fields", "said"),
    [
        ("gpt2", {}, "Keys and values are not cached (use_cache), as in Hugging Face's Trainer"),
        ("gpt2", {"use_cache": False}, ""),
        ("gpt2", {"use_cache": True}, ""),
        ("gpt2", {"use_cache": True, "gradient_checkpointing": True}, "switches the key-value"),
        ("bert", {}, ""),
    ],
    ids=str,
)
def test_whether_keys_and_values_are_cached_is_said_where_the_workload_leaves_it_open(
    model: str, fields: dict[str, Any], said: str
) -> None:
    caveats = cache_caveats(small_workload(model, **fields))
    assert [said in caveat for caveat in caveats] == [True] * bool(said)


@pytest.mark.longer
def test_an_answer_about_a_decoder_says_whether_its_cache_is_on() -> None:
    request = AnalysisRequest(
        small_workload("gpt2"), gpu="t4", batch_multiple=256, memory_limit_bytes=2**30
    )
    (said,) = cache_caveats(request.workload)
    assert said in analyze_predicted(request, lambda _: None).caveats


@pytest.mark.parametrize(
    ("model", "said"), [("mamba", "as without causal-conv1d and mamba-ssm"), ("bert", "")]
)
def test_kernels_that_are_not_traced_are_named(model: str, said: str) -> None:
    caveats = code_caveats(Workload("mine", config=small_config(model)))
    assert [said in caveat for caveat in caveats] == [True] * bool(said)


@pytest.mark.parametrize(
    ("fields", "more_is_said"),
    [
        ({"precision": "bf16-mixed"}, True),
        ({"precision": "bf16-true", "lora_rank": 8, "modules_to_save": "lm_head"}, True),
        ({"precision": "bf16-true", "lora_rank": 8}, False),  # no gradient of the head
        ({"precision": "fp32"}, False),  # one copy, as in every release
        ({"precision": "bf16-mixed", "cross_entropy": "model"}, False),
    ],
)
def test_what_earlier_releases_of_liger_need_is_said_where_it_is_more(
    fields: dict[str, Any], more_is_said: bool
) -> None:
    head = {"model_type": "llama", "vocab_size": 128_256, "hidden_size": 4_096}
    caveats = code_caveats(Workload.parse({"config": head, "cross_entropy": "liger"} | fields))
    # 2 bytes of a product and 4 of the same in fp32, for 128,256 words of 4,096 numbers.
    assert ["up to 2.94 GiB more" in caveat for caveat in caveats] == [True] * more_is_said


def test_before_transformers_5_the_trainer_leaves_the_cache_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not caches_keys_and_values(small_workload("gpt2"))
    monkeypatch.setattr(building, "_TRAINER_LEAVES_CACHE", True)
    assert caches_keys_and_values(small_workload("gpt2"))
    assert not caches_keys_and_values(small_workload("gpt2", use_cache=False))
    assert not caches_keys_and_values(small_workload("bert"))
    (said,) = cache_caveats(small_workload("gpt2"))
    assert "are cached (use_cache), as in Hugging Face's Trainer before transformers 5" in said


def shared(**fields: Any) -> Workload:
    return small_workload("bert", **{"world_size": 8, "gradient_accumulation": 4} | fields)


def step_without_sync(training: TrainingState, batch: Batch) -> None:
    """A training step that reduces gradients only in the last micro-batch."""
    model: Any = training.model
    for number in range(1, training.micro_batches + 1):
        model.set_requires_gradient_sync(number == training.micro_batches)
        training.phase = "inputs"
        inputs = inputs_on_device(training, batch)
        training.phase = "forward"
        with training.forward_context():
            loss = model(**inputs).loss
        training.phase = "backward"
        training.scaler.scale(loss / training.micro_batches).backward()
    training.phase = "optimizer"
    assert training.optimizer is not None
    training.optimizer.step()
    model.zero_grad(set_to_none=True)
    training.phase = "idle"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "reduced"),
    [
        ("fp32", 4),
        pytest.param("bf16-mixed", 2, marks=pytest.mark.slow),
        pytest.param("bf16-true", 2, marks=pytest.mark.slow),
    ],
)
def test_fsdp_with_no_sync_needs_at_most_what_the_caveat_says(
    precision: str, reduced: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = shared(parallelism="fsdp", precision=precision)
    peak, parts = tracer.trace(workload, 2, cuda_behaviour(8.0)).peak_by_category()
    monkeypatch.setattr(tracer, "step_of", lambda _: step_without_sync)
    without, kept = tracer.trace(workload, 2, cuda_behaviour(8.0)).peak_by_category()
    own = 2 if precision == "bf16-true" else 4
    count = kept["gradients"] // reduced
    assert kept["gradients"] == count * reduced > parts["gradients"]
    assert unsynchronised_bytes(workload) == count * reduced - count * own // 8
    assert 0 < without - peak <= unsynchronised_bytes(workload)


@pytest.mark.slow
def test_accumulation_on_several_gpus_has_a_caveat_on_no_sync() -> None:
    request = AnalysisRequest(
        shared(parallelism="fsdp"),
        gpu="a10",
        current_batch_size=2,
        batch_multiple=256,
        memory_limit_bytes=2**31,
    )
    (said,) = accumulation_caveats(request.workload)
    assert said in analyze_predicted(request, lambda _: None).caveats
    assert said.startswith("Gradients are synchronised after every micro-batch. Loops that")
    assert said.endswith("keep unsharded gradients on each GPU, which takes up to <0.01 GiB more.")
    (ddp,) = accumulation_caveats(shared(parallelism="ddp"))
    assert ddp.endswith("with no_sync() communicate less, and use the same memory.")
    two = shared(parallelism="fsdp", world_size=2, precision="bf16-mixed")
    assert accumulation_caveats(two)[0].endswith("takes no more memory in this case.")
    assert accumulation_caveats(shared(parallelism="fsdp", gradient_accumulation=1)) == []
    assert accumulation_caveats(small_workload("bert", gradient_accumulation=4)) == []


@pytest.mark.parametrize("rank", [None, 8])
def test_adapters_on_shards_tell_what_fsdp1_takes_beyond(rank: int | None) -> None:
    fields = {"lora_rank": rank, "parallelism": "fsdp", "world_size": 2}
    workload = small_workload("gpt2", **fields)
    found = interconnect.caveats(workload, GPUS["a100-80gb"])
    (sharding,) = (one for one in found if "fully_shard" in one)
    assert ("FSDP1" in sharding) is (rank is not None)


@pytest.mark.longer
@pytest.mark.parametrize(("model", "said"), [("mixtral-8x7b", True), ("llama-3.2-1b", False)])
def test_quantization_says_that_it_leaves_experts_alone(model: str, said: bool) -> None:
    workload = small_workload(model, quantization="nf4", lora_rank=2, lora_targets="q_proj")
    assert bool(whole_experts(workload, tracer.trace(workload, 1, cuda_behaviour(8.0)))) is said


@pytest.mark.parametrize(("model", "said"), [("bge-base", True), ("clip", True), ("bert", False)])
def test_where_samples_are_compared_the_batch_is_part_of_what_is_learned(
    model: str, said: bool
) -> None:
    assert bool(negatives_caveats(small_workload(model))) is said


_OF_WEIGHTS = {"parameters": 90, "activations": 10}
_OF_ACTIVATIONS = {"parameters": 10, "activations": 90}


@pytest.mark.parametrize(
    ("fields", "breakdown", "told"),
    [
        ({}, _OF_WEIGHTS, "Try gradient checkpointing, the optimizer in backward, LoRA, a"),
        (
            {"optimizer": "galore"},
            _OF_WEIGHTS,
            "Try gradient checkpointing, the optimizer in backward, a",
        ),
        ({}, _OF_ACTIVATIONS, "Try gradient checkpointing, a GPU"),
        ({"lora_rank": 4}, _OF_WEIGHTS, "Try gradient checkpointing, weights in 4 bits (nf4), a"),
        ({"lora_rank": 4, "quantization": "nf4"}, _OF_WEIGHTS, "Try gradient checkpointing, a GPU"),
        (
            {"gradient_checkpointing": True, "checkpoint_every": 2},
            _OF_ACTIVATIONS,
            "Try recomputing every layer, a GPU",
        ),
        (
            {"parallelism": "fsdp", "world_size": 2, "gradient_checkpointing": True},
            _OF_ACTIVATIONS,
            "Try offloading the shards to the host, more GPUs, a GPU",
        ),
    ],
)
def test_what_does_not_fit_is_told_what_would_help(
    fields: dict[str, Any], breakdown: dict[str, int], told: str
) -> None:
    request = AnalysisRequest(small_workload("llama-3.2-1b", **fields), gpu="t4")
    trial = Trial(1, False, Source.PREDICTED, peak_allocated_bytes=100, breakdown=breakdown)
    error = does_not_fit(request, trial, gpu_facts(GPUS["t4"]), ["And this."])
    assert told in str(error)
    assert str(error).endswith(". And this.")
