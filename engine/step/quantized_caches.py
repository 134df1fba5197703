"""Caches that keep keys and values in few bits, as two packages and transformers itself do.

What lives for how long is transformers' own: the prompts are packed whole; then each token makes
all keys and values of a layer anew, reads them and drops them, and the newest tokens wait unpacked
until there are ``residual_length`` of them, when the whole layer is packed again. What packing and
unpacking take on a GPU is written down here operator by operator, so that no package is needed.

Sources: ``QuantizedLayer`` of transformers 5.23; ``MaxOptimizer``, ``quantize_affine``,
``pack_weights`` and ``unpack.cu`` of optimum-quanto 0.2.7; ``Quantizer``, ``BitPack`` and
``optimize_weights_proximal_legacy`` of hqq 0.2.8.post1.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import QuantizedCache
from transformers.cache_utils import Cache, Fp8QuantizedLayer, QuantizedLayer

from ..core.choices import PACKED_CACHES, RESIDUAL_LENGTH, CacheFormat
from ..core.errors import InvalidInput

_Packed = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]
"""Numbers, scales and zeros of the groups, and the shape of what was packed."""

_HQQ_ROUNDS = 2
"""HQQ looks for better zeros up to 20 times; from the second time on it takes as much memory."""


def quantized_cache(config: Any, cache_format: CacheFormat) -> Cache:
    """An empty cache of a decoder.

    Args:
        config: Config of the decoder.
        cache_format: A quantized one.

    Raises:
        InvalidInput: If transformers quantizes no cache of such a decoder.
    """
    try:
        layers = QuantizedCache("fp8", config=config).layers  # needs no package
    except ValueError as error:
        message = (
            "transformers quantizes the cache only where every layer attends to all tokens, and "
            "here some have a sliding window or a state; choose dynamic or offloaded"
        )
        raise InvalidInput({"cache_format": message}) from error
    if cache_format is CacheFormat.FP8:
        return Cache(layers=[_Fp8Layer() for _ in layers])
    of_package = _QuantoLayer if cache_format.startswith("quanto") else _HqqLayer
    return Cache(layers=[of_package(PACKED_CACHES[cache_format]) for _ in layers])


class _Fp8Layer(Fp8QuantizedLayer):  # type: ignore[misc]  # transformers has no types
    """Appends each token to 8-bit floats, and makes all keys and values of the layer anew."""

    def hold(self, length: int) -> None:
        """Take the state of a cache that has read ``length`` tokens."""
        for name in ("_quantized_keys", "_quantized_values"):
            whole, scale = getattr(self, name)
            longer = whole.new_empty((*whole.shape[:2], length, whole.shape[-1]))
            setattr(self, name, (longer, scale))
            del whole, longer
        self.cumulative_length = length


class _PackedLayer(QuantizedLayer):  # type: ignore[misc]  # transformers has no types
    """Packs groups of whole numbers, each with its scale and its zero.

    Args:
        bits: Bits of each number.
    """

    def __init__(self, bits: int) -> None:
        super().__init__(nbits=bits, residual_length=RESIDUAL_LENGTH)
        self._packed_length = self._prompt = 0

    def lazy_initialization(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Remember what a token's keys and values are like."""
        super().lazy_initialization(keys, values)
        self._prompt = self._packed_length = keys.shape[-2]
        self._shapes = (keys.shape, values.shape)

    def hold(self, length: int) -> None:
        """Take the state of a cache that has read ``length`` tokens, no fewer than the prompts'."""
        unpacked = (length - self._prompt) % self.residual_length
        if self._packed_length != length - unpacked:
            self._packed_length = length - unpacked
            self._quantized_keys = self._quantize(self._zeros(0, self._packed_length), 0)
            self._quantized_values = self._quantize(self._zeros(1, self._packed_length), 0)
        self.keys = self._zeros(0, unpacked)
        self.values = self._zeros(1, unpacked)
        self.cumulative_length = length

    def _zeros(self, which: int, length: int) -> torch.Tensor:
        if not length:  # as transformers empties it
            return torch.tensor([], dtype=self.dtype, device=self.device)
        *others, _, width = self._shapes[which]
        return torch.zeros((*others, length, width), dtype=self.dtype, device=self.device)

    def _check(self, tensor: torch.Tensor, count: int) -> None:
        """Refuse numbers that do not fall into whole groups, as the packages do."""
        if count % self.q_group_size:
            message = (
                f"its keys and values, {tuple(tensor.shape)}, do not fall into groups of "
                f"{self.q_group_size}; choose fp8 or dynamic"
            )
            raise InvalidInput({"cache_format": message})


