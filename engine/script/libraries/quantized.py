"""Pretrained models that a script loads in 4 or 8 bits (bitsandbytes), without their weights.

transformers chooses the layers; in their place come our layouts, which take the memory of
bitsandbytes' and pass for its classes. So the script, peft and the trainers find what they look
for, and peft's own adapters run on top.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers.integrations
from transformers.pytorch_utils import Conv1D
from transformers.quantizers import AutoHfQuantizer
from transformers.utils.quantization_config import BitsAndBytesConfig

from ...core.errors import EngineError, NotPredictable
from ...step.eight_bits import OUTLIER_CAVEAT, THRESHOLD, EightBitLayout
from ...step.four_bits import FourBitLayout
from ...step.quantizing import as_linear
from ...step.transformers_versions import VERSION
from ...versions.patches import patched

Note = Callable[[str], None]


def on_a_command_line(config: Any) -> str:
    """Name of a model on a command line, as far as its config says where it comes from."""
    name = str(getattr(config, "name_or_path", "") or "")
    file = Path(name) / "config.json"
    return str(file) if name and file.is_file() else name or "MODEL"


def given_quantization(given: dict[str, Any]) -> Any:
    """Take the quantization of a call of ``from_pretrained`` out of its arguments; often ``None``.

    transformers 4 also takes the settings of bitsandbytes one by one.
    """
    settings = given.pop("quantization_config", None)
    if VERSION >= (5, 0):
        return settings
    chosen = [given.pop(name, False) for name in ("load_in_4bit", "load_in_8bit")]
    if not any(chosen):
        return settings
    known = given.keys() & inspect.signature(BitsAndBytesConfig).parameters.keys()
    in_4_bits, in_8_bits = chosen
    options = {name: given.pop(name) for name in known}
    return BitsAndBytesConfig(load_in_4bit=in_4_bits, load_in_8bit=in_8_bits, **options)


class QuantizedLoading:
    """Loading of a model in fewer bits.

    Args:
        config: Config of the model; it may say that its weights were saved so.
        given: The ``quantization_config`` of the call, if any.

    Raises:
        NotPredictable: If it is not known what such weights take.
    """

    def __init__(self, config: Any, given: Any) -> None:
        saved = getattr(config, "quantization_config", None)
        settings = given if saved is None else saved
        command = f"memorymark analyze {on_a_command_line(config)} --lora-rank 16"
        instead = f"'{command} --quantization nf4' (or int8)"
        method = _field(settings, "quant_method")
        loads_bits = _field(settings, "load_in_4bit") or _field(settings, "load_in_8bit")
        if not isinstance(settings, BitsAndBytesConfig) and not loads_bits:
            named = getattr(method, "value", method) or type(settings).__name__
            raise NotPredictable(
                f"weights quantized with {named} take kernels that are not traced; those of "
                f"bitsandbytes are predicted: {instead}"
            )
        config.quantization_config = settings
        self._quantizer = AutoHfQuantizer.from_config(settings, pre_quantized=False)
        self._settings: Any = self._quantizer.quantization_config
        self._check(command)

    def _check(self, command: str) -> None:
        settings = self._settings
        if settings.load_in_8bit and (
            settings.llm_int8_has_fp16_weight or settings.llm_int8_threshold != THRESHOLD
        ):
            raise NotPredictable(
                f"8 bits are predicted with a threshold of {THRESHOLD:g} and without weights in "
                f"fp16 beside them: '{command} --quantization int8'"
            )
        if settings.load_in_4bit and settings.bnb_4bit_quant_storage is not torch.uint8:
            raise NotPredictable(
                "4 bits that are packed into floating-point numbers (bnb_4bit_quant_storage), as "
                "sharding needs them, are not followed in a script; predict them with "
                f"'{command} --quantization nf4 --parallelism fsdp --world-size N'"
            )

    @property
    def default_dtype(self) -> torch.dtype:
        """The number format of what is not quantized, before transformers 5 loaded it as saved."""
        return torch.float16

    def place(self, given: Any) -> Any:
        """The ``device_map`` of the call, or the one that it gets by default."""
        return self._quantizer.update_device_map(given)

    def apply(self, model: Any, note: Note) -> None:
        """Replace the linear layers that transformers would quantize.

        Args:
            model: Built from its config, on the host.
            note: Receives a sentence about what had to be assumed.
        """
        with patched(
            transformers.integrations,
            "replace_with_bnb_linear",
            _replaced,
            why="bitsandbytes' layers need a GPU; layouts stand for them",
        ):
            self._quantizer.preprocess_model(model=model, device_map=None)
        model.hf_quantizer = self._quantizer
        self._quantizer.postprocess_model(model)
        if self._settings.load_in_8bit:
            note(OUTLIER_CAVEAT)


def _field(settings: Any, name: str) -> Any:
    """Field of a quantization config, which may be the dictionary of a file."""
    return settings.get(name) if isinstance(settings, dict) else getattr(settings, name, None)


def _replaced(
    model: Any,
    modules_to_not_convert: Sequence[str] | None = None,
    *_: Any,
    quantization_config: Any,
    **__: Any,
) -> Any:
    """``replace_with_bnb_linear`` of transformers, with our layouts."""
    bitsandbytes = _bitsandbytes()
    kept = modules_to_not_convert or ()
    for name, module in list(model.named_modules()):
        if type(module) is not torch.nn.Linear and not isinstance(module, Conv1D):
            continue
        if not any(_is_named(name, one) for one in kept):
            layer = as_linear(module)
            model.set_submodule(name, _layout(layer, quantization_config, bitsandbytes))
    return model


def _is_named(name: str, kept: str) -> bool:
    """Whether a module is one of those that are kept whole, or stands within it."""
    return f".{kept}." in f".{name}." or name.endswith(kept)


def _layout(layer: torch.nn.Linear, settings: Any, bitsandbytes: Any) -> torch.nn.Module:
    made: Any
    if settings.load_in_8bit:
        made = EightBitLayout(layer)
        made.state = SimpleNamespace(
            has_fp16_weights=False, threshold=settings.llm_int8_threshold, CB=None, SCB=None
        )
        made.index = None
        return _passing_for(made, bitsandbytes.Linear8bitLt)
    double = settings.bnb_4bit_use_double_quant
    computed_in, loaded = settings.bnb_4bit_compute_dtype, layer.weight.dtype
    made = FourBitLayout(layer, computed_in, double=double, loaded=loaded)
    made.compute_dtype = made.dtype
    made.weight.compress_statistics = double
    made.weight.quant_type = settings.bnb_4bit_quant_type
    return _passing_for(made, bitsandbytes.Linear4bit)


def _passing_for(layer: torch.nn.Module, kind: type[torch.nn.Module]) -> torch.nn.Module:
    """The layer as an instance of the class that scripts and peft look for as well."""
    layer.__class__ = type(kind.__name__, (type(layer), kind), {})
    return layer


def _bitsandbytes() -> Any:
    """Its classes of layers."""
    try:
        import bitsandbytes.nn
    except ImportError as error:
        raise EngineError(
            "the script loads a model in 4 or 8 bits with bitsandbytes, which is not installed; "
            "install it (pip install bitsandbytes)"
        ) from error
    return bitsandbytes.nn
