"""Recipes of TRL 1.9.0, as ``trl sft --config FILE`` and its other commands take them.

Keys and defaults: :mod:`.trl_keys`. What they do: ``trl/scripts/sft.py`` and the trainers; weights
are loaded in ``dtype``, fp32 unless set, and adapters on quantized weights become bf16
(``sft_trainer.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.choices import CrossEntropy, Method, Precision, Rollout
from ..core.parsing import shown
from ..models.presets import PRESETS
from .accelerate import set_fsdp, set_launch
from .deepspeed import is_zero, precision_with_zero, set_deepspeed
from .framework import Framework
from .rollouts import Generation, Vllm, set_grpo
from .settings import Settings
from .steps import (
    BF16_UNDER_AUTOCAST,
    LIGER,
    LIGER_OF_ANSWERS,
    need_flash,
    need_length,
    note_cpo,
    set_attention,
    set_loss,
    set_packing,
    set_peft,
    set_quantization,
)
from .tables import words
from .trainer_keys import checkpoints, mixed_precision, set_trainer_step
from .trl_keys import (
    COMMANDS,
    COMMON,
    FORMER_NAMES,
    KEYS,
    OF_RLOO,
    added_by_scripts,
    commands_of,
)

_RLOO_BETA = 0.05

ZERO_FILES = {
    f"zero{stage}": {
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": stage},
        "num_processes": 8,
        "mixed_precision": "bf16",
    }
    for stage in (1, 2, 3)
}
LAUNCHES: Mapping[str, Mapping[str, Any]] = {
    **ZERO_FILES,
    "single_gpu": {"distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {"distributed_type": "MULTI_GPU", "num_processes": 8},
    "fsdp1": {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"version": 1}},
    "fsdp2": {"distributed_type": "FSDP", "num_processes": 8, "fsdp_config": {"version": 2}},
}
"""The configs in ``trl/accelerate_configs``, by what of them decides."""


def _derive(settings: Settings) -> None:
    name = _command_of(settings)
    if name is None:
        return
    method = COMMANDS[name].method
    if added := added_by_scripts(settings.written):
        settings.note(
            f"Not keys of TRL 1.9.0, and about data or logs by their names: {', '.join(added)}."
        )
    set_trainer_step(settings)
    if checkpoints(settings):
        settings.set("gradient_checkpointing", True, "gradient_checkpointing")
    _set_adapter(settings)
    _set_sharing(settings)
    _set_precision(settings)
    attention = settings.value("attn_implementation")
    set_attention(settings, attention, "attn_implementation")
    if method is Method.SFT:
        _set_sft(settings)
        return
    settings.set("method", method)
    if settings.is_on("use_liger_kernel"):
        settings.refuse("use_liger_kernel", LIGER_OF_ANSWERS)
    if method is Method.GRPO:
        _set_grpo(settings)
    elif method is Method.PPO:
        _set_ppo(settings)
    else:
        _set_answers(settings, name)


def _command_of(settings: Settings) -> str | None:
    """The command that a recipe is for; ``None`` where its keys do not tell, or none is read."""
    method = settings.given.get("method")
    fitting = commands_of(settings.written, method)
    if not fitting:
        methods = dict.fromkeys(one.method for one in COMMANDS.values())
        settings.refuse("method", f"TRL's recipes are read for {', '.join(methods)}")
        return None
    name = fitting[0] if len(fitting) == 1 else "sft"
    others = settings.written.keys() & KEYS.keys() - COMMON.keys() - COMMANDS[name].keys.keys()
    for key in sorted(others):
        have = [one for one, command in COMMANDS.items() if key in command.keys]
        settings.refuse(
            key,
            f"`trl {name}` does not take it, but {', '.join(have)} do; pass the right --method",
        )
    if others:
        return None
    if method is None:
        verb = "is assumed" if name == "sft" else "is told by the keys"
        settings.note(f"The command is not in the file: trl {name} {verb}; --method says another.")
    return name


def _set_sft(settings: Settings) -> None:
    length = settings.value("max_length")
    if length is None:
        need_length(settings, "max_length", "it is null, so samples are not cut")
    settings.set("sequence_length", length, "max_length")
    packs = settings.is_on("packing")
    in_one_row = packs and settings.value("packing_strategy") != "wrapped"
    if in_one_row or settings.is_on("padding_free"):
        need_flash(settings, "packing" if packs else "padding_free")
    if settings.is_on("padding_free") and not packs and "sample_lengths" in settings.given:
        settings.set("batching", "padding-free", "padding_free")
    else:
        set_packing(settings, "packing", packs=packs)
    loss, liger = settings.value("loss_type"), settings.is_on("use_liger_kernel")
    if liger:
        set_loss(settings, CrossEntropy.LIGER, "use_liger_kernel")
        settings.note(LIGER)
    elif loss in (None, "chunked_nll"):
        set_loss(settings, CrossEntropy.TRL, "loss_type")
    elif loss != "nll":
        settings.refuse("loss_type", f"{loss} is not predicted; choose nll or chunked_nll")


def _set_answers(settings: Settings, command: str) -> None:
    length = settings.value("max_length")
    if length is None:
        need_length(settings, "max_length", "it is null, so answers are not cut")
    settings.set("sequence_length", length, "max_length")
    if "precompute_ref_log_probs" in COMMANDS[command].keys:
        scored = settings.is_on("precompute_ref_log_probs")
        settings.set("precomputed_reference", scored, "precompute_ref_log_probs")
    if command == "cpo":
        note_cpo(settings)


def _set_ppo(settings: Settings) -> None:
    """PPO as ``ppo_trainer.py`` divides it: a generation, then its micro-batches."""
    settings.set("model", settings.value("sft_model_path"), "sft_model_path")
    reward = settings.value("reward_model_path")
    known = next((one.name for one in PRESETS.values() if reward in (one.name, one.hub_id)), None)
    if reward != settings.value("sft_model_path"):  # else the model itself, by default
        settings.set("reward_model", known, "reward_model_path")
        if known is None and "reward_model" not in settings.given:
            settings.refuse(
                "reward_model_path",
                f"{shown(reward)} is no preset; pass the preset of its size by --reward-model",
            )
    need_length(settings, "response_length", "prompts are not limited")
    settings.set("completion_length", settings.value("response_length"), "response_length")
    known_steps = {**settings.fields, **settings.given}.get("gradient_accumulation", 1)
    settings.set("steps_per_generation", known_steps, "gradient_accumulation_steps")


def _set_grpo(settings: Settings) -> None:
    why = "prompt and completion together are not limited"
    need_length(settings, "max_completion_length", why)
    beta = settings.value("beta")
    if not OF_RLOO.isdisjoint(settings.written):
        beta = settings.written.get("beta", _RLOO_BETA)
        settings.note(f"RLOO is predicted as GRPO with a reference, since beta is {beta}.")
    generation = Generation(
        completion=settings.value("max_completion_length"),
        beta=beta,
        steps=settings.value("steps_per_generation"),
        samples=settings.value("generation_batch_size"),
        vllm=_vllm(settings),
    )
    set_grpo(
        settings,
        generation,
        "",
        completion="max_completion_length",
        beta="beta",
        samples="generation_batch_size",
        vllm="use_vllm",
    )


def _vllm(settings: Settings) -> Vllm | Rollout | None:
    if not settings.is_on("use_vllm"):
        return None
    if settings.value("vllm_mode") == "server":
        return Rollout.SERVER
    return Vllm(
        share=settings.value("vllm_gpu_memory_utilization"),
        sleeps=settings.is_on("vllm_enable_sleep_mode"),
        gpus=settings.value("vllm_tensor_parallel_size"),
    )


def _set_adapter(settings: Settings) -> None:
    in_4_bits, in_8_bits = settings.is_on("load_in_4bit"), settings.is_on("load_in_8bit")
    bits = 4 if in_4_bits else 8 if in_8_bits else None
    set_quantization(
        settings,
        bits,
        "load_in_4bit" if in_4_bits else "load_in_8bit",
        kind=settings.value("bnb_4bit_quant_type"),
        doubly=settings.is_on("use_bnb_nested_quant"),
    )
    if not settings.is_on("use_peft"):
        return
    set_peft(
        settings,
        rank="lora_r",
        targets="lora_target_modules",
        saved="lora_modules_to_save",
        dora="use_dora",
        one_is_text=True,  # ModelConfig.__post_init__
    )
    if bits is not None:
        settings.note(
            "TRL has adapters on quantized weights in bf16, which are predicted in fp32: with "
            "AdamW the answer is too high by 8 bytes for each of their weights."
        )


def _set_sharing(settings: Settings) -> None:
    set_deepspeed(settings, "deepspeed")
    config = settings.value("fsdp_config")
    if settings.value("fsdp") or config:
        set_fsdp(settings, config if isinstance(config, dict) else {}, "fsdp")
    if (launch := settings.value("accelerate_config")) is not None:
        set_launch(settings, launch, "accelerate_config", LAUNCHES)


def _set_precision(settings: Settings) -> None:
    """``bf16`` is on unless ``fp16`` is (``base_config.py``); weights have ``dtype``."""
    fp16 = settings.is_on("fp16")
    bf16 = settings.value("bf16")
    in_bf16 = not fp16 if bf16 is None else bool(bf16)
    dtype = settings.value("torch_dtype") if "torch_dtype" in settings else settings.value("dtype")
    key = "dtype" if "dtype" in settings else "bf16"
    if is_zero(settings):
        value = precision_with_zero(settings, key, in_bf16=in_bf16)
    elif dtype in ("bfloat16", "auto") and not fp16:
        value = Precision.BF16_TRUE
        settings.note(BF16_UNDER_AUTOCAST)
        if dtype == "auto":
            settings.note("dtype auto is that of the model's files, which is taken to be bf16.")
    elif dtype == "float32":
        value = Precision.BF16_MIXED if in_bf16 else mixed_precision(settings)
    else:
        settings.refuse(key, f"weights in {dtype} are not predicted; choose bfloat16 or float32")
        return
    settings.set("precision", value, key if key in settings else "")


TRL = Framework(
    name="trl",
    title="TRL",
    release="1.9.0",
    repository="huggingface/trl",
    needed=frozenset({"model_name_or_path"}),
    marks=words(
        """dataset_name use_peft lora_r lora_target_modules attn_implementation dtype
        torch_dtype load_in_4bit load_in_8bit max_length packing_strategy padding_free
        dataset_text_field accelerate_config max_completion_length num_generations"""
    ),
    keys=KEYS,
    derive=_derive,
    also=added_by_scripts,
    former_names=FORMER_NAMES,
)
