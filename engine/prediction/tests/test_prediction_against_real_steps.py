"""Fake tensors compared with real ones: the same step, without CUDA's behaviour."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.interface.workload import Workload
from engine.measurement import cpu
from engine.measurement.protocol import TrialOrder
from engine.step.batches import make_batch
from engine.step.training import build_model, prepare, training_step
from engine.tests.shared import slow, small_workload
from engine.tests.small import SMALL_BOTH
from engine.traces.tracer import trace
from engine.tracing.trace import Category

pytestmark = pytest.mark.usefixtures("small_models")

MODELS = ["bert", "gpt2", "resnet"]
BATCH_SIZE = 3


def predicted_and_measured(workload: Workload) -> tuple[int, int]:
    trial = cpu.run_trial(TrialOrder(workload, BATCH_SIZE))
    assert trial.peak_allocated_bytes is not None
    return trace(workload, BATCH_SIZE, None).peak_by_category()[0], trial.peak_allocated_bytes


@pytest.mark.parametrize(
    ("model", "mode", "optimizer"),
    [
        pytest.param(model, mode, optimizer, marks=() if fast else pytest.mark.slow)
        for model in MODELS
        for mode in ("train", "eval")
        for optimizer in ("none", "sgd", "sgd-momentum", "adamw")
        for fast in [
            (mode, optimizer) == ("train", "adamw")
            or (model, mode, optimizer) == ("gpt2", "eval", "sgd")
        ]
    ],
)
def test_the_peak_is_equal_to_the_byte(model: str, mode: str, optimizer: str) -> None:
    predicted, measured = predicted_and_measured(
        small_workload(model, mode=mode, optimizer=optimizer)
    )
    assert predicted == measured


@pytest.mark.parametrize(
    ("model", "precision"),
    [
        pytest.param(model, precision, marks=() if fast else pytest.mark.slow)
        for model in MODELS
        for precision in ("bf16-true", "bf16-mixed", "fp16-mixed")
        if model != "resnet" or precision == "bf16-true"
        for fast in [(model, precision) in (("bert", "bf16-mixed"), ("gpt2", "bf16-true"))]
    ],
)
def test_the_peak_is_equal_to_the_byte_in_half_precision(model: str, precision: str) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, precision=precision))
    assert predicted == measured


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        pytest.param(model, fields, marks=pytest.mark.slow if rest or model != "bert" else ())
        for model in ("bert", "gpt2")
        for rest, fields in (
            (True, {"optimizer": "adamw-foreach"}),
            (True, {"optimizer": "schedule-free-adamw"}),
            (True, {"optimizer": "muon"}),
            (True, {"optimizer": "muon", "precision": "fp16-mixed"}),
            (True, {"optimizer": "muon", "lora_rank": 4, "precision": "bf16-true"}),
            (True, {"optimizer": "adafactor"}),
            (True, {"optimizer_in_backward": True}),
            (True, {"optimizer_in_backward": True, "optimizer": "adafactor"}),
            (True, {"optimizer_in_backward": True, "gradient_checkpointing": True}),
            (True, {"optimizer": "lion"}),
            (True, {"optimizer": "rmsprop"}),
            (True, {"optimizer": "adagrad"}),
            (True, {"optimizer": "sgd", "precision": "fp16-mixed"}),
            (True, {"optimizer": "adafactor", "precision": "fp16-mixed"}),
            (True, {"gradient_checkpointing": True}),
            (True, {"gradient_checkpointing": True, "checkpoint_every": 2}),
            (False, {"gradient_checkpointing": True, "recompute": "cheap"}),
            (True, {"gradient_checkpointing": True, "recompute": "cheap", "attention": "eager"}),
            (True, {"gradient_checkpointing": True, "checkpoint_every": 2, "lora_rank": 4}),
            (True, {"attention": "eager"}),
            (False, {"attention": "flash", "precision": "bf16-mixed"}),
            (True, {"lora_rank": 4}),
            (True, {"lora_rank": 4, "adapter": "dora"}),
            (
                True,
                {"lora_rank": 4, "gradient_checkpointing": True, "precision": "bf16-mixed"},
            ),
            (True, {"gradient_accumulation": 2}),
            (False, {"gradient_accumulation": 3}),
        )
    ],
    ids=str,
)
def test_the_peak_is_equal_to_the_byte_however_it_is_trained(
    model: str, fields: dict[str, Any]
) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, **fields))
    assert predicted == measured


@pytest.mark.parametrize("model", [slow("gpt2"), "mistral-7b"])
def test_the_peak_is_equal_to_the_byte_with_adam_mini(model: str) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, optimizer="adam-mini"))
    assert predicted == measured


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        pytest.param("bert", fields, marks=() if fast else pytest.mark.slow)
        for fast, fields in (
            (True, {"optimizer": "galore", "optimizer_rank": 8}),
            (False, {"optimizer": "galore", "precision": "bf16-true", "optimizer_rank": 8}),
            (False, {"optimizer": "galore", "optimizer_rank": 8, "optimizer_in_backward": True}),
            (False, {"optimizer": "apollo", "precision": "bf16-true", "optimizer_rank": 8}),
            (False, {"optimizer": "apollo", "optimizer_rank": 1}),
            (False, {"optimizer": "soap"}),
            (False, {"optimizer": "soap", "precision": "bf16-true"}),
            (False, {"optimizer": "shampoo"}),
            (False, {"optimizer": "shampoo", "precision": "bf16-true"}),
        )
    ],
    ids=str,
)
def test_the_peak_is_equal_to_the_byte_where_an_optimizer_refreshes(
    model: str, fields: dict[str, Any]
) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, **fields))
    assert predicted == measured


@pytest.mark.longer
def test_gradients_do_not_all_exist_where_the_optimizer_is_in_backward() -> None:
    usual, released = (
        trace(small_workload("gpt2", optimizer_in_backward=one, sequence_length=2), 1, None)
        for one in (False, True)
    )
    gradients = usual.peak_by_category()[1][Category.GRADIENTS]
    assert released.peak_by_category()[0] < usual.peak_by_category()[0] - gradients / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "module"),
    [
        ("bert", "word_embeddings"),
        pytest.param("gpt2", "wte", marks=pytest.mark.slow),
        pytest.param("mistral-7b", "lm_head", marks=pytest.mark.slow),
    ],
)
def test_the_peak_is_equal_to_the_byte_with_a_module_trained_whole(model: str, module: str) -> None:
    fields = {"lora_rank": 4, "precision": "bf16-true", "modules_to_save": module}
    predicted, measured = predicted_and_measured(small_workload(model, **fields))
    assert predicted == measured
    without, _ = predicted_and_measured(small_workload(model, **fields | {"modules_to_save": None}))
    assert without < predicted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision"),
    [
        pytest.param(model, precision, marks=() if fast else pytest.mark.slow)
        for model in ("bert", "gpt2", "mistral-7b")
        for precision in ("bf16-true", "bf16-mixed")
        for fast in [(model, precision) == ("gpt2", "bf16-mixed")]
    ],
)
def test_the_peak_is_equal_to_the_byte_with_new_tokens_trained(model: str, precision: str) -> None:
    """peft copies the embeddings in each forward pass, and has a gradient as large."""
    fields = {"lora_rank": 4, "precision": precision, "sequence_length": 4}
    predicted, measured = predicted_and_measured(small_workload(model, trained_tokens=3, **fields))
    assert predicted == measured
    without, _ = predicted_and_measured(small_workload(model, **fields))
    assert without < predicted


@pytest.mark.parametrize(
    "model",
    [
        "gpt2",
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("llama-3.2-1b", "t5-small", "whisper")),
    ],
)
def test_the_peak_is_equal_to_the_byte_where_keys_and_values_are_cached(model: str) -> None:
    predicted, measured = predicted_and_measured(small_workload(model, use_cache=True))
    assert predicted == measured


_SEQ2SEQ = SMALL_BOTH | {"vocab_size": 500, "max_position_embeddings": 64}
_GPT2 = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500, "n_positions": 64}
_OPT = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 128,
    "word_embed_proj_dim": 64,
    "vocab_size": 500,
    "max_position_embeddings": 64,
}


@pytest.mark.longer
@pytest.mark.parametrize(
    ("config", "fields"),
    [
        # A target has no mask, so the decoder makes one of ones only, which is dropped.
        ({"model_type": "bart"} | _SEQ2SEQ, {}),
        slow({"model_type": "mbart"} | _SEQ2SEQ, {}),
        slow({"model_type": "opt"} | _OPT, {}),
        # Padded sentences keep theirs.
        ({"model_type": "gpt2"} | _GPT2, {"task": "sequence-classification"}),
        slow({"model_type": "opt"} | _OPT, {"task": "sequence-classification", "use_cache": True}),
    ],
    ids=lambda value: value.get("model_type", str(value)),
)
def test_masks_are_dropped_where_a_real_step_drops_them(
    config: dict[str, Any], fields: dict[str, Any]
) -> None:
    workload = Workload("own", config=config, sequence_length=32, **fields)
    predicted, measured = predicted_and_measured(workload)
    assert predicted == measured


_MIXTURE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "num_local_experts": 4,
    "vocab_size": 500,
    "max_position_embeddings": 64,
}


@pytest.mark.longer
@pytest.mark.parametrize("precision", [slow("fp32"), "bf16-mixed", slow("bf16-true")])
def test_a_mixture_of_experts_is_equal_to_the_byte(precision: str) -> None:
    config = {"model_type": "mixtral"} | _MIXTURE
    predicted, measured = predicted_and_measured(
        Workload("own", config=config, sequence_length=32, precision=precision)  # type: ignore[arg-type]  # as text
    )
    assert predicted == measured


@pytest.mark.longer
@pytest.mark.parametrize("precision", ["bf16-mixed", slow("fp16-mixed")])
def test_in_mixed_precision_batch_norm_keeps_its_statistics_in_fp32(precision: str) -> None:
    predicted, measured = predicted_and_measured(small_workload("resnet", precision=precision))
    assert predicted == measured


# PyTorch's CPU allocator allocates more than tensors: scalars of 8 bytes for comparisons, and
# the reordered copies that oneDNN makes inside a convolution.
SCRATCH_BYTES = {"bert": 0, "gpt2": 64, "resnet": 256 * 1024}


@pytest.mark.parametrize("model", MODELS)
def test_measured_bytes_match_pytorchs_profiler(model: str) -> None:
    workload = small_workload(model)
    training = prepare(workload, build_model(workload))
    batch = make_batch(workload, BATCH_SIZE)
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in (*training.model.parameters(), *training.model.buffers())
    }
    with torch.profiler.profile(profile_memory=True) as profile:
        for _ in range(2):
            training_step(training, batch)
    peak = _peak_of(profile, sum(held.values()))

    trial = cpu.run_trial(TrialOrder(workload, BATCH_SIZE))
    assert trial.peak_allocated_bytes is not None
    assert 0 <= peak - trial.peak_allocated_bytes <= SCRATCH_BYTES[model]


def _peak_of(profile: torch.profiler.profile, held_bytes: int) -> int:
    """The peak of live bytes in the allocations and frees that the profiler saw."""
    assert profile.profiler is not None
    assert profile.profiler.kineto_results is not None
    pending = list(profile.profiler.kineto_results.experimental_event_tree())
    allocations: list[tuple[int, int]] = []
    while pending:
        event = pending.pop()
        pending.extend(event.children)
        if event.tag.name == "Allocation":
            size: int = getattr(event.extra_fields, "alloc_size")  # noqa: B009 - one of a union
            allocations.append((event.start_time_ns, size))
    live = peak = held_bytes
    for _, size in sorted(allocations, key=lambda allocation: allocation[0]):
        live += size
        peak = max(peak, live)
    return peak


@pytest.mark.longer
@pytest.mark.parametrize("model", ["longformer", slow("led")])
def test_long_texts_are_known_to_have_tokens_that_see_all_others(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SMALL_BOTH | {"model_type": model, "vocab_size": 90, "attention_window": [16, 16]}
    if model == "longformer":
        config |= {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    workload = Workload(model, config=config, sequence_length=64)
    monkeypatch.setattr("engine.tracing.kept_values.MAX_KNOWN", 64 * 64)  # no mask of all pairs
    predicted, measured = predicted_and_measured(workload)
    assert predicted == measured
