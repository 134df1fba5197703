"""Pretrained models of diffusers in a script that is traced: built from their configs.

Its pipelines load each of their models by the class that these have here or in transformers, so
they are built from configs too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ...core.errors import NotPredictable
from .loading_arguments import index_of, one_device, taken


def model_from_config(cls: Any, /, pretrained_model_name_or_path: Any, **given: Any) -> Any:
    """``ModelMixin.from_pretrained`` of diffusers, but for the weights.

    Raises:
        NotPredictable: If the config is not at hand, or asks for what is not traced.
    """
    name, places = pretrained_model_name_or_path, taken(given)
    dtype = given.pop("torch_dtype", None)
    dtype = given.pop("dtype", None) or dtype
    place = given.pop("device_map", None)
    loading_info = given.pop("output_loading_info", False)
    quantized = given.pop("quantization_config", None)
    config, rest = _config(cls, name, places, given)
    if quantized is not None or config.get("quantization_config") is not None:
        raise NotPredictable(
            "quantized models of diffusers take kernels that are not traced; load the model "
            "without quantization_config, or measure it"
        )
    model = cls.from_config(config, **rest)
    model.register_to_config(_name_or_path=name)
    _cast(model, dtype)
    if place is not None:
        device = one_device(place)
        model.to(device)
        model.hf_device_map = {"": index_of(device)}
    model.eval()
    return (model, {"missing_keys": [], "unexpected_keys": []}) if loading_info else model


def _config(
    cls: Any, name: Any, places: dict[str, Any], given: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The config of a model, and the arguments that are left for the model."""
    places = {**places, "local_files_only": True}
    try:
        config, rest = cls.load_config(name, return_unused_kwargs=True, **places, **given)
    except OSError as error:
        if Path(str(name)).exists():
            raise
        file = "/".join(filter(None, (places.get("subfolder"), cls.config_name)))
        raise NotPredictable(
            f"the config of {name} cannot be reached, as a script that is traced downloads "
            f"nothing; fetch it once (hf download {name} {file})"
        ) from error
    return config, rest


def _cast(model: Any, dtype: Any) -> None:
    """Give a model the number format in which its weights would be loaded: fp32 by default."""
    if not isinstance(dtype, torch.dtype):  # diffusers takes "auto" for fp32
        return
    model.to(dtype)
    for kept in model._keep_in_fp32_modules or ():
        for name, parameter in model.named_parameters():
            if kept in name.split("."):
                parameter.data = parameter.data.float()
