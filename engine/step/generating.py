"""Generating text token by token, as ``generate`` of transformers does it with a cache.

The prompts are read in one forward pass, which computes the logits of their last tokens only
(``logits_to_keep``). Then each token is read with the keys and values of all before it. A dynamic
cache concatenates: the old and the new keys of one layer are there together for a moment, and a
sliding window keeps its last tokens only. A static one has its whole length from the start.
Sources: ``GenerationMixin._prefill`` and ``_sample``, ``DynamicLayer``,
``DynamicSlidingWindowLayer`` and ``StaticCache`` in transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import StaticCache

from ..choices import CacheFormat
from ..errors import EngineError
from .training import Training

GROWTHS = 4
"""So often the cache is as long as it gets between the first and the last token: what it leaves
free each time decides how the allocator packs it."""


class Generation:
    """Texts that are being generated, one move after another.

    Args:
        training: Its model generates.
        prompts: Tokens on the host, of shape (B, P).
        new_tokens: How many are generated for each prompt.
        cache_format: Of the keys and values.
    """

    def __init__(
        self,
        training: Training,
        prompts: torch.Tensor,
        new_tokens: int,
        cache_format: CacheFormat = CacheFormat.DYNAMIC,
    ) -> None:
        self._training = training
        self._prompts = prompts
        self._new_tokens = new_tokens
        self._format = cache_format
        self._cache: Any = None
        self._ids = prompts
        self._logits = self._probabilities = torch.empty(0)

    @property
    def moves(self) -> list[Callable[[], None]]:
        """What happens, in order: the prompts, then at some lengths of the cache one token."""
        prompt, whole = self._prompts.shape[1], self._prompts.shape[1] + self._new_tokens
        found = [self._read_prompts]
        lengths = {prompt + self._new_tokens * part // GROWTHS for part in range(1, GROWTHS + 1)}
        for length in sorted(one for one in lengths if prompt < one <= whole):
            # The last token is never read, and each one before it when the cache lacks it.
            found += [_at(self._grow, length - 2), _at(self._read_token, length - 2)]
        return found if self._new_tokens > 1 else found[:1]

    @property
    def cached(self) -> list[torch.Tensor]:
        """The keys and values that are kept now."""
        layers = getattr(self._cache, "layers", ())
        found = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return [tensor for tensor in found if tensor is not None]

    def _read_prompts(self) -> None:
        training = self._training
        training.phase = "inputs"
        self._ids = self._prompts.to(training.device, copy=True)
        if self._format is CacheFormat.STATIC:
            length = self._prompts.shape[1] + self._new_tokens - 1  # the last is never read
            config: Any = training.model.config
            self._cache = StaticCache(config.get_text_config(decoder=True), max_cache_len=length)
        self._next(self._ids, 0)

    def _read_token(self, length: int) -> None:
        self._next(self._ids[:, :1], length)

    def _next(self, ids: torch.Tensor, length: int) -> None:
        """Read tokens after so many others, and draw the next one of each text."""
        training = self._training
        training.phase = "generation"
        mask = ids.new_ones((len(ids), length + ids.shape[1]))
        with torch.no_grad():
            with training.forward_context():
                outputs = training.model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=(mask.cumsum(-1) - 1)[:, length:],
                    past_key_values=self._cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
            self._cache = outputs.past_key_values
            # A copy, so that the logits themselves may go. It stays until the next token's.
            self._logits = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
            self._probabilities = torch.softmax(self._logits, dim=-1)
            torch.multinomial(self._probabilities, num_samples=1)
        training.phase = "idle"

    def _grow(self, length: int) -> None:
        """Make the cache as long as it is when so many tokens were read."""
        layers = getattr(self._cache, "layers", None)
        if layers is None:
            raise EngineError("this release of transformers has other caches; update it to predict")
        if self._format is CacheFormat.STATIC:
            return
        self._training.phase = "cache"
        for layer in layers:
            if not isinstance(getattr(layer, "keys", None), torch.Tensor):
                continue  # a state of one size, however many tokens were read
            kept = length
            if getattr(layer, "is_sliding", False):
                kept = min(length, layer.sliding_window - 1)
                layer.cumulative_length = length
            layer.keys = _of_length(layer.keys, kept)
            layer.values = _of_length(layer.values, kept)
        self._training.phase = "idle"


def _of_length(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return tensor.new_zeros((*tensor.shape[:-2], length, tensor.shape[-1]))


def _at(move: Callable[[int], None], length: int) -> Callable[[], None]:
    return lambda: move(length)
