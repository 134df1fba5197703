"""Linear layers with weights in 8 bits, as bitsandbytes keeps them (LLM.int8).

Sources: Dettmers et al. 2022, "LLM.int8()"; bitsandbytes 0.50, ``nn/modules.py``
(``Linear8bitLt``), ``autograd/_functions.py`` (``MatMul8bitLt``), ``backends/cuda/ops.py`` and
``backends/default/ops.py``. The threshold is that of transformers' ``BitsAndBytesConfig``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from ..core.choices import Quantization
from ..interface.workload import Workload
from ..tracing.operations import OWN_KERNELS, own_products
from .four_bits import not_installed

THRESHOLD = 6.0
"""Columns of what is given with a value from this on are computed apart, in its own format."""
OUTLIERS_AMONG = 1_000
"""One column in this many is assumed to be such an outlier: the paper computes "more than 99.9% of
values" in 8 bits. How many there really are depends on the weights and on the data."""
_STEPS = 127.0

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
for _kernel in (
    "quantize_rows_(Tensor given, Tensor(a!) rows, Tensor(b!) scales) -> ()",
    "product_8bit_(Tensor rows, Tensor weight, Tensor(a!) product) -> ()",
    "dequantize_product_(Tensor product, Tensor scales, Tensor others, Tensor(a!) result) -> ()",
):
    _kernels.define(_kernel, tags=torch.Tag.pt2_compliant_tag)
    _kernels.impl(_kernel.partition("(")[0], lambda *given: None, "CompositeExplicitAutograd")
own_products[torch.ops.memorymark.product_8bit_] = (0, 1)


@register_flop_formula(torch.ops.memorymark.product_8bit_)
def _flops(rows: Any, weight: Any, product: Any, **named: Any) -> int:
    """FLOPs of the product, from the shapes."""
    return 2 * int(rows[0]) * int(rows[1]) * int(weight[0])


class EightBitLayout(torch.nn.Linear):
    """The memory of bitsandbytes' 8-bit layer, without its arithmetic, for prediction.

    Each weight takes a byte, each row of them a scale of four. What is given is quantized too, row
    by row, and the product adds up in 32 bits; only backward makes the whole weight anew. Outliers
    among the columns given are computed apart; how many is assumed.

    Args:
        layer: Its shape, device and bias.
    """

    scales: torch.Tensor

    def __init__(self, layer: torch.nn.Linear) -> None:
        with torch.device("meta"):
            super().__init__(layer.in_features, layer.out_features, layer.bias is not None)
        device = layer.weight.device
        self.weight = torch.nn.Parameter(
            torch.empty(layer.weight.shape, dtype=torch.int8, device=device), requires_grad=False
        )
        if layer.bias is not None:
            self.bias = torch.nn.Parameter(layer.bias.detach(), requires_grad=False)
        self.register_buffer("scales", torch.empty(layer.out_features, device=device))
        self.outliers: torch.Tensor | None = None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """The product, in the format of what is given."""
        if self.bias is not None and self.bias.dtype != given.dtype:
            self.bias.data = self.bias.data.to(given.dtype)
        product: torch.Tensor = _Product.apply(given, self)  # type: ignore[no-untyped-call]  # PyTorch has no type for it
        return product


class _Product(torch.autograd.Function):
    """A product in 8 bits; its backward multiplies with the weight in the format of the input."""

    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, layer: EightBitLayout) -> torch.Tensor:
        flat = given.reshape(-1, given.shape[-1])
        rows, scales, layer.outliers = _quantized(flat.to(torch.float16))
        product, apart = _multiplied(flat, rows, scales, layer, layer.outliers)
        ctx.layer, ctx.dtype, ctx.shape = layer, given.dtype, given.shape
        # As there: they live until the loss does not, rather than until their backward.
        ctx.kept = (apart, flat, layer.outliers)
        return product.reshape(*given.shape[:-1], layer.out_features)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        (gradient,) = gradients
        gradient = gradient.reshape(-1, gradient.shape[-1]).contiguous()
        if not ctx.needs_input_grad[0]:
            return None, None
        layer, dtype = ctx.layer, ctx.dtype
        whole = layer.weight.to(dtype, copy=True).mul_(layer.scales.unsqueeze(1).mul(1 / _STEPS))
        return torch.matmul(gradient.to(dtype), whole).view(ctx.shape), None


def _quantized(given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The input in 8 bits, the scale of each row, and the columns that are outliers."""
    count, columns = given.shape
    scales = torch.empty(count, device=given.device)
    rows = torch.empty(given.shape, dtype=torch.int8, device=given.device)
    beyond = given.abs() >= THRESHOLD
    beyond.any(dim=0)
    outliers = torch.arange(-(-columns // OUTLIERS_AMONG), device=given.device)
    torch.ops.memorymark.quantize_rows_(given, rows, scales)
    rows[:, outliers] = 0
    return rows, scales, outliers


def _multiplied(
    given: torch.Tensor,
    rows: torch.Tensor,
    scales: torch.Tensor,
    layer: EightBitLayout,
    outliers: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The product, and the columns given that were multiplied apart."""
    apart = given[:, outliers].contiguous()
    columns = layer.weight[:, outliers].contiguous() * layer.scales.view(-1, 1) * (1 / _STEPS)
    weight = columns.to(given.dtype).t()
    del columns
    result = _in_8_bits(rows, scales, layer, given.dtype)
    return result.addmm(apart, weight), apart


def _in_8_bits(
    rows: torch.Tensor, scales: torch.Tensor, layer: EightBitLayout, dtype: torch.dtype
) -> torch.Tensor:
    shape = (rows.shape[0], layer.out_features)
    product = torch.empty(shape, dtype=torch.int32, device=rows.device)
    torch.ops.memorymark.product_8bit_(rows, layer.weight, product)
    result = torch.empty(shape, dtype=torch.float16, device=rows.device)
    torch.ops.memorymark.dequantize_product_(product, scales, layer.scales, result)
    if layer.bias is not None and layer.bias.dtype != torch.float16:
        result.add_(layer.bias)
    return result.to(dtype)


def bitsandbytes_8bit(layer: torch.nn.Linear) -> torch.nn.Module:
    """The layer of bitsandbytes, which quantizes its weight on the way to a device.

    Raises:
        EngineError: If bitsandbytes is not installed.
    """
    try:
        from bitsandbytes.nn import Int8Params, Linear8bitLt  # optional, for real steps
    except ImportError as error:
        raise not_installed() from error
    with torch.device("meta"):
        made: torch.nn.Module = Linear8bitLt(
            layer.in_features,
            layer.out_features,
            layer.bias is not None,
            has_fp16_weights=False,
            threshold=THRESHOLD,
        )
    made.weight = Int8Params(
        layer.weight.detach().to(torch.float16), requires_grad=False, has_fp16_weights=False
    )
    made.bias = layer.bias
    return made


OUTLIER_CAVEAT = (
    f"One input column in {OUTLIERS_AMONG:,} is assumed to be an outlier, which LLM.int8 "
    "computes apart and keeps for backward: how many there are depends on the weights and the "
    "data. Products in 8 bits are assumed to be as fast as those in 16."
)
"""Caveat about products in 8 bits."""


def outlier_caveats(workload: Workload) -> list[str]:
    """Caveats about a workload's products in 8 bits."""
    return [OUTLIER_CAVEAT] if workload.quantization is Quantization.INT8 else []
