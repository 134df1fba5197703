from __future__ import annotations

import sys
from typing import Any

import pytest

from engine.core.errors import EngineError, InvalidInput
from engine.interface.workload import Workload
from engine.step.training import build_model
from engine.tests.shared import small_workload
from engine.traces.tracer import trace
from engine.tracing.lowering import cuda_behaviour

A10 = cuda_behaviour(8.6)

pytestmark = pytest.mark.usefixtures("small_models")


def peak(workload: Workload) -> int:
    return trace(workload, 16, cuda_behaviour(8.6)).peak_by_category()[0]


def trainable_share(workload: Workload) -> float:
    parameters = list(build_model(workload).parameters())
    trained = sum(p.numel() for p in parameters if p.requires_grad)
    return trained / sum(p.numel() for p in parameters)


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize(
    ("model", "count", "says"),
    [("vit-b", 2, "no embeddings of tokens"), ("bert", 60_000, "tokens; enter fewer")],
)
def test_tokens_that_are_not_there_are_not_trained(model: str, count: int, says: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload(model, lora_rank=2, trained_tokens=count))
    assert says in raised.value.fields["trained_tokens"]


@pytest.mark.longer
def test_checkpointing_takes_less_memory() -> None:
    whole = small_workload("bert", sequence_length=128)
    checkpointed = small_workload("bert", sequence_length=128, gradient_checkpointing=True)
    assert peak(checkpointed) < 0.8 * peak(whole)


@pytest.mark.slow
def test_lora_with_checkpointing_is_refused_where_peft_fails() -> None:
    both = {"lora_rank": 2, "gradient_checkpointing": True}
    with pytest.raises(InvalidInput) as raised:
        trace(small_workload("swin-t", **both), 2, A10)
    assert "Swin-T" in raised.value.fields["gradient_checkpointing"]
    assert trace(small_workload("vit-b", **both), 2, A10).events


def test_a_module_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("bert", lora_rank=2, modules_to_save="pooler, lm_head"))
    assert "is called lm_head;" in raised.value.fields["modules_to_save"]


def test_a_model_without_checkpointing_says_so() -> None:
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("resnet", gradient_checkpointing=True))
    assert "ResNet-50" in raised.value.fields["gradient_checkpointing"]


@pytest.mark.slow
def test_cached_keys_and_values_are_saved_unless_layers_are_recomputed() -> None:
    def each(**fields: Any) -> int:
        """Bytes a sample adds to the peak."""
        workload = small_workload("gpt2", sequence_length=64, optimizer="none", **fields)
        three, five = (trace(workload, size, A10).peak_by_category()[0] for size in (3, 5))
        return (five - three) // 2

    both = 2 * 2 * 64 * 64 * 4  # layers, keys and values, tokens, width, fp32
    assert each(use_cache=True) - each(use_cache=False) == both
    checkpointed = each(use_cache=True, gradient_checkpointing=True)
    assert checkpointed == each(use_cache=False, gradient_checkpointing=True)


@pytest.mark.longer
def test_eager_attention_stores_the_scores() -> None:
    long = {"sequence_length": 512}
    assert peak(small_workload("bert", attention="eager", **long)) > 2 * peak(
        small_workload("bert", **long)
    )


def test_lora_trains_a_small_share_of_the_parameters() -> None:
    assert trainable_share(small_workload("gpt2", lora_rank=2)) < 0.1


@pytest.mark.parametrize("model", ["gpt2", "bert"])
def test_lora_warns_of_nothing(model: str, recwarn: pytest.WarningsRecorder) -> None:
    build_model(small_workload(model, lora_rank=2))
    assert [str(one.message) for one in recwarn if "peft" in one.filename] == []


@pytest.mark.longer
def test_lora_keeps_state_for_the_adapters_only() -> None:
    whole, lora = (
        trace(small_workload("bert", lora_rank=rank), 2, None).peak_by_category()[1]
        for rank in (None, 2)
    )
    assert lora["optimizer_state"] < 0.2 * whole["optimizer_state"]


def test_lora_can_target_named_layers() -> None:
    model = build_model(small_workload("bert", lora_rank=2, lora_targets="query, value"))
    adapted = {name.split(".lora_")[0] for name, _ in model.named_parameters() if "lora_" in name}
    assert {name.rsplit(".", 1)[-1] for name in adapted} == {"query", "value"}


def test_unknown_lora_targets_are_listed() -> None:
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("bert", lora_rank=2, lora_targets="no_such_module"))
    assert "no_such_module" in raised.value.fields["lora_targets"]


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
@pytest.mark.parametrize("model", ["bert", "distilbert", "roberta", "gpt2", "qwen3-0.6b"])
def test_lora_trains_a_classifiers_whole_head(model: str, task: str) -> None:
    """DistilBERT's head has two parts; peft refuses to adapt a layer it trains whole."""
    built = build_model(small_workload(model, task=task, lora_rank=2))
    assert [n for n, p in built.named_parameters() if "modules_to_save" in n and p.requires_grad]


def test_all_linear_is_not_advised_where_peft_fails_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("Target modules {'a', 'l', 'i'} not found in the base model")

    monkeypatch.setattr("peft.get_peft_model", refuse)
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("bert", lora_rank=2))
    assert raised.value.fields["lora_targets"].endswith("enter module names, such as q_proj,v_proj")


def test_named_lora_targets_do_not_adapt_the_head_either() -> None:
    with pytest.raises(InvalidInput) as raised:
        build_model(small_workload("distilbert", lora_rank=2, lora_targets="pre_classifier"))
    assert "pre_classifier" in raised.value.fields["lora_targets"]


def test_lora_without_peft_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(EngineError, match="pip install peft"):
        build_model(small_workload("bert", lora_rank=2))


def test_a_frozen_backbone_trains_the_head() -> None:
    model = build_model(small_workload("bert", frozen_backbone=True))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"classifier.weight", "classifier.bias"}


def test_a_detectors_frozen_backbone_is_its_image_encoder() -> None:
    model = build_model(small_workload("detr", frozen_backbone=True))
    trained = {name.split(".")[1] for name, p in model.named_parameters() if p.requires_grad}
    assert {"encoder", "decoder"} <= trained
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen
    assert all(name.startswith("model.backbone.") for name in frozen)


def test_a_frozen_backbone_with_nothing_left_to_train_is_refused() -> None:
    with pytest.raises(InvalidInput, match="GPT-2 has nothing left to train"):
        build_model(small_workload("gpt2", frozen_backbone=True))


@pytest.mark.slow
def test_accumulation_holds_the_gradients_through_the_next_forward() -> None:
    once, twice, often = (
        peak(small_workload("bert", gradient_accumulation=count)) for count in (1, 2, 64)
    )
    assert once < twice == often
