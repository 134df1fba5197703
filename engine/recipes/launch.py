"""Environment variables with which accelerate's launcher starts a script, by its config file.

They are those of ``prepare_multi_gpu_env`` and ``prepare_deepspeed_cmd_env`` in accelerate 1.15.0's
``utils/launch.py``, with the defaults of ``commands/launch.py``. The script's own accelerate reads
them; what tracing does not follow, such as FSDP1, is refused where the script asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import InvalidInput
from ..core.parsing import shown
from .document import read_file

LAUNCH = "accelerate_config"
"""The file beside a recipe or a script that is no field: accelerate's config."""

PRECISIONS = ("no", "fp16", "bf16")
_READ = {
    "deepspeed_config", "distributed_type", "dynamo_backend", "dynamo_config", "fsdp_config",
    "mixed_precision", "num_machines", "num_processes", "use_cpu",
}  # fmt: skip
_UNUSED = {
    "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "gpu_ids",
    "machine_rank", "main_process_ip", "main_process_port", "main_training_function",
    "rdzv_backend", "same_network", "tpu_env", "tpu_use_cluster", "tpu_use_sudo",
}  # fmt: skip
_OF_FSDP = {
    "version": "1",
    "sharding_strategy": "FULL_SHARD",
    "reshard_after_forward": "true",
    "offload_params": "false",
    "min_num_params": "100000000",
    "auto_wrap_policy": None,
    "transformer_layer_cls_to_wrap": None,
    "backward_prefetch": None,
    "state_dict_type": None,
    "forward_prefetch": "false",
    "use_orig_params": "true",
    "cpu_ram_efficient_loading": "true",
    "sync_module_states": "true",
    "activation_checkpointing": "false",
    "activation_checkpointing_offload": "false",
    "ignored_modules": None,
}
"""Keys of ``fsdp_config`` with the launcher's defaults; each is a variable."""
_AS_WRITTEN = {"sharding_strategy", "auto_wrap_policy", "transformer_layer_cls_to_wrap"}
_OF_DEEPSPEED = {
    "zero_stage": "ACCELERATE_DEEPSPEED_ZERO_STAGE",
    "gradient_accumulation_steps": "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "gradient_clipping": "ACCELERATE_GRADIENT_CLIPPING",
    "offload_optimizer_device": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
    "offload_param_device": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE",
    "zero3_init_flag": "ACCELERATE_DEEPSPEED_ZERO3_INIT",
    "zero3_save_16bit_model": "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
    "deepspeed_config_file": "ACCELERATE_DEEPSPEED_CONFIG_FILE",
    "deepspeed_moe_layer_cls_names": "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
}
_UNUSED_OF_DEEPSPEED = {"deepspeed_hostfile", "deepspeed_multinode_launcher"}
_OF_DYNAMO = {"backend", "mode", "use_fullgraph", "use_dynamic", "use_regional_compilation"}
_ALONE, _DDP, _FSDP, _DEEPSPEED = "NO", "MULTI_GPU", "FSDP", "DEEPSPEED"
_KINDS = (_ALONE, _DDP, _FSDP, _DEEPSPEED)


def launch_environment(path: Path) -> dict[str, str]:
    """The variables that accelerate's launcher would set for the first process.

    Args:
        path: Accelerate's config file.

    Raises:
        InvalidInput: For :data:`LAUNCH`, with each key that is wrong, or that nothing here follows.
    """
    try:
        file = read_file(path).values
    except InvalidInput as error:
        raise InvalidInput({LAUNCH: "; ".join(error.fields.values())}) from error
    if wrong := list(_wrong(file)):
        raise InvalidInput({LAUNCH: "; ".join(wrong)})
    kind = _kind(file)
    variables = {"ACCELERATE_MIXED_PRECISION": _precision(file), **_dynamo(file)}
    if kind != _ALONE:
        processes = file.get("num_processes", 1)
        here = processes // (file.get("num_machines") or 1)
        variables |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(here)}
    if kind == _FSDP:
        variables |= {"ACCELERATE_USE_FSDP": "true", **_fsdp(_plain(file, "fsdp_config", "fsdp_"))}
    elif kind == _DEEPSPEED:
        variables |= {"ACCELERATE_USE_DEEPSPEED": "true", **_deepspeed(file)}
    return variables


