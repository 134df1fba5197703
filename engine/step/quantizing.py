"""Base weights below LoRA in 4 or 8 bits: which layers have them, and what peft puts on them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from ..core.adapters import Adapter
from ..core.choices import Precision, Quantization
from ..core.errors import InvalidInput
from .eight_bits import EightBitLayout, bitsandbytes_8bit
from .four_bits import FourBitLayout, bitsandbytes_4bit, computed_in

_QUANTIZED = (torch.nn.Linear, Conv1D)


def quantize(
    model: Any,
    kept: Collection[str],
    quantization: Quantization,
    precision: Precision,
    *,
    sharded: bool,
    predicting: bool,
) -> None:
    """Keep the weights of a model's linear layers, except some, in 4 or 8 bits.

    Args:
        model: A model of transformers or diffusers; its layers are replaced.
        kept: The modules that are left alone, as :func:`kept_whole` lists them for transformers'
            models.
        quantization: Format of the others.
        precision: Decides the number format of the products (``bnb_4bit_compute_dtype``).
        sharded: Whether GPUs will divide them. FSDP and ZeRO 3 take floating-point numbers only, so
            that the bytes are kept as numbers of the format that they gather
            (``bnb_4bit_quant_storage``).
        predicting: Whether its steps are traced and never run; else bitsandbytes quantizes the
            weights once the model is placed on its device.

    Raises:
        InvalidInput: If there is none.
        EngineError: If the step is to run and bitsandbytes is not installed.
    """
    make = _maker(quantization, precision, sharded=sharded, predicting=predicting)
    found = {
        name: module
        for name, module in model.named_modules()
        if type(module) in _QUANTIZED and not _is_within(name, kept)
    }
    if not found:
        raise InvalidInput(
            {"quantization": "it has no linear layers besides its head; choose none"}
        )
    for name, module in found.items():
        model.set_submodule(name, make(as_linear(module)))
    setattr(model, "is_loaded_in_4bit" if quantization.in_4_bits else "is_loaded_in_8bit", True)


def _maker(
    quantization: Quantization, precision: Precision, *, sharded: bool, predicting: bool
) -> Callable[[torch.nn.Linear], torch.nn.Module]:
    """Return a function that makes a quantized layer of a linear one."""
    if quantization is Quantization.INT8:
        return EightBitLayout if predicting else bitsandbytes_8bit
    dtype = computed_in(precision)
    stored = dtype if sharded else torch.uint8
    if predicting:
        return lambda layer: FourBitLayout(layer, dtype, stored, double=quantization.doubly)
    return lambda layer: bitsandbytes_4bit(layer, dtype, stored, quantization)


def as_linear(module: Any) -> torch.nn.Linear:
    """The layer, or that which does the same as GPT-2's, whose weight lies the other way round."""
    if isinstance(module, torch.nn.Linear):
        return module
    inner, outer = module.weight.shape
    with torch.device("meta"):
        layer = torch.nn.Linear(inner, outer)
    layer.weight = torch.nn.Parameter(module.weight.detach().T.contiguous())
    layer.bias = module.bias
    return layer


def kept_whole(model: Any) -> set[str]:
    """Modules that transformers leaves alone: the head, the last one, those with tied weights."""
    by_weight: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        by_weight.setdefault(id(parameter), []).append(name.rpartition(".")[0])
    tied = {name for names in by_weight.values() if len(names) > 1 for name in names}
    head = model.get_output_embeddings()
    heads = {name for name, module in model.named_modules() if head is not None and module is head}
    last, _ = list(model.named_parameters())[-1]
    return tied | heads | {last.rpartition(".")[0]}


def _is_within(name: str, modules: Collection[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def place_quantized(model: torch.nn.Module, device: str) -> None:
    """Let bitsandbytes quantize the weights of a module, which it does on the way to a device."""
    for layer in model.modules():
        if type(layer.__dict__["_parameters"].get("weight")).__name__ == "Params4bit":
            layer.to(device)


def check_variants(adapter: Adapter) -> None:
    """Refuse an adapter that reads quantized weights where peft's way to it is not known.

    Raises:
        InvalidInput: If this is an early release of peft.
    """
    from peft.tuners.lora import layer  # takes seconds to load, and is rarely needed

    if not hasattr(layer, "LoraVariant"):
        name = adapter.spec.short
        message = f"this release of peft has another {name} on quantized weights; update it"
        raise InvalidInput({"adapter": f"{message}, or choose lora"})


def adapted_layouts() -> dict[type[torch.nn.Module], type[torch.nn.Module]]:
    """The adapter that peft puts on each quantized layer, for the layouts that stand for them.

    On 4 bits it copies the product before it adds to it; both cast their own result, not the sum
    (``Linear4bit`` and ``Linear8bitLt`` in ``peft.tuners.lora.bnb``).
    """
    from peft.tuners.lora import Linear  # takes seconds to load, and is rarely needed

    class AdaptedLayout(Linear):  # type: ignore[misc]  # peft has no types
        def forward(self, given: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
            result = self._product(given, *others, **named)
            casts = not torch.is_autocast_enabled()
            for name in self.active_adapters:
                down, up = self.lora_A[name], self.lora_B[name]
                expected = result.dtype
                if casts:
                    given = given.to(down.weight.dtype)
                if name in getattr(self, "lora_variant", {}):  # see check_variants
                    result = self.lora_variant[name].forward(self, name, given, result)
                    result = result.to(expected) if casts else result
                    continue
                added = up(down(self.lora_dropout[name](given))) * self.scaling[name]
                result = result + (added.to(expected) if casts else added)
            return result

        def _product(self, *given: Any, **named: Any) -> torch.Tensor:
            product: torch.Tensor = self.base_layer(*given, **named)
            return product

    class AdaptedFourBits(AdaptedLayout):
        def _product(self, *given: Any, **named: Any) -> torch.Tensor:
            return super()._product(*given, **named).clone()

    return {FourBitLayout: AdaptedFourBits, EightBitLayout: AdaptedLayout}
