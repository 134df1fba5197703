"""Configs that transformers would make another model of than their own."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.interface.workload import Workload
from engine.models.presets import PRESETS
from engine.step.building import check_given
from engine.step.own_code import unread_caveats, why_another_model

BERT = PRESETS["bert"].config()
VIT = PRESETS["vit-b"].config()
LLAMA = PRESETS["llama-3.2-1b"].config()
CLIP = PRESETS["clip"].config()
BART = PRESETS["bart-large"].config()
LARGE = {"hidden_size": 5120, "num_hidden_layers": 40}


def given(config: dict[str, Any]) -> Workload:
    return Workload.parse({"model": "mine", "config": config})


@pytest.mark.parametrize(
    ("config", "says"),
    [
        (LLAMA | {"architectures": ["MyLlamaForCausalLM"]}, "has no class MyLlamaForCausalLM"),
        (VIT | {"auto_map": {"AutoModel": "org/repo--modeling.WideViT"}}, "has no class WideViT"),
        ({"model_type": "llava", "hidden_size": 5120}, "does not read hidden_size 5,120"),
        (CLIP | {"num_hidden_layers": 40}, "does not read num_hidden_layers 40"),
        ({"model_type": "phi", "n_embd": 2560, "n_layer": 32}, "does not read n_embd 2,560"),
        ({"model_type": "glm", "padded_vocab_size": 65024}, "not read padded_vocab_size 65,024"),
        (LLAMA | {"architectures": "MyLlamaForCausalLM"}, "has no class MyLlamaForCausalLM"),
        ({"model_type": "phi", "n_layer": 12}, "does not read n_layer 12"),
        ({"model_type": "llama", "n_layer": 12, "n_head": 12}, "n_layer 12, n_head 12"),
        ({"model_type": "vit", "hidden_sizes": [64, 128], "depths": [2, 2]}, r"sizes \[64, 128\]"),
        ({"model_type": "vit", "depth": 24, "width": 1024}, "depth 24, width 1,024"),
        ({"model_type": "llava", "llm_config": LARGE}, r"llm_config \(hidden_size 5,120, num_h"),
        ({"model_type": "llama", "text_config": LARGE}, r"text_config \(hidden_size 5,120, num_"),
    ],
    ids=[
        *("class", "code", "another layout", "sizes of no part", "old names", "padded"),
        *("a text", "few layers", "few heads", "stages", "depth", "language model", "text"),
    ],
)
def test_another_model_is_refused_with_what_was_not_read(config: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as raised:
        check_given(given(config))
    assert "predict your training script" in raised.value.fields["config"]


def test_other_unread_sizes_are_told() -> None:
    workload = given(BERT | {"num_adapters": 2, "adapter_dim": 64, "norm_eps": 64})
    check_given(workload)
    (caveat,) = unread_caveats(workload)
    assert "bert does not read adapter_dim 64 of the config" in caveat


def test_a_size_by_another_name_may_be_that_of_the_class() -> None:
    workload = given(LLAMA | {"n_embd": LLAMA["hidden_size"]})
    check_given(workload)
    assert "does not read n_embd" in unread_caveats(workload)[0]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"num_experts_per_layer": 8}, "num_experts_per_layer 8"),
        ({"visual": {"width": 1, "hidden_size": 1280}}, "visual (width 1, hidden_size 1,280)"),
        ({"d_model": 2048}, "d_model 2,048"),
        ({"window_sizes": [16, 32]}, "window_sizes [16, 32]"),
        ({"depth": LLAMA["num_hidden_layers"]}, "depth 16"),
    ],
    ids=["few experts", "a part", "a width", "a list", "a depth"],
)
def test_what_may_be_another_model_is_named(more: dict[str, Any], named: str) -> None:
    assert named in unread_caveats(given(LLAMA | more))[0]


@pytest.mark.parametrize(
    "more",
    [{"n_ctx": 2048}, {"image_size": [224, 224]}, {"num_beams": 4}, {"depths": []}, {"width": 0.5}],
)
def test_what_is_no_size_of_a_model_is_not_named(more: dict[str, Any]) -> None:
    check_given(given(LLAMA | more))
    assert unread_caveats(given(LLAMA | more)) == []


def test_a_part_that_says_what_the_class_takes_anyway_is_no_other_model() -> None:
    usual = {"hidden_size": 4096, "num_hidden_layers": 32}
    workload = given({"model_type": "llama", "language_config": usual})
    check_given(workload)
    assert "language_config (hidden_size 4,096" in unread_caveats(workload)[0]


def test_a_config_that_contradicts_itself_says_how() -> None:
    with pytest.raises(InvalidInput) as raised:
        check_given(given(LLAMA | {"hidden_size": 2049}))
    assert "2049" in raised.value.fields["config"]


def test_a_size_that_a_part_has_too_is_read() -> None:
    text = CLIP["text_config"] | {"hidden_size": 256, "num_attention_heads": 4}
    check_given(given(CLIP | {"text_config": text, "hidden_size": 256}))


@pytest.mark.parametrize(("written", "named"), [(24, []), (32, ["qk_head_dim 32"])])
def test_a_size_that_the_class_computes_is_named_where_it_differs(
    written: int, named: list[str]
) -> None:
    heads = {"qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "qk_head_dim": written}
    found = unread_caveats(given({"model_type": "glm_moe_dsa"} | heads))
    assert len(found) == len(named)
    assert all(name in caveat for caveat, name in zip(found, named, strict=True))


@pytest.mark.parametrize("config", [BERT, VIT, LLAMA, CLIP, BART])
def test_published_sizes_are_all_read(config: dict[str, Any]) -> None:
    named = config | {
        "architectures": [str(name).upper() for name in config.get("architectures", ())]
    }
    check_given(given(named))
    assert unread_caveats(given(named)) == []


@pytest.mark.parametrize("name", [name for name, one in PRESETS.items() if not one.package])
def test_no_presets_config_is_another_model(name: str) -> None:
    assert why_another_model(given(PRESETS[name].config())) == ""


def test_presets_are_not_asked() -> None:
    assert unread_caveats(Workload.parse({"model": "bert"})) == []
