"""Generating text token by token, as ``generate`` of transformers does it with a cache.

The prompts are read in one forward pass, which computes the logits of their last tokens only
(``logits_to_keep``, where the model knows it). What an encoder reads is read once before, and its
keys and values keep their length. Then each token is read with the keys and values of all before
it. A dynamic cache concatenates: the old and the new keys of one layer are there together for a
moment, and a sliding window keeps its last tokens only. A static one has its whole length from the
start. Sources: ``GenerationMixin._prefill`` and ``_sample``, ``DynamicLayer``,
``DynamicSlidingWindowLayer``, ``StaticCache`` and ``EncoderDecoderCache`` in transformers 5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from ..choices import CacheFormat
from ..errors import EngineError
from ..tracing.trace import GROWTH, PROMPT, TOKEN
from .adapting import without_adapters
from .batches import Batch
from .beams import Beams
from .prompts import prompts_of
from .training import Training

GROWTHS = 4
"""So often the cache is as long as it gets between the first and the last token: what it leaves
free each time decides how the allocator packs it."""


class Generation:
    """Texts that are being generated, one move after another.

    Args:
        training: Its model generates.
        batch: What is read first, on the host; see :func:`~.prompts.prompts_of`.
        new_tokens: How many are generated for each prompt.
        cache_format: Of the keys and values.
        beams: Of each text; 1 where nothing is searched for.
        temperature: By which the scores of all words are divided, to be kept; ``None`` keeps none.
        by_trainer: Whether a Trainer generates, which has moved the batch to the device, and whose
            model is wrapped by accelerate: what the forward pass returns is made fp32 where
            autocast runs, and an encoder, which ``generate`` calls itself, runs without it. The
            likeliest words are taken; otherwise they are drawn, unless there are beams.

    Attributes:
        scores: Those kept so far, of shape (B, tokens, V) each.
    """

    def __init__(
        self,
        training: Training,
        batch: Batch,
        new_tokens: int,
        cache_format: CacheFormat = CacheFormat.DYNAMIC,
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
        self._format = cache_format
        self._cache: Any = None
        self._ids = torch.empty(0)
        self._read = 0  # tokens that the cache stands for
        self._keeps = _keeps_logits(training.model)
        self._logits = self._probabilities = torch.empty(0)

    @property
    def moves(self) -> list[Callable[[], None]]:
        """What happens, in order: the prompts, then at some lengths of the cache one token."""
        prompt, whole = self._prompts.length, self._prompts.length + self._new_tokens
        found = [self._read_prompts]
        lengths = {prompt + self._new_tokens * part // GROWTHS for part in range(1, GROWTHS + 1)}
        for length in sorted(one for one in lengths if prompt < one <= whole):
            # The last token is never read, and each one before it when the cache lacks it.
            found += [_at(self._grow, length - 2), _at(self._read_token, length - 2)]
        return found if self._new_tokens > 1 else found[:1]

    @property
    def prompt_length(self) -> int:
        """Tokens that the decoder reads before it writes."""
        return self._prompts.length

    @property
    def cached(self) -> list[torch.Tensor]:
        """The keys and values that are kept now."""
        layers = [layer for cache in self._caches for layer in getattr(cache, "layers", ())]
        found = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        return [tensor for tensor in found if tensor is not None]

    @property
    def _caches(self) -> list[Any]:
        """The cache that grows; behind it, that of what an encoder read."""
        names = ("self_attention_cache", "cross_attention_cache")
        parts = [getattr(self._cache, name, None) for name in names]
        return [self._cache] if parts[0] is None else parts

    def _read_prompts(self) -> None:
        self._training.phase = "inputs"
        self._ids = self._prompts.read(self._training, by_trainer=self._by_trainer)
        longest = self._prompts.length + self._new_tokens - 1  # the last is never read
        self._cache = self._prompts.new_cache(self._format, longest)
        if self._count > 1:
            model = without_adapters(self._training.model)
            self._beams = Beams(model, self._ids, self._count, self._new_tokens)
        self._next(self._ids, 0)

    def _read_token(self, length: int) -> None:
        self._next(self._ids[:, :1], length)

    def _next(self, ids: torch.Tensor, length: int) -> None:
        """Read tokens after so many others, and draw the next one of each text."""
        training = self._training
        training.phase = f"{TOKEN} {length}" if length else PROMPT
        with torch.no_grad():
            arguments = self._prompts.arguments(ids, length, self._cache)
            arguments |= {"past_key_values": self._cache, "use_cache": True} | self._keeps
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

    def _draw(self) -> None:
        """Draw the next word of each text."""
        scores = self._logits
        if self._temperature is not None:
            scores = scores / self._temperature
            self.scores.append(scores.unsqueeze(1))
        self._probabilities = torch.softmax(scores, dim=-1)
        torch.multinomial(self._probabilities, num_samples=1)

    def _grow(self, length: int) -> None:
        """Make the cache as long as it is when so many tokens were read."""
        layers = getattr(self._caches[0], "layers", None)
        if layers is None:
            raise EngineError("this release of transformers has other caches; update it to predict")
        if self._format is CacheFormat.STATIC:
            return
        self._training.phase = GROWTH
        self._keep_scores(length + 1 - self._prompts.length)
        for layer in layers:
            if not self._grows(layer):
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
        """Keep as many scores as there are when so many tokens were drawn."""
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
