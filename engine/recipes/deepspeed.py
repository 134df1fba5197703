"""DeepSpeed's config, where a recipe has one or names its file.

The meaning of its keys is that of release 0.19.8 (``deepspeed/runtime/config.py`` and
``deepspeed/runtime/zero/config.py``). What is ``"auto"`` follows the recipe, as Hugging Face's
Trainer fills it in (``transformers/integrations/deepspeed.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.choices import Parallelism, Precision
from ..core.errors import InvalidInput
from ..core.optimizers import Optimizer
from .document import read_file
from .settings import Settings
from .steps import model_config

RELEASE = "0.19.8"

_STAGES = {1: Parallelism.ZERO_1, 2: Parallelism.ZERO_2, 3: Parallelism.ZERO_3}
_READ = {
    "bf16", "bfloat16", "fp16", "gradient_accumulation_steps", "train_micro_batch_size_per_gpu",
    "zero_optimization",
}  # fmt: skip
_UNUSED = {
    "comms_logger", "csv_monitor", "dump_state", "gradient_clipping", "memory_breakdown",
    "optimizer", "scheduler", "steps_per_print", "tensorboard", "train_batch_size", "wandb",
    "wall_clock_breakdown", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer",
}  # fmt: skip
_READ_OF_ZERO = {
    "offload_optimizer", "offload_param", "overlap_comm", "reduce_bucket_size", "stage",
}  # fmt: skip
_UNUSED_OF_ZERO = {
    "allgather_bucket_size", "allgather_partitions", "contiguous_gradients", "reduce_scatter",
    "round_robin_gradients", "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save", "stage3_max_live_parameters",
    "stage3_max_reuse_distance", "stage3_param_persistence_threshold",
    "stage3_prefetch_bucket_size", "sub_group_size", "load_from_fp32_weights",
    "ignore_unused_parameters", "elastic_checkpoint", "memory_efficient_linear",
}  # fmt: skip


def set_deepspeed(
    settings: Settings, key: str, built_in: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Set how DeepSpeed divides the training run.

    Args:
        settings: Their key has a mapping, the name of a file, or one of ``built_in``.
        key: The key.
        built_in: Configs that the framework brings along, by name.
    """
    config = _config(settings, key, built_in or {})
    if config is None:
        return
    zero = settings.nested(key, config, "zero_optimization")
    on_host = {
        name: settings.nested(key, zero, name) for name in ("offload_optimizer", "offload_param")
    }
    half = settings.nested(key, config, "fp16")
    for name in _not_followed(config, zero, on_host, half):
        settings.refuse(
            key,
            f"DeepSpeed's {name} is not predicted; take it out, or describe the training run by "
            "--parallelism and its flags (docs/training.md)",
        )
    stage = settings.whole_in(key, zero, "stage") or 0
    if stage not in (0, *_STAGES):
        settings.refuse(key, f"ZeRO has no stage {stage}; choose 1, 2 or 3")
    parallelism = _STAGES.get(stage)
    if parallelism is None:
        settings.set("parallelism", Parallelism.DDP, key)
    else:
        settings.set("parallelism", parallelism, key)
        settings.set_all(_zero_fields(settings, key, zero, on_host), key)
    need_world_size(settings, key)
    _set_batch(settings, config, key)


def need_world_size(settings: Settings, key: str) -> None:
    """Take the number of GPUs from beside the recipe, as a launcher does."""
    known = {**settings.fields, **settings.given}.get("world_size")
    if known is None:
        settings.refuse(
            key,
            "it shares the work among GPUs, and their number is the launcher's; pass --world-size",
        )


def is_zero(settings: Settings) -> bool:
    return settings.fields.get("parallelism") in _STAGES.values()


def precision_with_zero(settings: Settings, key: str, *, in_bf16: bool) -> Precision:
    """DeepSpeed's own mixed precision: weights in bf16 with copies in fp32."""
    if not in_bf16:
        settings.refuse(key, "DeepSpeed is predicted in bf16; set bf16: true")
    return Precision.BF16_MIXED


