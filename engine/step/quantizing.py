"""Base weights in 4 bits, as bitsandbytes keeps them for QLoRA.

Sources: Dettmers et al. 2023, "QLoRA"; bitsandbytes 0.50, ``functional.py`` (``quantize_4bit``,
``dequantize_4bit``), ``nn/modules.py`` (``Linear4bit``) and ``autograd/_functions.py``
(``MatMul4Bit``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from ..choices import Precision
from ..errors import EngineError, InvalidInput
from ..tracing.operations import OWN_KERNELS

_BLOCK = 64
"""Weights that share a scale."""
_SCALES_BLOCK = 256
"""Scales that share a scale of their own: double quantization."""

_QUANTIZED = (torch.nn.Linear, Conv1D)

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "dequantize_4bit_(Tensor(a!) weight, Tensor packed, Tensor scales) -> ()",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.impl("dequantize_4bit_", lambda weight, packed, scales: None, "CompositeExplicitAutograd")

_COMPUTED_IN = {
    Precision.BF16_MIXED: torch.bfloat16,
    Precision.BF16_TRUE: torch.bfloat16,
    Precision.FP16_MIXED: torch.float16,
}


def quantize(model: Any, precision: Precision, *, sharded: bool, predicting: bool) -> None:
    """Keep the weights of a model's linear layers, except its head, in 4 bits.

    Args:
        model: A transformers model; its layers are replaced.
        precision: Decides the number format of the products (``bnb_4bit_compute_dtype``).
        sharded: Whether FSDP will shard them. It takes floating-point numbers only, so that the
            bytes are kept as numbers of the format that it gathers (``bnb_4bit_quant_storage``).
        predicting: Whether its steps are traced and never run; else bitsandbytes quantizes the
            weights once the model is placed on its device.

    Raises:
        InvalidInput: If there is none.
        EngineError: If the step is to run and bitsandbytes is not installed.
    """
    dtype = _COMPUTED_IN.get(precision, torch.float32)
    stored = dtype if sharded else torch.uint8
    make = QuantizedLayout if predicting else _bitsandbytes_layer
    kept = _kept_whole(model)
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
        model.set_submodule(name, make(_as_linear(module), dtype, stored))
    model.is_loaded_in_4bit = True  # for peft


def _as_linear(module: Any) -> torch.nn.Linear:
    """The layer, or that which does the same as GPT-2's, whose weight lies the other way round."""
    if isinstance(module, torch.nn.Linear):
        return module
    inner, outer = module.weight.shape
    with torch.device("meta"):
        layer = torch.nn.Linear(inner, outer)
    layer.weight = torch.nn.Parameter(module.weight.detach().T.contiguous())
    layer.bias = module.bias
    return layer


def _kept_whole(model: Any) -> set[str]:
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


