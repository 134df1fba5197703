"""Linear layers of bitsandbytes that a script makes itself, rather than load a model with them.

Their weights are parameters of a class of their own, which cannot be made of fake tensors. So such
a layer begins as a plain one, whole as bitsandbytes' is, and takes the memory of 4 bits once it is
moved to the GPU, which is when bitsandbytes quantizes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...core.errors import NotPredictable
from ...step.four_bits import FourBitLayout
from ..devices.cuda_device import on_gpu
from .in_libraries import StandIns


class _Whole(torch.nn.Linear):
    """A layer that is not quantized yet."""

    compute_dtype: torch.dtype | None
    quant_storage: torch.dtype

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        """Move or cast the weights, and quantize them on the GPU."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # PyTorch has no type for it
        if on_gpu(self.weight):
            self._quantize()
        return self

    def _quantize(self) -> None:
        weight, bias = self.weight, self.bias
        made: Any = FourBitLayout(
            self,
            self.compute_dtype or weight.dtype,
            self.quant_storage,
            double=weight.compress_statistics,  # type: ignore[attr-defined]  # as on bitsandbytes' parameters
            loaded=weight.dtype,
        )
        if bias is not None:
            made.bias.requires_grad_(bias.requires_grad)
        _describe(made.weight, weight.compress_statistics, weight.quant_type)  # type: ignore[attr-defined]  # likewise
        own = vars(self)
        own |= {
            name: value
            for name, value in vars(made).items()
            if name not in own or name in ("_parameters", "_buffers")  # hooks stay
        }
        (_, kind) = type(self).__bases__
        self.__class__ = type(kind.__name__, (_Quantized, kind), {})


class _Quantized(FourBitLayout):
    """A layer in 4 bits, which computes in the format of its first input unless told otherwise."""

    compute_dtype: torch.dtype | None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if self.compute_dtype is None:
            self.dtype = self.compute_dtype = given.dtype
            if self.bias is not None:
                self.bias.data = self.bias.data.to(given.dtype)
        return super().forward(given)


def _in_4_bits(
    layer: Any,
    input_features: int,
    output_features: int,
    bias: bool = True,
    compute_dtype: torch.dtype | None = None,
    compress_statistics: bool = True,
    quant_type: str = "fp4",
    quant_storage: torch.dtype = torch.uint8,
    device: Any = None,
) -> None:
    """``Linear4bit.__init__``."""
    torch.nn.Linear.__init__(layer, input_features, output_features, bias, device)
    layer.weight.requires_grad_(False)
    _describe(layer.weight, compress_statistics, quant_type)
    layer.compute_dtype, layer.quant_storage, layer.quant_state = compute_dtype, quant_storage, None
    kind = type(layer)
    layer.__class__ = type(kind.__name__, (_Whole, kind), {})


def _parameter(
    _: type,
    data: torch.Tensor,
    requires_grad: bool = False,
    quant_state: Any = None,
    blocksize: int | None = None,
    compress_statistics: bool = True,
    quant_type: str = "fp4",
    **given: Any,
) -> torch.nn.Parameter:
    """``Params4bit.__new__``: a plain parameter, until its layer is on the GPU."""
    weight = torch.nn.Parameter(data, requires_grad)
    _describe(weight, compress_statistics, quant_type)
    return weight


def _describe(weight: Any, compress_statistics: bool, quant_type: str) -> None:
    """Give the weight of such a layer the attributes that peft reads."""
    weight.compress_statistics, weight.quant_type = compress_statistics, quant_type


def _in_8_bits(*_: Any, **__: Any) -> None:
    """``Linear8bitLt.__init__``.

    Raises:
        NotPredictable: Always.
    """
    raise NotPredictable(
        "bitsandbytes' 8-bit layers are followed in models that are loaded so "
        "(BitsAndBytesConfig(load_in_8bit=True)), not where a script makes them itself; "
        "load such a model, or measure the script"
    )


LAYERS: StandIns = {
    "bitsandbytes.nn.modules": {
        "Linear4bit.__init__": _in_4_bits,
        "Params4bit.__new__": _parameter,
        "Linear8bitLt.__init__": _in_8_bits,
    }
}
"""Stand-ins by the module that holds them."""