def _config(
    settings: Settings, key: str, built_in: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any] | None:
    """The config that a key has or refers to."""
    value = settings.value(key)
    if not value:
        return None
    if isinstance(value, Mapping):
        return value
    if str(value) in built_in:
        return built_in[str(value)]
    return read_beside(settings, key, str(value))


def read_beside(settings: Settings, key: str, name: str) -> Mapping[str, Any] | None:
    """The keys of another file that a recipe refers to; ``None`` if it was refused."""
    if settings.folder is None:
        settings.refuse(key, "it refers to a file, which is not here; write its contents instead")
        return None
    places = [settings.folder / name, Path.cwd() / name]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        settings.refuse(key, f"there is no file {name} beside the recipe, nor in this folder")
        return None
    try:
        return read_file(path).values
    except InvalidInput as error:
        settings.refuse(key, f"{name}: {error}")
        return None


def _not_followed(
    config: Mapping[str, Any],
    zero: Mapping[str, Any],
    on_host: Mapping[str, Mapping[str, Any]],
    half: Mapping[str, Any],
) -> Iterator[str]:
    """Keys that ask for what is not predicted, or that the release does not know."""
    for name, value in config.items():
        if name not in _READ | _UNUSED and value not in (None, False, {}, "auto"):
            yield name
    for name, value in zero.items():
        one = value == 1 and value is not True  # such as zero_hpz_partition_size
        is_off = one or value in (None, False, "auto")
        if name not in _READ_OF_ZERO | _UNUSED_OF_ZERO and not is_off:
            yield f"zero_optimization.{name}"
    for name, offload in on_host.items():
        if offload.get("device", "none") not in ("none", "cpu") or offload.get("ratio", 1) != 1:
            yield f"zero_optimization.{name}.device {offload.get('device')}"
    if half.get("enabled") is True:
        yield "fp16.enabled"


def _zero_fields(
    settings: Settings,
    key: str,
    zero: Mapping[str, Any],
    on_host: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    stage = int(zero["stage"])
    fields: dict[str, Any] = {
        "reduce_bucket_size": _bucket(settings, key, zero),
        "overlap_comm": True if stage < 3 and zero.get("overlap_comm") is True else None,
    }
    weights_on_host = _is_on_host(on_host["offload_param"])
    state_on_host = _is_on_host(on_host["offload_optimizer"])
    if weights_on_host and stage == 3:
        fields["cpu_offload"] = True
    elif state_on_host:
        fields["optimizer_offload"] = True
    if weights_on_host or state_on_host:
        fields["optimizer"] = Optimizer.ADAMW  # DeepSpeedCPUAdam
    return fields


def _bucket(settings: Settings, key: str, zero: Mapping[str, Any]) -> int | None:
    """Gradients reduced at a time; ``"auto"`` is the hidden size squared."""
    if zero.get("reduce_bucket_size") != "auto":
        return settings.whole_in(key, zero, "reduce_bucket_size")
    hidden = model_config(settings).get("hidden_size")
    if not isinstance(hidden, int):
        settings.note(
            "DeepSpeed's reduce_bucket_size is auto, the hidden size squared, which is not known "
            "here: 500,000,000 is taken instead. --reduce-bucket-size sets it."
        )
        return None
    return hidden * hidden


def _set_batch(settings: Settings, config: Mapping[str, Any], key: str) -> None:
    """Refuse sizes of a batch that differ from the recipe's."""
    for name, field in (
        ("train_micro_batch_size_per_gpu", "current_batch_size"),
        ("gradient_accumulation_steps", "gradient_accumulation"),
    ):
        size = config.get(name)
        if isinstance(size, int) and size != settings.fields.get(field, size):
            settings.refuse(key, f'{name} differs from the recipe\'s; set one of them, or "auto"')


def _is_on_host(offload: Mapping[str, Any]) -> bool:
    return offload.get("device") == "cpu"
