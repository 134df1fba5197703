"""Recipes of training frameworks: what of each file decides, and what is assumed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.interface.request import AnalysisRequest
from engine.recipes import FRAMEWORKS, InvalidRecipe, Recipe, parse_recipe, read_recipe

EXAMPLES = Path(__file__).parents[2] / "examples" / "recipes"
AXOLOTL = "base_model: meta-llama/Llama-3.2-1B\n"
LLAMA_FACTORY = "model_name_or_path: Qwen/Qwen3-0.6B\nstage: sft\n"
TRL = "model_name_or_path: Qwen/Qwen3-0.6B\ndataset_name: our/data\n"
MS_SWIFT = "model: Qwen/Qwen3-0.6B\ntuner_type: lora\nmax_length: 1024\n"
TORCHTUNE = (EXAMPLES / "torchtune.yaml").read_text(encoding="utf-8")


def _fields(text: str, **given: object) -> dict[str, Any]:
    return dict(parse_recipe(text, given).fields)


def _refused(text: str, **given: object) -> dict[str, str]:
    with pytest.raises(InvalidRecipe) as error:
        parse_recipe(text, given).request({"gpu": "a100-80gb", **given})
    return error.value.fields


def _request(text: str, **given: object) -> AnalysisRequest:
    beside = {"gpu": "a100-80gb", **given}
    return parse_recipe(text, beside).request(beside)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_each_example_is_told_by_its_keys(name: str) -> None:
    path = EXAMPLES / f"{name.replace('-', '_')}.yaml"
    given = {"gpu": "a100-80gb", "world_size": 2} if name == "ms-swift" else {"gpu": "a100-80gb"}
    recipe = read_recipe(path, given)
    assert recipe.framework.name == name
    request = recipe.request(given)
    assert request.current_batch_size == recipe.fields["current_batch_size"]
    assert recipe.framework.named in recipe.caveats()[0]


def test_axolotl_sets_what_its_keys_say() -> None:
    recipe = read_recipe(EXAMPLES / "axolotl.yaml", {})
    assert dict(recipe.fields) == {
        "model": "meta-llama/Llama-3.2-1B",
        "current_batch_size": 2,
        "sequence_length": 4096,
        "gradient_accumulation": 8,
        "quantization": "nf4",
        "lora_rank": 32,
        "lora_targets": "all-linear",
        "precision": "bf16-true",
        "attention": "flash",
        "gradient_checkpointing": True,
        "optimizer": "adamw-8bit",
    }
    assert recipe.unused == ("lora_alpha", "datasets", "num_epochs", "learning_rate", "output_dir")


def test_axolotl_has_its_own_defaults() -> None:
    recipe = parse_recipe(AXOLOTL)
    assert recipe.fields["sequence_length"] == 512
    assert recipe.fields["current_batch_size"] == 1
    assert recipe.fields["optimizer"] == "adamw"
    assert "lora_rank" not in recipe.fields
    assert recipe.assumed["sequence_len"] == 512
    assert recipe.assumed["sample_packing"] is None
    assert any("Assumed by axolotl 0.18.0" in sentence for sentence in recipe.caveats())


def test_the_batch_of_a_step_is_divided_into_micro_batches() -> None:
    assert _fields(f"{AXOLOTL}batch_size: 32\nmicro_batch_size: 4\n")["gradient_accumulation"] == 8


@pytest.mark.parametrize(
    ("written", "precision"),
    [
        ("", "bf16-true"),
        ("bf16: true\n", "bf16-true"),
        ("bf16: false\n", "tf32"),
        ("bf16: false\ntf32: false\n", "fp32"),
        ("bf16:\n", "tf32"),
    ],
)
def test_axolotl_loads_weights_in_the_format_of_training(written: str, precision: str) -> None:
    assert _fields(AXOLOTL + written)["precision"] == precision


def test_axolotl_keeps_embeddings_in_fp32_without_flash_attention() -> None:
    text = f"{AXOLOTL}attn_implementation: sdpa\n"
    # Embeddings and head of Llama 3.2 1B are one: 128,256 x 2,048 weights of 8 bytes more.
    assert any("2.0 GiB" in note for note in parse_recipe(text).notes)
    assert not any(
        "fp32" in note
        for note in parse_recipe(
            f"{text}adapter: lora\nlora_r: 8\nlora_target_linear: true\n"
        ).notes
        if "embeddings" in note
    )


def test_losses_of_plugins_are_told_apart() -> None:
    plugin = "plugins:\n  - axolotl.integrations.{}\n"
    cut = AXOLOTL + plugin.format("cut_cross_entropy.CutCrossEntropyPlugin")
    liger = AXOLOTL + plugin.format("liger.LigerPlugin")
    assert _fields(cut)["cross_entropy"] == "liger"
    assert "cross_entropy" not in _fields(liger)
    assert _fields(f"{liger}liger_fused_linear_cross_entropy: true\n")["cross_entropy"] == "liger"
    assert "cross_entropy" not in _fields(f"{cut}cut_cross_entropy: false\n")
    assert "kd.KDPlugin" in _refused(AXOLOTL + plugin.format("kd.KDPlugin"))["plugins"]


def test_llama_factory_checkpoints_unless_told_not_to() -> None:
    assert _fields(LLAMA_FACTORY)["gradient_checkpointing"] is True
    off = f"{LLAMA_FACTORY}disable_gradient_checkpointing: true\n"
    assert _fields(off)["gradient_checkpointing"] is False


@pytest.mark.parametrize(
    ("written", "precision"),
    [
        ("finetuning_type: full\nbf16: true\n", "bf16-mixed"),
        ("finetuning_type: full\npure_bf16: true\n", "bf16-true"),
        ("finetuning_type: full\nfp16: true\n", "fp16-mixed"),
        ("finetuning_type: full\n", "fp32"),
        ("finetuning_type: full\ntf32: true\n", "tf32"),
        ("finetuning_type: lora\nbf16: true\n", "bf16-true"),
    ],
)
def test_llama_factory_casts_trained_weights_to_fp32(written: str, precision: str) -> None:
    assert _fields(LLAMA_FACTORY + written)["precision"] == precision


def test_llama_factory_trains_lora_of_all_layers_by_default() -> None:
    fields = _fields(LLAMA_FACTORY)
    assert (fields["lora_rank"], fields["lora_targets"]) == (8, "all-linear")
    assert fields["sequence_length"] == 2048
    assert fields["current_batch_size"] == 8  # the Trainer's


def test_torchtune_builds_model_and_adapter_together() -> None:
    model = "  _component_: torchtune.models.llama3_2.llama3_2_1b\n"
    adapted = model.replace("llama3_2_1b\n", "qlora_llama3_2_1b\n") + (
        "  lora_attn_modules: [q_proj, output_proj]\n  apply_lora_to_mlp: true\n  lora_rank: 64\n"
    )
    text = TORCHTUNE.replace(model, adapted).replace("optimizer_in_bwd: true\n", "")
    fields = _fields(text)
    assert fields["model"] == "meta-llama/Llama-3.2-1B"
    assert fields["quantization"] == "nf4"
    assert fields["lora_rank"] == 64
    assert fields["lora_targets"] == "q_proj,o_proj,gate_proj,up_proj,down_proj"
    assert fields["cross_entropy"] == "chunked"


def test_a_sequence_without_a_limit_has_to_be_given() -> None:
    text = TORCHTUNE.replace("max_seq_len: 2048", "max_seq_len: null")
    assert "pass --sequence-length" in _refused(text)["tokenizer"]
    assert _request(text, sequence_length=1024).workload.sequence_length == 1024


def test_trl_has_weights_in_fp32_and_its_own_loss() -> None:
    request = _request(TRL)
    workload = request.workload
    assert (workload.precision, workload.cross_entropy) == ("bf16-mixed", "trl")
    assert workload.gradient_checkpointing
    assert workload.sequence_length == 1024


def test_trl_adapts_what_peft_adapts() -> None:
    text = f"{TRL}use_peft: true\n"
    assert _fields(text)["lora_targets"] == "q_proj,v_proj"
    unknown = text.replace("Qwen/Qwen3-0.6B", "some-lab/some-model")
    assert "--lora-targets" in _refused(unknown)["lora_target_modules"]
    assert _fields(unknown, lora_targets="all-linear")["lora_rank"] == 16


def test_ms_swift_accumulates_to_sixteen_samples() -> None:
    text = f"{MS_SWIFT}per_device_train_batch_size: 4\n"
    assert _fields(text)["gradient_accumulation"] == 4
    assert _fields(text, world_size=2, parallelism="ddp")["gradient_accumulation"] == 2


def test_built_in_deepspeed_configs_are_known() -> None:
    text = f"{MS_SWIFT}tuner_type: full\n".replace("tuner_type: lora\n", "")
    workload = _request(f"{text}deepspeed: zero2\n", world_size=4).workload
    assert (workload.parallelism, workload.reduce_bucket_size) == ("zero-2", 200_000_000)
    assert workload.precision == "bf16-mixed"
    offloaded = _request(f"{text}deepspeed: zero3_offload\n", world_size=4).workload
    assert offloaded.cpu_offload
    assert offloaded.reduce_bucket_size == 1024**2  # auto: the hidden size squared


def test_a_launcher_says_how_many_gpus_there_are() -> None:
    text = f"{MS_SWIFT}deepspeed: zero2\n"
    assert "--world-size" in _refused(text)["deepspeed"]


def test_a_deepspeed_config_is_found_beside_the_recipe(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(f"{LLAMA_FACTORY}bf16: true\ndeepspeed: configs/zero.json\n", "utf-8")
    given = {"gpu": "a100-80gb", "world_size": 8}
    with pytest.raises(InvalidRecipe, match=r"no file configs/zero\.json"):
        read_recipe(recipe, given)
    (tmp_path / "configs").mkdir()
    config = tmp_path / "configs" / "zero.json"
    config.write_text('{"zero_optimization": {"stage": 3, "reduce_bucket_size": 5e8}}', "utf-8")
    fields = read_recipe(recipe, given).fields
    assert (fields["parallelism"], fields["reduce_bucket_size"]) == ("zero-3", 500_000_000)
    config.write_text('{"zero_optimization": {"stage": 3, "zero_quantized_weights": true}}')
    with pytest.raises(InvalidRecipe, match="zero_quantized_weights is not predicted"):
        read_recipe(recipe, given)


def test_accelerates_config_launches_any_recipe(tmp_path: Path) -> None:
    recipe, launch = tmp_path / "recipe.yaml", tmp_path / "fsdp.yaml"
    recipe.write_text(f"{LLAMA_FACTORY}finetuning_type: full\nbf16: true\n", "utf-8")
    launch.write_text(
        "distributed_type: FSDP\nnum_processes: 4\nmixed_precision: bf16\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: true\n",
        "utf-8",
    )
    given = {"gpu": "a100-80gb", "accelerate_config": str(launch)}
    workload = read_recipe(recipe, given).request(given).workload
    assert (workload.parallelism, workload.world_size) == ("fsdp", 4)
    assert workload.cpu_offload


def test_fsdp_of_axolotl() -> None:
    text = f"{AXOLOTL}fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: false\n"
    workload = _request(text, world_size=2).workload
    assert (workload.parallelism, workload.reshard_after_forward) == ("fsdp", False)
    assert workload.precision == "bf16-mixed"
    assert any("FSDP1" in note for note in _recipe(text.replace(": 2\n", ": 1\n"), 2).notes)


def _recipe(text: str, world_size: int) -> Recipe:
    return parse_recipe(text, {"world_size": world_size})


def test_several_gpus_without_a_word_train_as_ddp() -> None:
    assert _request(AXOLOTL, world_size=2).workload.parallelism == "ddp"


def test_what_is_given_beside_the_recipe_wins_and_is_named() -> None:
    text = f"{AXOLOTL}micro_batch_size: 2\n"
    given = {"gpu": "a100-80gb", "current_batch_size": "8"}
    recipe = parse_recipe(text, given)
    assert recipe.request(given).current_batch_size == 8
    assert dict(recipe.overridden) == {"current_batch_size": "micro_batch_size"}
    assert any("instead of micro_batch_size" in sentence for sentence in recipe.caveats())


def test_lengths_of_samples_make_packed_rows() -> None:
    given = {"sample_lengths": "p50=100,max=400"}
    assert _fields(f"{AXOLOTL}sample_packing: true\n", **given)["batching"] == "packed"
    assert _fields(AXOLOTL, **given)["batching"] == "longest"


def test_rows_of_several_samples_need_flash_attention() -> None:
    """Without it transformers makes a mask of the square of the row."""
    flash = "attn_implementation: flash_attention_2\n"
    assert "mask of its square" in _refused(f"{TRL}packing: true\n")["packing"]
    assert _request(f"{TRL}packing: true\ndtype: bfloat16\n{flash}").workload.attention == "flash"
    wrapped = f"{TRL}packing: true\npacking_strategy: wrapped\n"
    assert _request(wrapped).workload.sequence_length == 1024
    assert "packing" in _refused(f"{MS_SWIFT}packing: true\n")
    assert "neat_packing" in _refused(f"{LLAMA_FACTORY}neat_packing: true\n")
    assert (
        "neat_packing" in parse_recipe(f"{LLAMA_FACTORY}neat_packing: true\nflash_attn: fa2\n").read
    )


def test_a_key_without_a_value_asks_for_nothing() -> None:
    recipe = parse_recipe(f"{AXOLOTL}gptq_groupsize:\nrelora:\n")
    assert recipe.unused == ("gptq_groupsize", "relora")


def test_frozen_parts_that_read_images_are_named() -> None:
    seeing = LLAMA_FACTORY.replace("Qwen3-0.6B", "Qwen3-VL-4B-Instruct")
    assert any("read images" in note for note in parse_recipe(seeing).notes)
    assert not any("read images" in note for note in parse_recipe(LLAMA_FACTORY).notes)


def test_unsloth_is_said_to_be_unknown() -> None:
    for text in (f"{LLAMA_FACTORY}use_unsloth: true\n", f"{MS_SWIFT}tuner_backend: unsloth\n"):
        assert any("50 to 80% less memory" in note for note in parse_recipe(text).notes)


def test_verls_rollouts_are_refused_with_their_share() -> None:
    found = _refused("data:\n  train_files: x\nactor_rollout_ref:\n  model: {path: org/name}\n")
    assert found["recipe"].startswith("line 3: ")
    assert "gpu_memory_utilization" in found["recipe"]


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        (f"{AXOLOTL}adapter: ia3\n", "adapter", "line 2: ia3 is not predicted"),
        (f"{AXOLOTL}relora: true\n", "relora", "line 2: such adapters are not predicted"),
        (f"{AXOLOTL}micro_batch_size: two\n", "micro_batch_size", "'two' is not a whole number"),
        (f"{AXOLOTL}micro_batch_size: true\n", "micro_batch_size", "is not a whole number"),
        (f"{AXOLOTL}load_in_4bit: 1\n", "load_in_4bit", "'1' is not true or false"),
        (f"{AXOLOTL}bf16: full\n", "bf16", "line 2: full is not auto"),
        (f"{AXOLOTL}gradient_checkpointing: unsloth\n", "gradient_checkpointing", "unsloth is"),
        (f"{TRL}liger_kernel_config: {{rope: true}}\n", "liger_kernel_config", "take it out"),
        (f"{AXOLOTL}micro_batch: 2\n", "micro_batch", "has no such key"),
        (f"{AXOLOTL}optimizer: came_pytorch\n", "optimizer", "came_pytorch is not predicted"),
        (f"{AXOLOTL}optim_args:\n  rank: 4\n", "optim_args", "what rank does"),
        (f"{AXOLOTL}micro_batch_size: 0\n", "micro_batch_size", "line 2: enter a whole number"),
        (f"{AXOLOTL}torch_compile: true\n", "torch_compile", "line 2: compiled steps"),
        (f"{LLAMA_FACTORY}finetuning_type: freeze\n", "finetuning_type", "line 3: freeze"),
        (f"{LLAMA_FACTORY}use_kt: true\n", "use_kt", "KTransformers"),
        (f"{LLAMA_FACTORY}neftune_noise_alpha: 5\n", "neftune_noise_alpha", "take it out"),
        (f"{TRL}loss_type: dft\n", "loss_type", "dft is not predicted"),
        (f"{MS_SWIFT}train_type: full\n", "train_type", "called tuner_type"),
        (f"{MS_SWIFT}quant_bits: 3\nquant_method: bnb\n", "quant_bits", "choose 4 or 8"),
    ],
)
def test_what_matters_and_is_not_predicted_is_refused(text: str, key: str, message: str) -> None:
    assert message in _refused(text)[key]


def test_an_ambiguous_or_unknown_file_is_refused_with_what_was_looked_for() -> None:
    both = "model_name_or_path: org/name\nstage: sft\ndataset_name: x\n"
    assert "LLaMA-Factory and TRL" in _refused(both)["recipe"]
    assert "Looked for axolotl: base_model" in _refused("learning_rate: 1\n")["recipe"]
    assert "--accelerate-config" in _refused("distributed_type: FSDP\n")["recipe"]


def test_the_framework_can_be_said() -> None:
    assert parse_recipe("model_name_or_path: org/name\n", {}, "trl").framework.name == "trl"
    with pytest.raises(Exception, match="'nemo' is not read"):
        parse_recipe(AXOLOTL, {}, "nemo")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{TRL}eval_strategy: steps\nper_device_eval_batch_size: 16\n", "size 16 adds"),
        (f"{TRL}eval_strategy: steps\n", "size adds"),
        (f"{AXOLOTL}val_set_size: 0.1\neval_batch_size: 2\n", "size 2 adds"),
        (f"{TRL}per_device_eval_batch_size: 16\n", ""),
    ],
)
def test_a_recipe_that_evaluates_is_told_how_to_have_it_predicted(text: str, said: str) -> None:
    notes = [note for note in parse_recipe(text).notes if note.startswith("Evaluation")]
    assert len(notes) == bool(said)
    assert all(f"--eval-batch-{said} it" in note for note in notes)
