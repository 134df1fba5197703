"""FSDP's settings, and accelerate's config files, where a recipe has or names them.

The meaning of the keys is that of accelerate 1.15.0: ``FullyShardedDataParallelPlugin`` in
``src/accelerate/utils/dataclasses.py``, ``fsdp2_prepare_model`` in ``utils/fsdp_utils.py``, and
``commands/config/config_args.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.choices import Parallelism
from .deepspeed import need_world_size, read_beside
from .settings import Settings

RELEASE = "1.15.0"

_FSDP1 = (
    "FSDP1 is predicted as FSDP2: with frozen weights it took 10% (LoRA) and 14% (QLoRA) more in "
    "published runs."
)
_READ = {
    "activation_checkpointing", "auto_wrap_policy", "offload_params", "reshard_after_forward",
    "sharding_strategy", "version",
}  # fmt: skip
_UNUSED = {
    "backward_prefetch", "backward_prefetch_policy", "cpu_offload_pin_memory",
    "cpu_ram_efficient_loading", "final_state_dict_type", "forward_prefetch", "limit_all_gathers",
    "mixed_precision_policy", "state_dict_type", "sync_module_states",
    "transformer_layer_cls_to_wrap", "use_orig_params", "xla",
}  # fmt: skip
_KEEPS_GATHERED = (False, "SHARD_GRAD_OP", "NO_SHARD", 2, "2")
_WRAP = "TRANSFORMER_BASED_WRAP"
_UNUSED_OF_FILE = {
    "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "gpu_ids",
    "machine_rank", "main_process_ip", "main_process_port", "main_training_function",
    "num_machines", "rdzv_backend", "same_network", "tpu_env", "tpu_use_cluster", "tpu_use_sudo",
    "mixed_precision",
}  # fmt: skip
_READ_OF_FILE = {
    "deepspeed_config", "distributed_type", "dynamo_backend", "fsdp_config", "num_processes",
    "use_cpu",
}  # fmt: skip
_READ_OF_DEEPSPEED = {
    "deepspeed_config_file", "offload_optimizer_device", "offload_param_device", "zero_stage",
}  # fmt: skip
_UNUSED_OF_DEEPSPEED = {
    "deepspeed_multinode_launcher", "gradient_accumulation_steps", "gradient_clipping",
    "zero3_init_flag", "zero3_save_16bit_model", "deepspeed_hostfile",
}  # fmt: skip


def set_fsdp(
    settings: Settings, config: Mapping[str, Any], key: str, version: int | None = None
) -> None:
    """Set FSDP, as its settings ask for it.

    Args:
        settings: The recipe's.
        config: Keys with or without the prefix ``fsdp_``.
        key: Where they stand.
        version: FSDP's, where another key says it.
    """
    plain = {name.removeprefix("fsdp_"): value for name, value in config.items()}
    for name in sorted(plain.keys() - _READ - _UNUSED):
        if plain[name] not in (None, False):
            settings.refuse(
                key, f"{name} is not predicted with FSDP; take it out, or describe it by flags"
            )
    if str(plain.get("auto_wrap_policy") or _WRAP) != _WRAP:
        settings.refuse(key, "FSDP is predicted block by block; choose TRANSFORMER_BASED_WRAP")
    settings.set("parallelism", Parallelism.FSDP, key)
    need_world_size(settings, key)
    if plain.get("activation_checkpointing"):
        settings.set("gradient_checkpointing", True, key)
    if plain.get("offload_params"):
        settings.set("cpu_offload", True, key)
    kept = plain.get("reshard_after_forward", plain.get("sharding_strategy"))
    if any(kept == one and type(kept) is type(one) for one in _KEEPS_GATHERED):
        settings.set("reshard_after_forward", False, key)
    if (settings.whole_in(key, plain, "version") or version or 1) == 1:
        settings.note(_FSDP1)


def set_launch(
    settings: Settings,
    name: str,
    key: str,
    built_in: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Set what accelerate's config file asks for.

    Args:
        settings: The recipe's.
        name: The file, or one of ``built_in``.
        key: What names it.
        built_in: Files that the framework brings along, by name.
    """
    file = (built_in or {}).get(name) or read_beside(settings, key, name)
    if file is None:
        return
    for unknown in sorted(file.keys() - _READ_OF_FILE - _UNUSED_OF_FILE):
        if file[unknown] not in (None, False, {}):
            settings.refuse(key, f"accelerate's {unknown} is not predicted; describe it by flags")
    if file.get("use_cpu"):
        settings.refuse(key, "it trains on the CPU; only CUDA GPUs are predicted")
    if "world_size" not in settings.given:
        settings.set("world_size", settings.whole_in(key, file, "num_processes") or 1, key)
    if str(file.get("dynamo_backend") or "NO").upper() != "NO":
        settings.set("compile", True, key)
    _set_distribution(settings, file, key)


def _set_distribution(settings: Settings, file: Mapping[str, Any], key: str) -> None:
    kind = file.get("distributed_type", "NO")
    if kind == "FSDP":
        set_fsdp(settings, settings.nested(key, file, "fsdp_config"), key)
    elif kind == "DEEPSPEED":
        _set_zero(settings, settings.nested(key, file, "deepspeed_config"), key)
    elif kind == "MULTI_GPU":
        settings.set("parallelism", Parallelism.DDP, key)
    elif kind != "NO":
        settings.refuse(key, f"distributed_type {kind} is not predicted; describe it by flags")


def _set_zero(settings: Settings, config: Mapping[str, Any], key: str) -> None:
    """Set ZeRO as accelerate's own keys say it."""
    for name in sorted(config.keys() - _READ_OF_DEEPSPEED - _UNUSED_OF_DEEPSPEED):
        if config[name] not in (None, False, "none"):
            settings.refuse(key, f"deepspeed_config.{name} is not predicted; describe it by flags")
    if config.get("deepspeed_config_file"):
        settings.refuse(key, "it refers to a DeepSpeed config; name that one in the recipe instead")
    stage = settings.whole_in(key, {"zero_stage": 2, **config}, "zero_stage")
    settings.set("parallelism", f"zero-{stage}" if stage else Parallelism.DDP, key)
    if config.get("offload_param_device") == "cpu" and stage == 3:
        settings.set("cpu_offload", True, key)
    elif config.get("offload_optimizer_device") == "cpu":
        settings.set("optimizer_offload", True, key)
