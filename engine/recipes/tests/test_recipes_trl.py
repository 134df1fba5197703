"""Recipes of TRL: which of its commands is meant, and the keys that scripts have beside its own."""

from __future__ import annotations

import pytest

from engine.recipes import parse_recipe
from engine.recipes.tests.test_recipes import (
    AXOLOTL,
    LLAMA_FACTORY,
    MS_SWIFT,
    TRL,
    _refused,
    _request,
)


@pytest.mark.parametrize("method", ["dpo", "kto", "orpo"])
def test_the_command_of_trl_is_given_beside(method: str) -> None:
    text = f"{TRL}beta: 0.1\nmax_prompt_length: 512\nmax_length: 2048\n"
    refused = _refused(text)
    assert refused.keys() == {"beta", "max_prompt_length"}
    assert "but dpo, kto, orpo, cpo, grpo do; pass the right --method" in refused["beta"]
    workload = _request(text, method=method).workload
    assert (workload.method, workload.sequence_length) == (method, 2048)


@pytest.mark.parametrize(
    ("written", "method"),
    [
        ("num_generations: 8\nmax_completion_length: 512\n", "grpo"),
        ("loss_type: apo_zero\nbeta: 0.05\n", "dpo"),
        ("loss_type: [sigmoid, sft]\n", "dpo"),
        ("desirable_weight: 1.0\n", "kto"),
        ("loss_type: simpo\ncpo_alpha: 0.0\n", "orpo"),
        ("cpo_alpha: 1.0\n", "orpo"),
        ("kl_coef: 0.05\nsft_model_path: Qwen/Qwen3-0.6B\nreward_model_path: gpt2\n", "ppo"),
    ],
)
def test_the_command_of_trl_is_told_by_its_keys(written: str, method: str) -> None:
    recipe = parse_recipe(f"{TRL}{written}", {"sequence_length": 1024, "gpu": "a100-80gb"})
    assert recipe.fields["method"] == method
    assert any("is told by the keys; --method says another" in note for note in recipe.notes)


def test_trl_tells_where_completions_are_generated() -> None:
    text = f"{TRL}num_generations: 8\nmax_completion_length: 512\nuse_vllm: true\n"
    workload = _request(text, sequence_length=1024).workload
    assert (workload.method, workload.completion_length) == ("grpo", 512)
    assert (workload.rollout, workload.vllm_share) == ("vllm", 30)


@pytest.mark.parametrize(
    "text",
    [
        f"{TRL}loss_type: simpo\ncpo_alpha: %s\n",
        f"{AXOLOTL}rl: simpo\ncpo_alpha: %s\n",
        f"{MS_SWIFT}rlhf_type: cpo\ncpo_alpha: %s\n",
        f"{MS_SWIFT}rlhf_type: simpo\ncpo_alpha: %s\n",
    ],
)
def test_cpo_and_simpo_are_said_to_be_predicted_as_orpo(text: str) -> None:
    whole, without = parse_recipe(text % 1.0), parse_recipe(text % 0)
    assert whole.fields["method"] == without.fields["method"] == "orpo"
    assert any("CPO and SimPO are predicted as ORPO" in note for note in whole.notes)
    assert not any("copies of their logits" in note for note in whole.notes)
    assert any("copies of their logits" in note for note in without.notes)


def test_simpo_of_llama_factory_always_has_the_likelihood() -> None:
    recipe = parse_recipe(LLAMA_FACTORY.replace("sft", "dpo") + "pref_loss: simpo\n")
    assert recipe.fields["method"] == "orpo"
    assert any("CPO and SimPO are predicted as ORPO" in note for note in recipe.notes)


def test_ppo_has_a_reward_model_of_its_own() -> None:
    text = f"{TRL}response_length: 53\nsft_model_path: Qwen/Qwen3-1.7B\n"
    text += "gradient_accumulation_steps: 4\nper_device_train_batch_size: 2\n"
    assert "pass --sequence-length" in _refused(text)["response_length"]
    assert "is no preset" in _refused(text, sequence_length=512)["reward_model_path"]
    of_preset = f"{text}reward_model_path: Qwen/Qwen3-0.6B\n"
    workload = _request(of_preset, sequence_length=512).workload
    assert (workload.model, workload.reward_model) == ("qwen3-1.7b", "qwen3-0.6b")
    assert (workload.completion_length, workload.steps_per_generation) == (53, 4)


def test_a_teacher_is_refused_with_another_way() -> None:
    refused = _refused(f"{TRL}teacher_model_name_or_path: Qwen/Qwen3-8B\n")
    assert "--method distillation --teacher" in refused["teacher_model_name_or_path"]


def test_keys_of_a_script_about_its_data_are_not_used_and_named() -> None:
    """As alignment-handbook and open-r1 add them to TRL's by classes of their own."""
    text = f"{TRL}dataset_mixture: {{a: 1}}\nchat_template: x\nsystem_prompt: y\nhub_name: z\n"
    recipe = parse_recipe(text)
    assert {"dataset_mixture", "chat_template", "system_prompt"} < set(recipe.unused)
    assert any("Not keys of TRL 1.9.0, and about data or logs" in note for note in recipe.notes)
    for name in ("spectrum_config_path", "data_parallel_size", "log_entropy", "vllm_device"):
        assert "has no such key" in _refused(f"{TRL}{name}: 2\n")[name]


def test_keys_are_read_by_the_names_of_earlier_releases() -> None:
    recipe = parse_recipe(f"{TRL}max_seq_length: 4096\nuse_liger: true\n")
    assert recipe.fields["sequence_length"] == 4096
    assert recipe.fields["cross_entropy"] == "liger"
    assert any("max_seq_length is read as max_length" in note for note in recipe.notes)
    both = _refused(f"{TRL}max_seq_length: 4096\nmax_length: 512\n")
    assert "line 3: TRL 1.9.0 has no such key" in both["max_seq_length"]


@pytest.mark.parametrize(
    "text",
    [
        f"{MS_SWIFT}rlhf_type: dpo\nuse_liger_kernel: true\n",
        f"{MS_SWIFT}rlhf_type: kto\nuse_liger_kernel: true\n",
        LLAMA_FACTORY.replace("stage: sft", "stage: dpo") + "enable_liger_kernel: true\n",
    ],
)
def test_liger_is_not_said_to_compute_a_loss_where_it_computes_none(text: str) -> None:
    recipe = parse_recipe(text)
    assert "cross_entropy" not in recipe.fields
    (said,) = (note for note in recipe.notes if "Liger" in note)
    assert "training of this kind does not use its loss" in said
    assert "the answer is too high" in said


@pytest.mark.parametrize(
    ("text", "method", "key"),
    [
        (f"{TRL}use_liger_kernel: true\nbeta: 0.1\n", "dpo", "use_liger_kernel"),
        (f"{TRL}use_liger_kernel: true\nbeta: 0.1\n", "grpo", "use_liger_kernel"),
        (f"{AXOLOTL}rl: dpo\ndpo_use_liger_kernel: true\n", None, "dpo_use_liger_kernel"),
        (f"{MS_SWIFT}rlhf_type: grpo\nuse_liger_kernel: true\n", None, "use_liger_kernel"),
    ],
)
def test_ligers_losses_of_answers_are_refused_by_name(
    text: str, method: str | None, key: str
) -> None:
    given = {"sequence_length": 1024} | ({"method": method} if method else {})
    refused = _refused(text, **given)
    assert "Liger's loss of answers keeps no logits" in refused[key]
    assert "take it out" in refused[key]