def described_launch(variables: Mapping[str, str], name: str) -> str:
    """Sentence for an answer: how the script was taken to be launched."""
    shared = {"ACCELERATE_USE_FSDP": " with FSDP", "ACCELERATE_USE_DEEPSPEED": " with DeepSpeed"}
    how = "".join(text for variable, text in shared.items() if variable in variables)
    count = int(variables.get("WORLD_SIZE", "1"))
    processes = "1 process" if count == 1 else f"{count} processes"
    return (
        f"Launched as {name} says: {processes}{how}, mixed precision "
        f"{variables['ACCELERATE_MIXED_PRECISION']}."
    )


def _kind(file: Mapping[str, Any]) -> str:
    kind = file.get("distributed_type")
    return str(kind) if kind else _ALONE  # YAML reads an unquoted NO as false


def _precision(file: Mapping[str, Any]) -> str:
    return str(file.get("mixed_precision") or "no").lower()


def _wrong(file: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about keys that are wrong, or that ask for what is not followed."""
    for name in sorted(file.keys() - _READ - _UNUSED):
        if file[name] not in (None, False, {}):
            yield f"{name} is not predicted; take it out of the config"
    if _kind(file) not in _KINDS:
        yield f"distributed_type {shown(_kind(file))} is not predicted"
    if _precision(file) not in PRECISIONS:
        yield (
            f"mixed_precision {shown(_precision(file))} is not predicted; choose "
            f"{', '.join(PRECISIONS)}"
        )
    if file.get("use_cpu"):
        yield "use_cpu: it trains on the CPU; only CUDA GPUs are predicted"
    for name in ("num_processes", "num_machines"):
        count = file.get(name)
        if count is not None and (type(count) is not int or count < 1):
            yield f"{name} is {shown(count)}; write a whole number from 1"
    yield from _wrong_in_parts(file)


def _wrong_in_parts(file: Mapping[str, Any]) -> Iterator[str]:
    for name, prefix, known in (
        ("fsdp_config", "fsdp_", _OF_FSDP.keys()),
        ("deepspeed_config", "", _OF_DEEPSPEED.keys() | _UNUSED_OF_DEEPSPEED),
        ("dynamo_config", "dynamo_", _OF_DYNAMO),
    ):
        if file.get(name) and not isinstance(file[name], Mapping):
            yield f"{name} is not a mapping"
            continue
        for key, value in _plain(file, name, prefix).items():
            if key not in known and value not in (None, False):
                yield f"{name}.{key} is not predicted; take it out of the config"


def _plain(file: Mapping[str, Any], name: str, prefix: str) -> dict[str, Any]:
    """The keys of a part of the config without their prefix."""
    part = file.get(name)
    if not isinstance(part, Mapping):
        return {}
    return {str(key).removeprefix(prefix): value for key, value in part.items()}


def _fsdp(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for name, default in _OF_FSDP.items():
        value = default if config.get(name) is None else config[name]
        if value is not None:
            text = str(value)
            found[f"FSDP_{name.upper()}"] = text if name in _AS_WRITTEN else _lower(value)
    return found


def _deepspeed(file: Mapping[str, Any]) -> dict[str, str]:
    config = _plain(file, "deepspeed_config", "")
    return {
        variable: str(config[name]) if name.endswith(("_file", "_names")) else _lower(config[name])
        for name, variable in _OF_DEEPSPEED.items()
        if config.get(name) is not None
    }


def _dynamo(file: Mapping[str, Any]) -> dict[str, str]:
    config = _plain(file, "dynamo_config", "dynamo_")
    if (backend := file.get("dynamo_backend")) is not None:
        config["backend"] = backend
    config["backend"] = str(config.get("backend") or "no").upper()
    return {
        f"ACCELERATE_DYNAMO_{name.upper()}": str(value)
        for name, value in config.items()
        if value is not None
    }


def _lower(value: object) -> str:
    """A switch as the launcher writes it; other values as they are."""
    return str(value).lower() if isinstance(value, bool) else str(value)
