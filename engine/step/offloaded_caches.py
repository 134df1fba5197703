"""Caches whose layers wait on the host, but for the one at work and the next.

While a layer attends, its cache is copied to pinned memory of the host, in the stream of the
kernels, and that of the next layer to the GPU, in another; the first layer follows the last. Which
layers take part, transformers decides: all of a dynamic cache, and of a static one those without a
sliding window. Its streams and devices need a GPU, so that where a trace has one memory, both are
stood in for here. Source: ``Cache.update``, ``prefetch`` and ``offload`` of transformers 5.23.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from transformers import DynamicCache, StaticCache

from .offloading import Host

_KEPT = ("keys", "values", "indexer_keys")
"""Attributes in which the layers of caches keep tensors for each token."""


class _Offloaded:
    """Mixin that offloads a cache; stands before the cache's class.

    Args:
        host: The host's memory.
        kept: Arguments of the cache's class.
    """

    layers: list[Any]
    only_non_sliding: bool

    def __init__(self, host: Host, **kept: Any) -> None:
        super().__init__(**kept)
        self._host = host
        self.prefetch_stream = torch.cpu.stream(torch.cpu.Stream())
        for layer in self.layers:
            layer.offload = partial(self._move, layer, "host")
            layer.prefetch = partial(self._move, layer, "device")

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *more: Any
    ) -> Any:
        """Fetch the next layer, read this one, and send it to the host."""
        here: Any = super()
        here.prefetch(layer_idx + 1, self.only_non_sliding)
        states = here.update(key_states, value_states, layer_idx, *more)
        here.offload(layer_idx, self.only_non_sliding)
        return states

    def reorder_cache(self, beams: torch.Tensor) -> None:
        """Let each layer follow the beams where it is."""
        there = self._host.copied(beams, "host")
        for layer in self.layers:
            if getattr(layer, "is_initialized", False):
                layer.reorder_cache(there if layer.keys in self._host else beams)

    def _move(self, layer: Any, place: str) -> None:
        to_host = place == "host"
        for name in _KEPT:
            tensor = getattr(layer, name, None)
            if isinstance(tensor, torch.Tensor) and (tensor in self._host) is not to_host:
                setattr(layer, name, self._host.copied(tensor, place, waits=to_host))


class OffloadedDynamicCache(_Offloaded, DynamicCache):  # type: ignore[misc]  # no types
    """``cache_implementation="offloaded"``."""

    only_non_sliding = False


class OffloadedStaticCache(_Offloaded, StaticCache):  # type: ignore[misc]  # no types
    """``cache_implementation="offloaded_static"``."""

    only_non_sliding = True
