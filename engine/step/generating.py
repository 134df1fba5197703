"""Generating text token by token, as ``generate`` of transformers does it with a cache.

The prompts are read in one forward pass, which computes the logits of their last tokens only
(``logits_to_keep``, where the model knows it). What an encoder reads is read once before, and its
keys and values keep their length. Then each token is read with the keys and values of all before
it. A dynamic cache concatenates: the old and the new keys of one layer are there together for a
moment, and a sliding window keeps its last tokens only. A static one has its whole length from the
start. Sources: ``GenerationMixin._prefill`` and ``_sample``, ``DynamicLayer``,
``DynamicSlidingWindowLayer``, ``StaticCache`` and ``EncoderDecoderCache`` in transformers 5.23.
Offloaded and quantized caches are in modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from ..core.errors import EngineError
from ..tracing.operations import tensors_in
from ..tracing.trace import GROWTH, PACKING, PROMPT, TOKEN
from .adapting import without_adapters
from .batches import Batch
from .beams import Beams
from .caches import Caches
from .prompts import prompts_of
from .training import TrainingState

GROWTHS = 4
"""Number of lengths that the cache takes between the first and the last token: what it leaves free
each time decides how the allocator packs it."""

_CACHED = ("keys", "values", "_quantized_keys", "_quantized_values")
"""Attributes in which the layers of caches keep tensors."""

_DYNAMIC = Caches()


class Generation:
    """Texts that are being generated, one move after another.

    Args:
        training: Its model generates.
        batch: Inputs that are read first, on the host; see :func:`~.prompts.prompts_of`.
        new_tokens: Tokens generated for each prompt.
        caches: Make the cache of keys and values.
        beams: Beams of each text; 1 where nothing is searched for.
        temperature: Divisor of the scores of all words, which are kept; ``None`` keeps none.
        by_trainer: Whether a Trainer generates, which has moved the batch to the device, and whose
            model is wrapped by accelerate: what the forward pass returns is made fp32 where
            autocast runs, and an encoder, which ``generate`` calls itself, runs without it. The
            likeliest words are taken; otherwise they are drawn, unless there are beams.

    Attributes:
        scores: Scores kept so far, of shape (B, tokens, V) each.
    """

    def __init__(
        self,
        training: TrainingState,
        batch: Batch,
        new_tokens: int,
        caches: Caches = _DYNAMIC,
        beams: int = 1,
        temperature: float | None = None,
        *,
        by_trainer: bool = False,
    ) -> None:
        self.scores: list[torch.Tensor] = []
        self._temperature = temperature
        self._training = training
        self._prompts = prompts_of(training.model, batch, beams)
        self._count = beams
        self._beams: Beams | None = None
        self._new_tokens = new_tokens
        self._by_trainer = by_trainer
        self._caches = caches
        self._cache: Any = None
        self._ids = torch.empty(0)
        self._read = 0  # tokens that the cache stands for
        self._keeps = _keeps_logits(training.model)
        self._cache_name = cache_name(training.model)
        self._logits = self._probabilities = torch.empty(0)

    @property
    def moves(self) -> list[Callable[[], None]]:
        """The moves in order: the prompts, then one token at some lengths of the cache."""
        found = [self._read_prompts]
        for length in self._lengths():
            found += [_at(self._grow, length), _at(self._read_token, length)]
        return found

    def _lengths(self) -> list[int]:
        """Lengths of the cache at which the tokens that are looked at are read.

        They are evenly spread up to the last one that is read, which is not the last one drawn.
        Where tokens pack the cache from time to time, the first and the last of those are among
        them: no other takes as much as the last, and the others lie between the two.
        """
        prompt, last = self._prompts.length, self._prompts.length + self._new_tokens - 2
        evenly = {prompt + self._new_tokens * part // GROWTHS - 2 for part in range(1, GROWTHS + 1)}
        found = {length for length in evenly if prompt <= length <= last}
        if (every := self._caches.packs_every) is not None:
            packing = range(prompt + every - 1, last + 1, every)
            found = {length - (length in packing) for length in found}
            found |= {*packing[:1], *packing[-1:]}
        return sorted(found)

    @property
    def prompt_length(self) -> int:
        """Tokens that the decoder reads before it writes."""
        return self._prompts.length

    @property
    def cached(self) -> list[torch.Tensor]:
        """The keys and values that are kept now."""
        layers = [layer for cache in self._parts for layer in getattr(cache, "layers", ())]
        return [
            tensor
            for layer in layers
            for name in _CACHED
            for tensor in tensors_in(getattr(layer, name, None))
        ]

    @property
    def _parts(self) -> list[Any]:
        """The cache that grows; behind it, that of what an encoder read."""
        names = ("self_attention_cache", "cross_attention_cache")
        parts = [getattr(self._cache, name, None) for name in names]
        return [self._cache] if parts[0] is None else parts

    def _read_prompts(self) -> None:
        self._training.phase = "inputs"
        self._ids = self._prompts.read(self._training, by_trainer=self._by_trainer)
        longest = self._prompts.length + self._new_tokens - 1  # the last is never read
        self._cache = self._prompts.new_cache(self._caches, longest)
        if self._count > 1:
            model = without_adapters(self._training.model)
            self._beams = Beams(model, self._ids, self._count, self._new_tokens)
        self._next(self._ids, 0)

    def _read_token(self, length: int) -> None:
        self._next(self._ids[:, :1], length)

    def _next(self, ids: torch.Tensor, length: int) -> None:
        """Read tokens after ``length`` others, and draw the next one of each text."""
        training = self._training
        training.phase = self._phase(length) if length else PROMPT
        with torch.no_grad():
            arguments = self._prompts.arguments(ids, length, self._cache)
            arguments |= {self._cache_name: self._cache, "use_cache": True} | self._keeps
            with training.forward_context():
                outputs = training.model(**arguments)
            self._cache, self._read = outputs.past_key_values, length + ids.shape[1]
            logits = outputs.logits
            if self._by_trainer and training.autocast is not None:
                logits = outputs.logits = logits.float()
            # A copy, so that the logits themselves may go. It stays until the next token's.
            self._logits = logits[:, -1].to(copy=True, dtype=torch.float32)
            if self._beams is not None:
                self._beams.score(self._logits)
                del outputs, logits
                if not hasattr(self._cache, "reorder_cache"):
                    raise EngineError("its cache cannot follow beams; leave their number at 1")
                self._cache.reorder_cache(self._beams.choose(self._read))
            elif self._by_trainer:
                torch.argmax(self._logits, dim=-1)
            else:
                self._draw()
        training.phase = "idle"

    def _phase(self, length: int) -> str:
        """Phase of reading one token after ``length`` others."""
        every, new = self._caches.packs_every, length + 1 - self._prompts.length
        return f"{TOKEN if every is None or new % every else PACKING} {length}"

    def _draw(self) -> None:
        """Draw the next word of each text."""
        scores = self._logits
        if self._temperature is not None:
            scores = scores / self._temperature
            self.scores.append(scores.unsqueeze(1))
        self._probabilities = torch.softmax(scores, dim=-1)
        torch.multinomial(self._probabilities, num_samples=1)

    def _grow(self, length: int) -> None:
        """Make the cache as long as it is when ``length`` tokens were read."""
        layers = getattr(self._parts[0], "layers", None)
        if layers is None:
            raise EngineError("this release of transformers has other caches; update it to predict")
        if self._caches.is_static:
            return
        self._training.phase = GROWTH
        self._keep_scores(length + 1 - self._prompts.length)
        for layer in layers:
            if not self._grows(layer):
                continue
            if hasattr(layer, "hold"):
                layer.hold(length)
                continue
            kept = length
            if getattr(layer, "is_sliding", False):
                kept = min(length, layer.sliding_window - 1)
                layer.cumulative_length = length
            layer.keys = _of_length(layer.keys, kept)
            layer.values = _of_length(layer.values, kept)
        self._training.phase = "idle"

    def _grows(self, layer: Any) -> bool:
        """Whether a layer keeps what is read; others have a state, or look at images."""
        keys = getattr(layer, "keys", None)
        return isinstance(keys, torch.Tensor) and layer.get_seq_length() == self._read

    def _keep_scores(self, drawn: int) -> None:
        """Keep as many scores as there are when ``drawn`` tokens were drawn."""
        missing = drawn - sum(one.shape[1] for one in self.scores)
        if self._temperature is not None and missing > 0:
            count, words = self._logits.shape
            self.scores.append(self._logits.new_zeros((count, missing, words)))


def _keeps_logits(model: Any) -> dict[str, int]:
    """The argument by which only the last token's logits are computed, if a model has it."""
    forward = without_adapters(model).forward
    return {"logits_to_keep": 1} if "logits_to_keep" in signature(forward).parameters else {}


def _of_length(tensor: torch.Tensor, length: int) -> torch.Tensor:
    return tensor.new_zeros((*tensor.shape[:-2], length, tensor.shape[-1]))


def _at(move: Callable[[int], None], length: int) -> Callable[[], None]:
    return lambda: move(length)


def cache_name(model: Any) -> str:
    """The name by which a model takes its cache: transformers 5.24 began to rename it to ``cache``.

    The old name works for some releases more, with a warning at each token.
    """
    known = signature(without_adapters(model).forward).parameters
    renamed = "cache" in known and "past_key_values" not in known
    return "cache" if renamed else "past_key_values"
