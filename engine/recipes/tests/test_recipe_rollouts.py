"""Recipes of GRPO, under each framework's names; and patterns for LoRA's modules."""

from __future__ import annotations

from typing import Any

import pytest

from engine.core.errors import InvalidInput
from engine.features.adapters import adapted_modules, is_pattern
from engine.interface.request import AnalysisRequest
from engine.interface.workload import Workload
from engine.recipes import InvalidRecipe, Recipe, parse_recipe
from engine.step.training import build_model
from engine.tests.shared import small_workload

GIVEN = {"gpu": "h100", "sequence_length": 2048}
AXOLOTL = """
base_model: Qwen/Qwen3-0.6B
rl: grpo
micro_batch_size: 4
gradient_accumulation_steps: 2
trl:
  max_completion_length: 256
  num_generations: 4
  reward_funcs: [rewards.length]
"""
MS_SWIFT = """
model: Qwen/Qwen3-0.6B
tuner_type: full
torch_dtype: bfloat16
rlhf_type: grpo
max_length: 1024
max_completion_length: 256
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
"""
TRL = """
model_name_or_path: Qwen/Qwen3-0.6B
dtype: bfloat16
max_completion_length: 256
num_generations: 4
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
"""


def _read(text: str, **given: object) -> Recipe:
    return parse_recipe(text, GIVEN | given)


def _request(text: str, **given: object) -> AnalysisRequest:
    return _read(text, **given).request(GIVEN | given)


def _workload(text: str, **given: object) -> Workload:
    return _request(text, **given).workload


def _refused(text: str, **given: object) -> dict[str, str]:
    with pytest.raises(InvalidRecipe) as error:
        _request(text, **given)
    return error.value.fields


@pytest.mark.parametrize("text", [AXOLOTL, MS_SWIFT, TRL], ids=["axolotl", "ms-swift", "trl"])
def test_a_generation_fills_the_batches_of_an_optimizer_step(text: str) -> None:
    workload = _workload(text)
    assert workload.method == "grpo"
    assert (workload.completion_length, workload.sequence_length) == (256, 2048)
    assert workload.steps_per_generation == 2
    assert workload.rollout == "generate"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (AXOLOTL, "  generation_batch_size: 32\n"),
        (MS_SWIFT, "generation_batch_size: 32\n"),
        (TRL, "generation_batch_size: 32\n"),
    ],
    ids=["axolotl", "ms-swift", "trl"],
)
def test_samples_of_a_generation_are_those_of_all_gpus(text: str, line: str) -> None:
    assert _workload(text + line, world_size=2).steps_per_generation == 4
    assert "not a multiple of the 12" in str(_refused(text + line, current_batch_size=12))


@pytest.mark.parametrize(
    ("text", "refers"),
    [
        (AXOLOTL, False),
        (AXOLOTL + "  beta: 0.01\n", True),
        (AXOLOTL + "rl_beta: 0.01\n", True),
        (AXOLOTL + "  beta: 0\nrl_beta: 0.01\n", False),
        (MS_SWIFT, True),  # 0.04 there
        (MS_SWIFT + "beta: 0.0\n", False),
        (TRL, False),
        (TRL + "normalize_advantages: true\n", True),  # RLOO has 0.05
        (TRL + "normalize_advantages: true\nbeta: 0.0\n", False),
    ],
)
def test_a_reference_is_there_where_beta_is_above_zero(text: str, refers: bool) -> None:
    assert _workload(text).kl_reference is refers


@pytest.mark.parametrize(
    ("text", "share", "sleeps", "gpus"),
    [
        (AXOLOTL + "  use_vllm: true\n", 30, False, 1),
        (AXOLOTL + "  use_vllm: true\n  vllm_mode: colocate\n", 90, False, 1),
        (
            AXOLOTL + "  use_vllm: true\n  vllm_mode: colocate\n  vllm_enable_sleep_mode: true\n"
            "vllm:\n  gpu_memory_utilization: 0.4\n  tensor_parallel_size: 2\n",
            40, True, 2,
        ),
        (MS_SWIFT + "use_vllm: true\nvllm_mode: colocate\n", 90, False, 1),
        (
            MS_SWIFT + "use_vllm: true\nvllm_mode: colocate\nvllm_gpu_memory_utilization: 0.5\n"
            "sleep_level: 1\nvllm_tensor_parallel_size: 2\n",
            50, True, 2,
        ),
        (TRL + "use_vllm: true\n", 30, False, 1),
    ],
)  # fmt: skip
def test_vllm_takes_the_share_that_the_framework_gives_it(
    text: str, share: int, sleeps: bool, gpus: int
) -> None:
    fields = _read(text, world_size=2).fields
    assert fields["rollout"] == "vllm"
    assert (fields["vllm_share"], fields["vllm_sleep"]) == (share, sleeps)
    assert (fields.get("vllm_tensor_parallel") or 1) == gpus


