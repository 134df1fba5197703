"""Arguments of ``from_pretrained``, which transformers and diffusers share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...core.errors import NotPredictable

_PLACES = (
    "cache_dir", "force_download", "resume_download", "proxies", "token", "use_auth_token",
    "local_files_only", "revision", "code_revision", "trust_remote_code", "subfolder", "mirror",
    "gguf_file", "_from_pipeline", "_from_auto", "_commit_hash",
)  # fmt: skip
"""Arguments that say where files are, those of the config among them."""

_READING = (
    "variant", "use_safetensors", "weights_only", "ignore_mismatched_sizes", "state_dict",
    "low_cpu_mem_usage", "_fast_init", "offload_folder", "offload_buffers", "offload_state_dict",
    "max_memory", "key_mapping", "disable_mmap", "tqdm_class", "from_tf", "from_flax",
    "adapter_kwargs", "adapter_name", "generation_config", "use_flashpack", "flashpack_kwargs",
)  # fmt: skip
"""Arguments that say how weights are read."""

_CHANGING = {
    **dict.fromkeys(
        ("tp_plan", "tp_size", "device_mesh", "distributed_config", "parallel_config"),
        "shares a model between several GPUs; measure it there",
    ),
    **dict.fromkeys(
        ("use_kernels", "allow_all_kernels", "kernel_config"),
        "takes kernels of the Hub, which are not traced; leave it out, or measure it",
    ),
    "fusion_config": "fuses layers, which is not traced; leave it out, or measure it",
}
"""Arguments that make another model, and what is said about those."""

_AUTOMATIC = ("auto", "balanced", "balanced_low_0", "sequential")


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """Take out the arguments that are for loading weights, and return those that say where.

    Args:
        given: Arguments of the call by name. Those for the config and the model stay.

    Raises:
        NotPredictable: If one of them makes another model than the config describes.
    """
    for name, why in _CHANGING.items():
        if given.pop(name, None):
            raise NotPredictable(f"{name} {why}")
    for name in _READING:
        given.pop(name, None)
    return {name: given.pop(name) for name in _PLACES if name in given}


def one_device(place: Any) -> Any:
    """The one device of a ``device_map``.

    Raises:
        NotPredictable: If there are several.
    """
    if isinstance(place, Mapping):
        devices = set(place.values())
        if len(devices) > 1 or "disk" in devices:
            raise NotPredictable("device_map spreads a model over several devices")
        (place,) = devices
    gpu = "cuda" if torch.cuda.is_available() else "cpu"
    return gpu if isinstance(place, str) and place in _AUTOMATIC else place


def index_of(device: Any) -> Any:
    """A device as libraries say where a model is: a GPU by its number."""
    named = torch.device(device)
    return (named.index or 0) if named.type == "cuda" else named.type
