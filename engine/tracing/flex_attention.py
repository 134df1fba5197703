"""PyTorch's FlexAttention as its compiled kernels lay memory out on CUDA.

It runs only where it is compiled (``torch.compile(flex_attention)``, which transformers does by
itself), and the compiler needs a GPU. What its kernels allocate depends on shapes and strides
alone, and is computed here. Source: ``flex_attention`` and ``flex_attention_backward`` in
torch/_inductor/kernel/flex/flex_attention.py, ``create_block_mask`` in
torch/nn/attention/flex_attention.py, torch 2.13.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from typing import Any

import torch
from torch.nn.attention import flex_attention as _flex
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import (
    register_flop_formula,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from ..core.errors import NotPredictable
from ..versions.loaded_modules import namespaces
from ..versions.patches import patched_names
from .operations import OWN_KERNELS, tensors_in

MAKERS = frozenset({f"{OWN_KERNELS}.flex_attention", f"{OWN_KERNELS}.flex_attention_backward"})
FACTORS = (1.0, 1.25)
"""Bounds of the memory that the kernels take, as multiples: one tensor more than the four of a
backward pass. Steps of Llama 3 8B took 36.06 GiB with FlexAttention and with FlashAttention, and
36.75 with FlexAttention tuned (https://github.com/pytorch/torchtitan/pull/887)."""

COMPUTED = (
    "FlexAttention is compiled for a GPU, so what it allocates is computed from PyTorch 2.13's "
    "source; the range of memory covers a quarter more of it. Its speed is assumed to be 65% of "
    "FlashAttention's: PyTorch itself reports 85% to 90%, one user's speeds come to 45%."
)
"""Caveat of an answer where it decides."""

UNCOMPILED = (
    "flex_attention runs uncompiled here, which keeps every score; call "
    "torch.compile(flex_attention) once and use what it returns"
)

_NARROWEST = 16
"""The least width of a head that the kernels take."""

_PLACES = 3
"""Rows and columns of a block at which its mask is looked at: first, middle, last."""

_ONE_BLOCK = 1 << 20
"""No sequence is as long as a block of a mask that hides nothing."""

_ATTENTION, _MASK = _flex.flex_attention, _flex.create_block_mask

_kernels = torch.library.Library(OWN_KERNELS, "FRAGMENT")
_kernels.define(
    "flex_attention(Tensor query, Tensor key, Tensor value, float share) "
    "-> (Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)
_kernels.define(
    "flex_attention_backward(Tensor gradient, Tensor query, Tensor key, Tensor value, Tensor out, "
    "Tensor logsumexp, Tensor of_logsumexp, float share) -> (Tensor, Tensor, Tensor, Tensor)",
    tags=torch.Tag.pt2_compliant_tag,
)

_is_compiled: Callable[[], bool] | None = None  # while it is lowered
_shares: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()


@contextmanager
def flex_attention_lowering(is_compiled: Callable[[], bool]) -> Iterator[None]:
    """Let FlexAttention run on fake tensors as on CUDA, for as long as the context lasts.

    Args:
        is_compiled: Whether the code that runs now would be compiled.
    """
    global _is_compiled
    before, _is_compiled = _is_compiled, is_compiled
    everywhere = namespaces()
    changes = [
        (names, name, instead)
        for name, function, instead in (
            (_ATTENTION.__name__, _ATTENTION, _attention),
            (_MASK.__name__, _MASK, _block_mask),
        )
        for names in everywhere
        if names.get(name) is function
    ]
    try:
        with patched_names(changes, why="kernels that torch.compile makes are those of a GPU"):
            yield
    finally:
        _is_compiled = before


def compiled(function: Any) -> Callable[..., Any] | None:
    """The compiled form of a function of FlexAttention; ``None`` for any other."""
    return _BY_ITSELF.get(function) if callable(function) else None


@wraps(_ATTENTION)
def _attention(*given: Any, **named: Any) -> Any:
    """``flex_attention``; what was imported meanwhile stays after the context."""
    if _is_compiled is None:
        return _ATTENTION(*given, **named)
    if not _is_compiled():
        raise NotPredictable(UNCOMPILED)
    return compiled_attention(*given, **named)


@wraps(_MASK)
def _block_mask(*given: Any, **named: Any) -> Any:
    bound = signature(_MASK).bind(*given, **named)
    if _is_compiled is None or not (bound.arguments.get("_compile") or _is_compiled()):
        return _MASK(*given, **named)
    return _compiled_mask(*given, **named)


@wraps(_ATTENTION)
def _attention_by_itself(*given: Any, **named: Any) -> Any:
    if _is_compiled is None:
        return torch.compile(_ATTENTION)(*given, **named)
    return compiled_attention(*given, **named)


@wraps(_MASK)
def _mask_by_itself(*given: Any, **named: Any) -> Any:
    if _is_compiled is None:
        return torch.compile(_MASK)(*given, **named)
    return _compiled_mask(*given, **named)


_BY_ITSELF: dict[Any, Callable[..., Any]] = {
    _attention: _attention_by_itself,
    _block_mask: _mask_by_itself,
}


def _compiled_mask(*given: Any, **named: Any) -> Any:
    """A block mask without the dense one, which the compiled code sums up as it makes it."""
    asked = signature(_MASK).bind(*given, **named)
    asked.apply_defaults()
    of = asked.arguments
    rows, columns, size = of["Q_LEN"], of["KV_LEN"], of["BLOCK_SIZE"]
    high, wide = (size, size) if isinstance(size, int) else size
    shape = (of["B"] or 1, of["H"] or 1, -(-rows // high), -(-columns // wide))
    counts, places = (
        torch.zeros(part, dtype=torch.int32, device=of["device"]) for part in (shape[:-1], shape)
    )
    return _flex.BlockMask.from_kv_blocks(
        counts,
        places,
        counts.clone(),
        places.clone(),
        (high, wide),
        of["mask_mod"],
        seq_lengths=(rows, columns),
    )


def compiled_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Any = None,
    block_mask: Any = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: Any = None,
) -> Any:
    """Results of ``torch.compile(flex_attention)`` for the same arguments.

    Raises:
        NotPredictable: If its kernels do not take these tensors, or a bias learns.
    """
    _check(query, key, value, enable_gqa)
    if any(one.requires_grad for one in _captured(score_mod)):
        raise NotPredictable("FlexAttention with a bias that learns is not computed; choose sdpa")
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
        query, key, value = (one.to(dtype) for one in (query, key, value))
    if block_mask is None:
        block_mask = _mask_of_one_block(query.device)
    out, logsumexp, most = _Attention.apply(query, key, value, (score_mod, block_mask))  # type: ignore[no-untyped-call]  # PyTorch has no type for it
    if return_aux is not None:
        return out, _flex.AuxOutput(
            lse=logsumexp if return_aux.lse else None,
            max_scores=most if return_aux.max_scores else None,
        )
    return (out, logsumexp) if return_lse else out


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, grouped: bool) -> None:
    """Refuse what ``flex_attention`` and its kernels refuse.

    Raises:
        ValueError: As PyTorch does, where the heads do not belong together.
        NotPredictable: If the kernels do not take heads as narrow as these.
    """
    if query.size(-1) != key.size(-1):
        raise ValueError(f"the heads of queries and keys differ: {query.size(-1)}, {key.size(-1)}")
    heads, others = query.size(1), key.size(1)
    if heads % others or (heads != others and not grouped):
        raise ValueError(f"{heads} heads of queries do not go with {others} of keys")
    if min(query.size(-1), value.size(-1)) < _NARROWEST:
        raise NotPredictable(f"FlexAttention needs heads at least {_NARROWEST} wide; choose sdpa")


def _captured(function: Any) -> Iterator[torch.Tensor]:
    """The tensors that a function takes from around it, or those do that it calls."""
    for cell in getattr(function, "__closure__", None) or ():
        held = cell.cell_contents
        yield from tensors_in(held)
        for other in held if isinstance(held, list | tuple) else (held,):
            if callable(other):
                yield from _captured(other)


def _mask_of_one_block(device: torch.device) -> Any:
    """A mask that hides nothing."""
    counts = torch.ones((1, 1, 1), dtype=torch.int32, device=device)
    places = torch.zeros((1, 1, 1, 1), dtype=torch.int32, device=device)
    return _flex.BlockMask.from_kv_blocks(counts, places, BLOCK_SIZE=_ONE_BLOCK, seq_lengths=(1, 1))


class _Attention(torch.autograd.Function):
    """One compiled call: its outputs are saved, and what its mask and scores are made of."""

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, captured: Any
    ) -> tuple[torch.Tensor, ...]:
        ctx.share = _share(captured[1])
        out, logsumexp, most = torch.ops.memorymark.flex_attention(query, key, value, ctx.share)
        ctx.save_for_backward(query, key, value, out, logsumexp)
        ctx.captured = captured
        ctx.mark_non_differentiable(most)
        return out, logsumexp * math.log(2), most

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        gradient, of_logsumexp, _ = gradients
        query, key, value, out, logsumexp = ctx.saved_tensors
        *found, _ = torch.ops.memorymark.flex_attention_backward(
            gradient, query, key, value, out, logsumexp, of_logsumexp, ctx.share
        )
        return (*found, None)


def _share(block_mask: Any) -> float:
    """Share of a mask's blocks that is computed; 1 where the values of tensors decide.

    A block counts if the mask shows one of nine places in it, of the first sample and head.
    """
    if any(True for _ in _captured(block_mask.mask_mod)):
        return 1.0
    if block_mask not in _shares:
        rows, columns = (
            _looked_at(length, size)
            for length, size in zip(block_mask.seq_lengths, block_mask.BLOCK_SIZE, strict=True)
        )
        _shares[block_mask] = _computed_share(block_mask.mask_mod, rows, columns)
    return _shares[block_mask]


def _looked_at(length: int, size: int) -> list[int]:
    """Places in each block of a sequence, block after block."""
    starts = range(0, length, size)
    ends = [min(start + size, length) - 1 for start in starts]
    return [
        start + (end - start) * part // (_PLACES - 1)
        for start, end in zip(starts, ends, strict=True)
        for part in range(_PLACES)
    ]


def _computed_share(mask_mod: Any, rows: list[int], columns: list[int]) -> float:
    with _disable_current_modes():
        first = torch.zeros((), dtype=torch.int64)
        shows = torch.vmap(torch.vmap(mask_mod, (None, None, None, 0)), (None, None, 0, None))(
            first, first, torch.tensor(rows), torch.tensor(columns)
        )
        blocks = shows.view(len(rows) // _PLACES, _PLACES, len(columns) // _PLACES, _PLACES)
        return float(blocks.any(3).any(1).float().mean())


def _dense_like(tensor: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    """Memory for another tensor of the same format, its dimensions in the same order in memory."""
    order = sorted(range(tensor.dim()), key=lambda place: (tensor.stride(place), -place))
    strides, step = [0] * tensor.dim(), 1
    for place in order:
        strides[place] = step
        step *= size[place]
    return torch.empty_strided(size, strides, dtype=tensor.dtype, device=tensor.device)


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, share: float
) -> tuple[torch.Tensor, ...]:
    """The attention output, with the strides of the query; a sum and a maximum for each row."""
    out = _dense_like(query, (*query.shape[:-1], value.shape[-1]))
    rows = [query.new_empty(query.shape[:-1], dtype=torch.float32) for _ in range(2)]
    return out, *rows


def _backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    of_logsumexp: torch.Tensor,
    share: float,
) -> tuple[torch.Tensor, ...]:
    """The three gradients, of grouped heads summed up; then what each row has to subtract."""
    found = (_dense_like(one, tuple(one.shape)) for one in (query, key, value))
    return *found, torch.empty_like(logsumexp)


_kernels.impl("flex_attention", _forward, "Meta")
_kernels.impl("flex_attention_backward", _backward, "Meta")


@register_flop_formula(torch.ops.memorymark.flex_attention)
def _flops(query: Any, key: Any, value: Any, share: float, *_: Any, **named: Any) -> int:
    """FLOPs of the blocks that are computed, from the shapes."""
    key, value = ((*query[:2], *of[2:]) for of in (key, value))
    return int(share * sdpa_flop_count(query, key, value))


@register_flop_formula(torch.ops.memorymark.flex_attention_backward)
def _flops_backward(
    gradient: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any
) -> int:
    key, value = ((*query[:2], *of[2:]) for of in (key, value))
    return int(rest[3] * sdpa_backward_flop_count(gradient, query, key, value))