@pytest.mark.parametrize(
    "text",
    [
        AXOLOTL + "  use_vllm: true\n  vllm_mode: server\n",
        MS_SWIFT + "use_vllm: true\nvllm_mode: server\n",
        TRL + "use_vllm: true\nvllm_mode: server\n",
    ],
)
def test_a_server_takes_nothing_of_these_gpus(text: str) -> None:
    assert _workload(text).rollout == "server"


def test_ms_swifts_max_length_is_that_of_the_prompt_in_grpo() -> None:
    given = {"gpu": "h100"}
    assert parse_recipe(MS_SWIFT, given).request(given).workload.sequence_length == 1024 + 256


def test_axolotls_sequence_len_limits_no_prompt_in_grpo() -> None:
    with pytest.raises(InvalidRecipe) as error:
        parse_recipe(AXOLOTL, {"gpu": "h100"})
    assert "--sequence-length" in error.value.fields["sequence_len"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (AXOLOTL.replace("  max_completion_length: 256\n", ""), "trl", "no limit"),
        (AXOLOTL + "  use_data_producer: true\n", "trl", "while it updates"),
        (AXOLOTL + "  replay_buffer_size: 64\n", "trl", "keeps groups"),
        (AXOLOTL + "  use_liger_loss: true\n", "trl", "use_liger_loss"),
        (AXOLOTL + "  beat: 0.1\n", "trl", "has no beat in it"),
        (AXOLOTL.replace("grpo", "ebft"), "rl", "grpo"),
        (MS_SWIFT + "offload_model: true\n", "offload_model", "not predicted"),
        (MS_SWIFT + "use_vllm: true\n", "vllm_mode", "server or colocate"),
        (MS_SWIFT + "use_liger_kernel: true\n", "use_liger_kernel", "take it out"),
        (MS_SWIFT.replace("grpo", "gkd"), "rlhf_type", "grpo"),
        (MS_SWIFT + "train_iters: 100\n", "recipe", "Megatron"),
    ],
)
def test_ways_of_grpo_that_are_not_predicted_are_refused(text: str, key: str, message: str) -> None:
    assert message in _refused(text)[key]


class TestPatterns:
    PATTERN = r"model.layers.[\d]+.(mlp|self_attn).(up|down|q)_proj"

    @pytest.mark.parametrize(
        "text",
        [
            "base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_r: 8\nlora_target_modules: '{}'\n",
            "model: Qwen/Qwen3-0.6B\nmax_length: 512\ntuner_type: lora\ntarget_regex: '{}'\n",
            "model: Qwen/Qwen3-0.6B\nmax_length: 512\ntuner_type: lora\ntarget_modules: '{}'\n",
            "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: a/b\nuse_peft: true\n"
            "lora_target_modules: ['{}']\n",
        ],
        ids=["axolotl", "ms-swift", "ms-swift, as modules", "TRL"],
    )
    def test_a_pattern_goes_to_peft_as_it_is(self, text: str) -> None:
        assert _read(text.format(self.PATTERN)).fields["lora_targets"] == self.PATTERN

    def test_peft_takes_what_a_list_has_as_names(self) -> None:
        text = "base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_r: 8\nlora_target_modules:\n"
        assert "as names" in _refused(text + "- .*q_proj\n- v_proj\n")["lora_target_modules"]

    def test_a_wrong_pattern_is_refused_by_its_key(self) -> None:
        text = "base_model: Qwen/Qwen3-0.6B\nadapter: lora\nlora_r: 8\n"
        assert (
            "regular expression"
            in _refused(text + "lora_target_modules: '*q('\n")["lora_target_modules"]
        )

    @pytest.mark.parametrize(
        ("targets", "modules"),
        [
            ("all-linear", "all-linear"),
            ("q_proj, v_proj", ["q_proj", "v_proj"]),
            ("to_out.0", ["to_out.0"]),
            (".*q_proj", ".*q_proj"),
            (r"layers\.\d{1,2}\.q", r"layers\.\d{1,2}\.q"),
            ("(q|v)_proj", "(q|v)_proj"),
        ],
    )
    def test_names_and_patterns_are_told_apart(self, targets: str, modules: Any) -> None:
        assert adapted_modules(targets) == modules
        assert is_pattern(targets) is (isinstance(modules, str) and targets != "all-linear")

    @pytest.mark.torch
    @pytest.mark.usefixtures("small_models")
    def test_a_pattern_adapts_what_matches_it_whole(self) -> None:
        targets = r"model\.layers\.0\.self_attn\.[qv]_proj"
        model = build_model(small_workload("llama-3.1-8b", lora_rank=2, lora_targets=targets))
        adapted = {
            name.split(".lora_A")[0] for name, _ in model.named_parameters() if "lora_A" in name
        }
        prefix = "base_model.model.model.layers.0.self_attn"
        assert adapted == {f"{prefix}.q_proj", f"{prefix}.v_proj"}

    @pytest.mark.torch
    @pytest.mark.usefixtures("small_models")
    def test_a_pattern_that_matches_nothing_is_refused(self) -> None:
        with pytest.raises(InvalidInput) as raised:
            build_model(small_workload("bert", lora_rank=2, lora_targets="query.*"))
        assert "query.*" in raised.value.fields["lora_targets"]