class QuantizedLayout(torch.nn.Linear):
    """The memory of bitsandbytes' 4-bit layer, without its arithmetic, for prediction.

    Each weight takes half a byte, each 64 of them a scale of one byte, each 256 scales one of four.
    A product takes the whole weight in the format that it computes in, for as long as it runs.

    The scales are no parameters: FSDP shards the weight alone, and each GPU keeps all scales.
    """

    scales: torch.Tensor
    offset: torch.Tensor

    def __init__(
        self, layer: torch.nn.Linear, dtype: torch.dtype, stored: torch.dtype = torch.uint8
    ) -> None:
        with torch.device("meta"):
            super().__init__(layer.in_features, layer.out_features, layer.bias is not None)
        device = layer.weight.device
        scales = -(-layer.weight.numel() // _BLOCK)
        rows = (layer.weight.numel() + 1) // (2 * stored.itemsize)
        self.weight = torch.nn.Parameter(
            torch.empty((rows, 1), dtype=stored, device=device), requires_grad=False
        )
        if layer.bias is not None:  # the first step casts it, for good if it is not gathered anew
            kept_in = dtype if stored is torch.uint8 else layer.bias.dtype
            self.bias = torch.nn.Parameter(layer.bias.detach().to(kept_in), requires_grad=False)
        self.dtype = dtype
        for name, shape, kept_in in (
            ("scales", (scales,), torch.uint8),
            ("offset", (), torch.float32),
            ("scales_of_scales", (-(-scales // _SCALES_BLOCK),), torch.float32),
            ("values", (16,), torch.float32),
            ("values_of_scales", (256,), torch.float32),
        ):
            self.register_buffer(name, torch.empty(shape, dtype=kept_in, device=device))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The product; the result has the format of what is given."""
        product: torch.Tensor = _Product.apply(given.to(self.dtype), self)  # type: ignore[no-untyped-call]  # PyTorch has no type for it
        return product.to(given.dtype)

    def whole(self, dtype: torch.dtype) -> torch.Tensor:
        """The weight as a product takes it, not filled."""
        scales = self.scales.float() + self.offset
        shape = (self.out_features, self.in_features)
        weight = torch.empty(shape, dtype=dtype, device=scales.device)
        torch.ops.memorymark.dequantize_4bit_(weight, self.weight, scales)
        return weight


class _Product(torch.autograd.Function):
    """A product with weights that are whole only while it runs, in forward and in backward."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, layer: QuantizedLayout) -> torch.Tensor:
        ctx.layer = layer
        return torch.nn.functional.linear(given, layer.whole(given.dtype), layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        (gradient,) = gradients
        if not ctx.needs_input_grad[0]:
            return None, None
        whole = ctx.layer.whole(ctx.layer.dtype).to(gradient.dtype)
        return torch.matmul(gradient, whole), None


def place_quantized(model: torch.nn.Module, device: str) -> None:
    """Let bitsandbytes quantize the weights of a module, which it does on the way to a device."""
    for layer in model.modules():
        if type(layer.__dict__["_parameters"].get("weight")).__name__ == "Params4bit":
            layer.to(device)


def adapted_layout() -> type[torch.nn.Module]:
    """The adapter that peft puts on a 4-bit layer, for :class:`QuantizedLayout`.

    It copies the product before it adds to it, and casts its own result, not the sum
    (``peft.tuners.lora.bnb.Linear4bit``).
    """
    from peft.tuners.lora import Linear  # takes seconds to load, and is rarely needed

    class AdaptedLayout(Linear):  # type: ignore[misc]  # peft has no types
        def forward(self, given: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
            result: torch.Tensor = self.base_layer(given, *others, **named).clone()
            casts = not torch.is_autocast_enabled()
            for name in self.active_adapters:
                down, up = self.lora_A[name], self.lora_B[name]
                if casts:
                    given = self._cast_input_dtype(given, down.weight.dtype)
                added = up(down(self.lora_dropout[name](given))) * self.scaling[name]
                result = result + (added.to(result.dtype) if casts else added)
            return result

    return AdaptedLayout


def _bitsandbytes_layer(
    layer: torch.nn.Linear, dtype: torch.dtype, stored: torch.dtype
) -> torch.nn.Module:
    try:
        from bitsandbytes.nn import Linear4bit, Params4bit  # optional, for real steps
    except ImportError as error:
        raise EngineError(
            "4-bit weights are measured with bitsandbytes, which is not installed; install it (pip "
            "install bitsandbytes) or choose a catalogue GPU for a prediction"
        ) from error
    quantized: torch.nn.Module = Linear4bit(
        layer.in_features,
        layer.out_features,
        layer.bias is not None,
        compute_dtype=dtype,
        compress_statistics=True,
        quant_type="nf4",
        quant_storage=stored,
        device="meta",
    )
    weight = layer.weight.detach().to(dtype)
    quantized.weight = Params4bit(
        weight,
        requires_grad=False,
        compress_statistics=True,
        quant_type="nf4",
        quant_storage=stored,
        module=quantized,
    )
    quantized.bias = layer.bias
    return quantized
