"""Properties of every recipe of every framework."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from engine.interface.request import FIELDS
from engine.recipes import FRAMEWORKS, InvalidRecipe, parse_recipe
from engine.recipes.framework import Framework
from engine.recipes.tables import Form, Key, Role

FEWEST: dict[str, dict[str, Any]] = {
    "axolotl": {"base_model": "meta-llama/Llama-3.2-1B"},
    "llama-factory": {"model_name_or_path": "Qwen/Qwen3-0.6B", "stage": "sft"},
    "torchtune": {
        "model": {"_component_": "torchtune.models.llama3_2.llama3_2_1b"},
        "tokenizer": {"max_seq_len": 512},
        "checkpointer": {"checkpoint_dir": "/tmp/model"},  # noqa: S108
        "optimizer": {"_component_": "torch.optim.AdamW"},
        "loss": {"_component_": "torch.nn.CrossEntropyLoss"},
        "batch_size": 2,
    },
    "trl": {"model_name_or_path": "Qwen/Qwen3-0.6B", "dataset_name": "our/data"},
    "ms-swift": {"model": "Qwen/Qwen3-0.6B", "tuner_type": "full", "max_length": 512},
}
"""The least that a recipe of each needs."""

_VALUES: dict[Form, Any] = {
    Form.SWITCH: True,
    Form.WHOLE: 3,
    Form.NUMBER: 0.5,
    Form.TEXT: "something",
    Form.NAMES: "something",
    Form.MAPPING: {"something": 1},
    Form.ANY: "something",
}


def _read(name: str, more: dict[str, Any]) -> Any:
    return parse_recipe(json.dumps(FEWEST[name] | more), {}, name)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_least_recipe_is_read(name: str) -> None:
    recipe = _read(name, {})
    assert recipe.request({"gpu": "a100-80gb"}).workload.sequence_length


def _done_with(name: str, key: str) -> set[str]:
    """Use of a key that has some value: read, not used, refused."""
    known = FRAMEWORKS[name].keys[key]
    try:
        recipe = _read(name, {key: _VALUES[known.form]})
    except InvalidRecipe as error:
        return {"refused"} if error.fields else set()
    read, unused = key in recipe.read, key in recipe.unused
    return {word for word, is_so in (("read", read), ("not used", unused)) if is_so}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_known_key_is_used_or_listed_or_refused(name: str) -> None:
    for key, known in FRAMEWORKS[name].keys.items():
        done = _done_with(name, key)
        assert len(done) == 1, key
        if known.role is Role.REFUSED:
            assert done == {"refused"}, key
        elif known.role is Role.UNUSED and name != "trl":  # whose commands have keys of their own
            assert done == {"not used"}, key


@pytest.mark.parametrize("name", FRAMEWORKS)
@given(key=st.from_regex(r"[a-z][a-z_]{2,20}", fullmatch=True))
def test_an_unknown_key_is_refused_by_its_name(name: str, key: str) -> None:
    framework = FRAMEWORKS[name]
    if key in framework.keys or framework.also({key: 1}):
        return
    with pytest.raises(InvalidRecipe) as error:
        _read(name, {key: 1})
    assert "is not known" in error.value.fields[key]
    assert framework.release in error.value.fields[key]


_AXOLOTL: dict[str, Any] = {
    "base_model": "meta-llama/Llama-3.2-1B",
    "adapter": "qlora",
    "load_in_4bit": True,
    "lora_r": 8,
    "lora_target_modules": ["q_proj", "v_proj"],
    "sequence_len": 1024,
    "sample_packing": True,
    "micro_batch_size": 2,
    "batch_size": 8,
    "bf16": True,
    "gradient_checkpointing": True,
    "plugins": ["axolotl.integrations.liger.LigerPlugin"],
    "liger_fused_linear_cross_entropy": True,
    "optimizer": "paged_adamw_8bit",
    "output_dir": "out",
}


@given(order=st.permutations(list(_AXOLOTL)))
def test_the_order_of_keys_does_not_matter(order: list[str]) -> None:
    shuffled = yaml.safe_dump({key: _AXOLOTL[key] for key in order}, sort_keys=False)
    found, usual = parse_recipe(shuffled), parse_recipe(json.dumps(_AXOLOTL))
    assert found.fields == usual.fields
    assert sorted(found.read) == sorted(usual.read)
    assert found.notes == usual.notes


_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
_INNER = [
    "stage", "device", "version", "zero_optimization", "offload_optimizer", "offload_param",
    "bf16", "fp16", "reduce_bucket_size", "reshard_after_forward", "auto_wrap_policy",
    "offload_params", "_component_", "max_seq_len", "packed", "lora_rank", "lora_attn_modules",
    "apply_lora_to_mlp", "num_output_chunks", "fused", "x",
]  # fmt: skip
_ANY = st.recursive(
    _PLAIN,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_INNER), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.parametrize("name", FRAMEWORKS)
@given(data=st.data())
def test_no_value_of_a_known_key_breaks_the_reader(name: str, data: st.DataObject) -> None:
    keys = st.sampled_from(sorted(FRAMEWORKS[name].keys))
    more = data.draw(st.dictionaries(keys, _ANY, max_size=4))
    beside = {"gpu": "a100-80gb", "sequence_length": 128, "world_size": 2}
    text = json.dumps(FEWEST[name] | more)
    with suppress(InvalidRecipe):  # in words; anything else fails the test
        parse_recipe(text, beside, name).request(beside)


@pytest.mark.parametrize("framework", FRAMEWORKS.values(), ids=lambda one: one.name)
def test_a_table_is_of_its_kind(framework: Framework) -> None:
    for name, key in framework.keys.items():
        assert key.field in {"", *FIELDS}, name
        assert (key.role is Role.REFUSED) == bool(key.reason), name
    assert framework.needed <= framework.keys.keys() | {"base_model"}
    assert framework.marks <= framework.keys.keys()


def test_defaults_have_the_form_that_is_asked_for() -> None:
    forms = {Form.SWITCH: bool, Form.WHOLE: int, Form.TEXT: str}
    for framework in FRAMEWORKS.values():
        for name, key in framework.keys.items():
            assert _is_default(key, forms), (framework.name, name)


def _is_default(key: Key, forms: dict[Form, type]) -> bool:
    kind = forms.get(key.form)
    return kind is None or key.default is None or isinstance(key.default, kind)
