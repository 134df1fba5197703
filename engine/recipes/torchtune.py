"""Recipes of torchtune 0.6.1, its last release.

Keys: ``recipes/configs`` and what the scripts in ``recipes/`` read of them, with defaults there.
What they do: those scripts, ``torchtune/models/*/_model_builders.py`` (sizes, LoRA),
``torchtune/modules/peft``, ``torchtune/modules/loss`` and ``torchtune/training``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.adapters import Adapter
from ..core.choices import CrossEntropy, Method, Parallelism, Precision, Quantization
from ..core.optimizers import Optimizer
from .deepspeed import need_world_size
from .framework import Framework
from .settings import Settings
from .steps import need_length, set_lora, set_loss, set_packing
from .tables import (
    Key,
    all_refused,
    anything,
    mapping,
    refused,
    switch,
    text,
    unused,
    whole,
)

_COMPONENT = "_component_"
_MODELS = {
    "llama2.llama2_7b": "meta-llama/Llama-2-7b-hf",
    "llama2.llama2_13b": "meta-llama/Llama-2-13b-hf",
    "llama2.llama2_70b": "meta-llama/Llama-2-70b-hf",
    "code_llama2.code_llama2_7b": "codellama/CodeLlama-7b-hf",
    "code_llama2.code_llama2_13b": "codellama/CodeLlama-13b-hf",
    "code_llama2.code_llama2_70b": "codellama/CodeLlama-70b-hf",
    "llama3.llama3_8b": "meta-llama/Meta-Llama-3-8B",
    "llama3.llama3_70b": "meta-llama/Meta-Llama-3-70B",
    "llama3_1.llama3_1_8b": "meta-llama/Llama-3.1-8B",
    "llama3_1.llama3_1_70b": "meta-llama/Llama-3.1-70B",
    "llama3_1.llama3_1_405b": "meta-llama/Llama-3.1-405B",
    "llama3_2.llama3_2_1b": "meta-llama/Llama-3.2-1B",
    "llama3_2.llama3_2_3b": "meta-llama/Llama-3.2-3B",
    "llama3_3.llama3_3_70b": "meta-llama/Llama-3.3-70B-Instruct",
    "mistral.mistral_7b": "mistralai/Mistral-7B-v0.1",
    "gemma.gemma_2b": "google/gemma-2b",
    "gemma.gemma_7b": "google/gemma-7b",
    "gemma2.gemma2_2b": "google/gemma-2-2b",
    "gemma2.gemma2_9b": "google/gemma-2-9b",
    "gemma2.gemma2_27b": "google/gemma-2-27b",
    "phi3.phi3_mini": "microsoft/Phi-3-mini-4k-instruct",
    "phi4.phi4_14b": "microsoft/phi-4",
    "qwen2.qwen2_0_5b": "Qwen/Qwen2-0.5B",
    "qwen2.qwen2_1_5b": "Qwen/Qwen2-1.5B",
    "qwen2.qwen2_7b": "Qwen/Qwen2-7B",
    "qwen2_5.qwen2_5_0_5b": "Qwen/Qwen2.5-0.5B",
    "qwen2_5.qwen2_5_1_5b_base": "Qwen/Qwen2.5-1.5B",
    "qwen2_5.qwen2_5_1_5b_instruct": "Qwen/Qwen2.5-1.5B-Instruct",
    "qwen2_5.qwen2_5_3b": "Qwen/Qwen2.5-3B",
    "qwen2_5.qwen2_5_7b_base": "Qwen/Qwen2.5-7B",
    "qwen2_5.qwen2_5_7b_instruct": "Qwen/Qwen2.5-7B-Instruct",
    "qwen2_5.qwen2_5_14b_base": "Qwen/Qwen2.5-14B",
    "qwen2_5.qwen2_5_14b_instruct": "Qwen/Qwen2.5-14B-Instruct",
    "qwen2_5.qwen2_5_32b_base": "Qwen/Qwen2.5-32B",
    "qwen2_5.qwen2_5_32b_instruct": "Qwen/Qwen2.5-32B-Instruct",
    "qwen2_5.qwen2_5_72b_base": "Qwen/Qwen2.5-72B",
    "qwen2_5.qwen2_5_72b_instruct": "Qwen/Qwen2.5-72B-Instruct",
}
"""Models of the Hub with the sizes of a builder in ``torchtune.models``."""

_OPTIMIZERS = {
    "torch.optim.AdamW": Optimizer.ADAMW_FOREACH,
    "torch.optim.SGD": Optimizer.SGD,
    "bitsandbytes.optim.AdamW8bit": Optimizer.ADAMW_8BIT,
    "bitsandbytes.optim.PagedAdamW": Optimizer.PAGED_ADAMW,
    "bitsandbytes.optim.PagedAdamW8bit": Optimizer.PAGED_ADAMW_8BIT,
}
_LOSSES = {
    "torchtune.modules.loss.CEWithChunkedOutputLoss": CrossEntropy.CHUNKED,
    "torch.nn.CrossEntropyLoss": CrossEntropy.MODEL,
}
_ATTENTION_LAYERS = {"output_proj": "o_proj"}  # others have the names that transformers gives them
_MLP = ("gate_proj", "up_proj", "down_proj")

KEYS: dict[str, Key] = {
    "model": mapping(),
    "tokenizer": mapping(),
    "dataset": anything(),
    "batch_size": whole(field="current_batch_size"),
    "gradient_accumulation_steps": whole(1, field="gradient_accumulation"),
    "optimizer": mapping(),
    "optimizer_in_bwd": switch(told=True),
    "loss": mapping(),
    "dtype": text("bf16"),
    "compile": switch(field="compile"),
    "enable_activation_checkpointing": switch(field="gradient_checkpointing", told=True),
    "enable_activation_offloading": switch(field="activation_offload"),
    "fsdp_cpu_offload": switch(),
    "fsdp_reshard_after_forward": switch(True),
    "device": text("cuda"),
    **unused(
        """checkpointer resume_from_checkpoint save_adapter_weights_only seed shuffle epochs
        max_steps_per_epoch clip_grad_norm lr_scheduler metric_logger log_every_n_steps
        log_peak_memory_stats log_level profiler output_dir cudnn_deterministic_mode collate_fn
        low_cpu_ram profile_memory enable_async_checkpointing dataloader ref_checkpointer
        custom_sharded_layers tensor_parallel_plan fsdp"""
    ),
    "tensor_parallel_dim": refused("describe it by --tensor-parallel instead", unless=(1,)),
    **all_refused(
        "teacher_model teacher_checkpointer kd_loss kd_ratio",
        "distillation is not read from a recipe; describe it by --method distillation --teacher",
    ),
    **all_refused(
        "policy_model reward_and_value_model ref_policy_checkpointer reward_checkpointer "
        "value_checkpointer gamma lmbda kl_coeff max_generated_tokens min_response_length "
        "penalise_no_eos reward_penalty stop_token_ids whiten_rewards ppo_batch_size "
        "ppo_epochs num_steps forward_batch_size",
        "PPO is not read from a recipe; describe it by --method ppo",
    ),
    **all_refused(
        "ac_mode ac_option memory_efficient_fsdp_wrap quantizer datasets",
        "it changes which layers are checkpointed, wrapped or read, which is not predicted; take "
        "it out",
    ),
    **all_refused(
        "tasks limit max_seq_length enable_kv_cache max_new_tokens temperature top_k prompt",
        "this is a recipe for evaluation or generation, not for training",
    ),
}


def _component(settings: Settings, key: str) -> str:
    return str(settings.part(key).get(_COMPONENT, ""))


def _derive(settings: Settings) -> None:
    if settings.value("batch_size") is None:
        settings.refuse("batch_size", "it is missing")
    if settings.value("device") not in ("cuda", None):
        settings.refuse("device", "only CUDA GPUs are predicted; set cuda")
    _set_model(settings)
    _set_sharing(settings)
    _set_optimizer(settings)
    _set_loss(settings)
    _set_samples(settings)
    dtype = settings.value("dtype")
    if dtype == "bf16":
        settings.set("precision", Precision.BF16_TRUE, "dtype")
    elif dtype == "fp32":
        settings.set("precision", Precision.FP32, "dtype")
    else:
        settings.refuse("dtype", f"{dtype} is not predicted; choose bf16 or fp32")
    settings.note(
        "torchtune's own layers are predicted as those of transformers with the same sizes."
    )


def _set_model(settings: Settings) -> None:
    """The model and its adapters, which one builder makes together."""
    name = _component(settings, "model").removeprefix("torchtune.models.")
    if not name:
        settings.refuse("model", f"it has no {_COMPONENT}")
        return
    family, _, builder = name.partition(".")
    quantized, adapted = builder.startswith("qlora_"), builder.startswith(("lora_", "qlora_"))
    plain = builder.removeprefix("q").removeprefix("lora_") if adapted else builder
    hub_id = _MODELS.get(f"{family}.{plain}")
    if hub_id is None:
        settings.refuse("model", f"{name} is not predicted; describe the model by --config")
        return
    settings.set("model", hub_id, "model")
    if quantized:
        settings.set("quantization", Quantization.NF4, "model")
    if adapted:
        _set_adapter(settings, settings.part("model"))


def _set_adapter(settings: Settings, model: Mapping[str, Any]) -> None:
    """LoRA's layers by torchtune's names; the defaults are those of every builder."""
    listed = model.get("lora_attn_modules") or []
    if not isinstance(listed, list):
        settings.refuse("model", "lora_attn_modules is not a list of names")
        return
    attention = [_ATTENTION_LAYERS.get(str(one), str(one)) for one in listed]
    targets = [*attention, *(_MLP if model.get("apply_lora_to_mlp") else ())]
    if model.get("apply_lora_to_output"):
        targets.append("lm_head")
    if not targets:
        settings.refuse("model", "it adapts no layers; set lora_attn_modules or apply_lora_to_mlp")
        return
    set_lora(
        settings,
        rank=model.get("lora_rank", 8),
        rank_key="model",
        targets=targets,
        targets_key="model",
    )
    if model.get("use_dora"):
        settings.set("adapter", Adapter.DORA, "model")
    settings.note(
        "torchtune has adapters in the format of the weights, which are predicted in fp32: with "
        "AdamW in bf16 the answer is too high by 8 bytes for each of their weights."
    )


def _set_sharing(settings: Settings) -> None:
    """FSDP2, where the launcher starts several processes."""
    gpus = {**settings.fields, **settings.given}.get("world_size", 1)
    offloads = settings.is_on("fsdp_cpu_offload")
    if offloads:
        need_world_size(settings, "fsdp_cpu_offload")
    if str(gpus) == "1":
        return
    settings.set("parallelism", Parallelism.FSDP)
    if offloads:
        settings.set("cpu_offload", True, "fsdp_cpu_offload")
    if not settings.is_on("fsdp_reshard_after_forward"):
        settings.set("reshard_after_forward", False, "fsdp_reshard_after_forward")


def _set_optimizer(settings: Settings) -> None:
    name, arguments = _component(settings, "optimizer"), settings.part("optimizer")
    found = _OPTIMIZERS.get(name)
    if found is None:
        settings.refuse("optimizer", f"{name or 'it'} is not predicted: {', '.join(_OPTIMIZERS)}")
        return
    if found is Optimizer.ADAMW_FOREACH and arguments.get("fused"):
        found = Optimizer.ADAMW
    if found is Optimizer.SGD and arguments.get("momentum"):
        found = Optimizer.SGD_MOMENTUM
    settings.set("optimizer", found, "optimizer")
    if settings.is_on("optimizer_in_bwd"):
        settings.set("optimizer_in_backward", True, "optimizer_in_bwd")


def _set_loss(settings: Settings) -> None:
    name = _component(settings, "loss")
    if name.endswith(".DPOLoss"):
        settings.set("method", Method.DPO, "loss")
    elif name in _LOSSES:
        set_loss(settings, _LOSSES[name], "loss")
        if settings.part("loss").get("num_output_chunks", 8) != 8:
            settings.refuse("loss", "8 parts are predicted; leave num_output_chunks out")
    else:
        settings.refuse("loss", f"{name or 'it'} is not predicted; choose {', '.join(_LOSSES)}")


def _set_samples(settings: Settings) -> None:
    length = settings.part("tokenizer").get("max_seq_len")
    data = settings.value("dataset")
    packs = bool(data.get("packed")) if isinstance(data, dict) else False
    if isinstance(length, int):
        settings.set("sequence_length", length, "tokenizer")
    else:
        need_length(settings, "tokenizer", "max_seq_len is null, so samples are not cut")
    if settings.fields.get("method") is None:
        set_packing(settings, "dataset", packs=packs)


def _made_up(values: Mapping[str, Any]) -> frozenset[str]:
    """Names that a recipe makes up for ``${name}`` in its other values."""
    whole_recipe = str(values)
    return frozenset(name for name in values if f"${{{name}}}" in whole_recipe)


TORCHTUNE = Framework(
    name="torchtune",
    title="torchtune",
    release="0.6.1",
    repository="pytorch/torchtune",
    needed=frozenset({"checkpointer"}),
    marks=frozenset({"tokenizer"}),
    keys=KEYS,
    derive=_derive,
    also=_made_up,
)