class _QuantoLayer(_PackedLayer):
    """Layer quantized by optimum-quanto, with transformers' default axes and group size."""

    def _quantize(self, tensor: torch.Tensor, axis: int) -> _Packed:
        self._check(tensor, tensor[0].numel())
        groups = tensor.reshape(-1, self.q_group_size)
        scale, shift = self._ranges(groups)
        return self._pack(self._rounded(groups, scale, shift)), scale, shift, tensor.shape

    def _ranges(self, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = (of(groups, dim=1, keepdim=True) for of in (torch.amin, torch.amax))
        return (high - low) / (2**self.nbits - 1), -low

    def _rounded(
        self, groups: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
    ) -> torch.Tensor:
        rounded = torch.round((groups + shift) / scale)
        return torch.clamp(rounded, min=0, max=2**self.nbits - 1).to(torch.uint8)

    def _pack(self, rounded: torch.Tensor) -> torch.Tensor:
        parts = 8 // self.nbits
        rows = -(-len(rounded) // parts)
        packed = torch.zeros((rows, rounded.shape[1]), dtype=torch.uint8, device=rounded.device)
        for part, some in enumerate(rounded.split(rows)):
            packed[: len(some)] |= some << self.nbits * part
        return packed

    def _dequantize(self, quantized: _Packed) -> torch.Tensor:
        packed, scale, shift, shape = quantized
        unpacked = torch.cat([packed] * (8 // self.nbits))  # one kernel, which reads it once
        whole = scale * unpacked[: len(scale)]
        whole -= shift
        return whole.reshape(shape)


class _HqqLayer(_PackedLayer):
    """Layer quantized by HQQ, with transformers' default axes and group size."""

    def _quantize(self, tensor: torch.Tensor, axis: int) -> _Packed:
        self._check(tensor, tensor.numel())
        most = 2**self.nbits - 1
        groups = tensor.float().reshape(self.q_group_size, -1)
        low = groups.min(dim=0, keepdim=True)[0]
        high = groups.max(dim=0, keepdim=True)[0]
        apart = high - low
        scale = _scale(most, apart)
        zero = -low * scale
        rounded, scale, zero = _fitted(groups, scale, zero, most)
        del groups, low, high
        scale = 1.0 / scale
        packed = self._pack(rounded)
        del rounded
        return packed, scale.to(self.dtype), zero.to(self.dtype), tensor.shape

    def _pack(self, rounded: torch.Tensor) -> torch.Tensor:
        numbers = rounded.to(torch.uint8)
        parts = numbers.chunk(8 // self.nbits)
        packed = parts[0] << 8 - self.nbits if len(parts) > 1 else numbers
        for part, some in enumerate(parts[1:], 2):
            shift = 8 - self.nbits * part
            packed = packed | (some << shift if shift else some)
        return packed

    def _dequantize(self, quantized: _Packed) -> torch.Tensor:
        packed, scale, zero, shape = quantized
        if self.nbits == 8:
            whole = packed.to(self.dtype)
        else:
            parts = 8 // self.nbits
            rows, columns = packed.shape
            whole = torch.empty((parts * rows, columns), dtype=self.dtype, device=packed.device)
            for part, some in enumerate(whole.split(rows)):
                some.copy_((packed & 2**self.nbits - 1) >> 8 - self.nbits * (part + 1))
        return ((whole - zero) * scale).reshape(shape)


def _scale(most: int, apart: torch.Tensor) -> torch.Tensor:
    scale = most / apart
    scale = torch.where(apart.abs() <= 1e-4, torch.full_like(scale, 1.0), scale)
    return scale.clamp(max=2e4)


def _fitted(
    groups: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rounded numbers with better zeros, which HQQ looks for in half precision on a GPU."""
    halves, scale, zero = groups.half(), scale.half(), zero.half()
    for _ in range(_HQQ_ROUNDS):
        again, rounded, zero = _fitted_once(halves, scale, zero, most)
        error = torch.abs(halves - again).mean().float()
    del halves, again, rounded, error
    return torch.round(groups * scale + zero).clamp_(0, most), scale, zero


def _fitted_once(
    halves: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, most: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rounded = torch.round(halves * scale + zero).clamp_(0, most)
    again = (rounded - zero) / scale
    errors = _shrunk(halves - again)
    zero = torch.mean(rounded - (halves - errors) * scale, dim=0, keepdim=True)
    return again, rounded, zero


def _shrunk(errors: torch.Tensor) -> torch.Tensor:
    """HQQ's step towards errors that are few and large; its norm 0.7 and its weight 10."""
    shrunk = torch.abs(errors)
    shrunk.sub_(0.1 * shrunk.pow(-0.3)).clamp_min_(0.0)
    return shrunk.mul_(torch.sign(errors))
