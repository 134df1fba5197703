"""Linear layers with weights in 4 bits, as bitsandbytes keeps them for QLoRA.

Sources: Dettmers et al. 2023, "QLoRA"; bitsandbytes 0.50, ``functional.py`` (``quantize_4bit``,
``dequantize_4bit``), ``nn/modules.py`` (``Linear4bit``) and ``autograd/_functions.py``
(``MatMul4Bit``).
"""

from __future__ import annotations

from typing import Any

import torch

from ..core.choices import Precision, Quantization
from ..core.errors import EngineError
from ..tracing.operations import OWN_KERNELS

_BLOCK = 64
"""Weights that share a scale."""
_SCALES_BLOCK = 256
"""Scales that share a scale of their own: double quantization."""

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


def computed_in(precision: Precision) -> torch.dtype:
    """The number format of the products (``bnb_4bit_compute_dtype``)."""
    return _COMPUTED_IN.get(precision, torch.float32)


class FourBitLayout(torch.nn.Linear):
    """The memory of bitsandbytes' 4-bit layer, without its arithmetic, for prediction.

    Each weight takes half a byte, each 64 of them a scale: of four bytes, or, quantized once more,
    of one byte and four for each 256 scales. A product takes the whole weight in the format that it
    computes in, for as long as it runs.

    The scales are no parameters: FSDP shards the weight alone, and each GPU keeps all scales.

    Args:
        layer: Its shape, device and bias.
        dtype: The format that products compute in.
        stored: The format that holds the packed weights.
        double: Whether the scales are quantized too.
        loaded: The format in which the weights were quantized, and are made whole in backward; by
            default that of the products.
    """

    scales: torch.Tensor
    offset: torch.Tensor

    def __init__(
        self,
        layer: torch.nn.Linear,
        dtype: torch.dtype,
        stored: torch.dtype = torch.uint8,
        *,
        double: bool = True,
        loaded: torch.dtype | None = None,
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
        self.loaded = loaded or dtype
        self._double = double
        kept: list[tuple[str, tuple[int, ...], torch.dtype]] = [
            ("values", (16,), torch.float32),
            ("scales", (scales,), torch.uint8 if double else torch.float32),
        ]
        if double:
            kept += [
                ("offset", (), torch.float32),
                ("scales_of_scales", (-(-scales // _SCALES_BLOCK),), torch.float32),
                ("values_of_scales", (256,), torch.float32),
            ]
        for name, shape, kept_in in kept:
            self.register_buffer(name, torch.empty(shape, dtype=kept_in, device=device))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The product; the result has the format of what is given."""
        product: torch.Tensor = _Product.apply(given.to(self.dtype), self, self.bias)  # type: ignore[no-untyped-call]  # PyTorch has no type for it
        return product.to(given.dtype)

    def whole(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The weight as a product takes it, not filled, and the scales that made it."""
        scales = self.scales.float() + self.offset if self._double else self.scales
        shape = (self.out_features, self.in_features)
        weight = torch.empty(shape, dtype=dtype, device=scales.device)
        torch.ops.memorymark.dequantize_4bit_(weight, self.weight, scales)
        return weight, scales

    @property
    def W_q(self) -> torch.Tensor:  # noqa: N802  # the name in HQQ's layers
        """The packed weight. By this name peft knows layers that :meth:`dequantize` theirs."""
        return self.weight

    def dequantize(self) -> torch.Tensor:
        """The weight in the format in which it was quantized, as ``dequantize_4bit`` makes it."""
        return self.whole(self.loaded)[0]


class _Product(torch.autograd.Function):
    """A product with weights that are whole only while it runs, in forward and in backward."""

    @staticmethod
    def forward(
        ctx: Any, given: torch.Tensor, layer: FourBitLayout, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.layer = layer
        whole, scales = layer.whole(given.dtype)  # there, both live until the product is done
        product = torch.nn.functional.linear(given, whole, bias)
        del scales
        return product

    @staticmethod
    def backward(
        ctx: Any, *gradients: torch.Tensor
    ) -> tuple[torch.Tensor | None, None, torch.Tensor | None]:
        (gradient,) = gradients
        of_bias = None
        if ctx.needs_input_grad[2]:
            of_bias = gradient.flatten(end_dim=-2).sum(0, dtype=ctx.layer.bias.dtype)
        if not ctx.needs_input_grad[0]:
            return None, None, of_bias
        whole = ctx.layer.whole(ctx.layer.loaded)[0].to(gradient.dtype)
        return torch.matmul(gradient, whole), None, of_bias


def bitsandbytes_4bit(
    layer: torch.nn.Linear, dtype: torch.dtype, stored: torch.dtype, quantization: Quantization
) -> torch.nn.Module:
    """The layer of bitsandbytes, which quantizes its weight on the way to a device.

    Raises:
        EngineError: If bitsandbytes is not installed.
    """
    try:
        from bitsandbytes.nn import Linear4bit, Params4bit  # optional, for real steps
    except ImportError as error:
        raise not_installed() from error
    named = "fp4" if quantization is Quantization.FP4 else "nf4"
    made: torch.nn.Module = Linear4bit(
        layer.in_features,
        layer.out_features,
        layer.bias is not None,
        compute_dtype=dtype,
        compress_statistics=quantization.doubly,
        quant_type=named,
        quant_storage=stored,
        device="meta",
    )
    made.weight = Params4bit(
        layer.weight.detach().to(dtype),
        requires_grad=False,
        compress_statistics=quantization.doubly,
        quant_type=named,
        quant_storage=stored,
        module=made,
    )
    made.bias = layer.bias
    return made


def not_installed() -> EngineError:
    """The error for real steps where bitsandbytes is not installed."""
    return EngineError(
        "quantized weights are measured with bitsandbytes, which is not installed; install it (pip "
        "install bitsandbytes) or choose a catalogue GPU for a prediction"
    )
