"""Inputs that a model reads before generating: a text, an encoder's input, or images with a text.

Sources: ``GenerationMixin.generate``, ``_maybe_prepare_encoder_kwargs_for_generation``,
``prepare_inputs_for_generation`` and ``_update_model_kwargs_for_generation`` in transformers 5.23.
"""

from __future__ import annotations

from contextlib import nullcontext
from inspect import signature
from typing import Any, Protocol

import torch
from transformers import EncoderDecoderCache

from ..core.errors import EngineError
from ..tracing.trace import ENCODING
from .adapting import without_adapters
from .batches import Batch
from .caches import Caches
from .training import TrainingState, inputs_on_device

_LENGTHENED = ("position_ids", "token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids")
"""Arguments with a number for each token, in their last dimension."""

_BESIDE = "cross_attention_mask"
"""One with a row for each token, in its second."""


class Prompts(Protocol):
    """Inputs that are read before texts are generated."""

    length: int
    """Number of their tokens that the decoder reads."""

    def read(self, training: TrainingState, *, by_trainer: bool = False) -> torch.Tensor:
        """Move it to the device and encode what is encoded once.

        Args:
            training: Its model reads.
            by_trainer: Whether a Trainer has moved it, and an encoder runs without autocast.

        Returns:
            The tokens that the decoder reads first, of shape (B, length).
        """

    def new_cache(self, caches: Caches, longest: int) -> Any:
        """An empty cache for ``longest`` tokens; ``None`` where the model makes one itself."""

    def arguments(self, ids: torch.Tensor, before: int, cache: Any) -> dict[str, Any]:
        """Arguments of the model for tokens that ``before`` others precede."""


def prompts_of(model: Any, batch: Batch, beams: int = 1) -> Prompts:
    """The part of a batch that a model reads before it generates; labels are left out.

    Args:
        model: As ``TrainingState`` has it, with adapters or without.
        batch: A batch on the host.
        beams: Copies of each sample that are read.
    """
    without = without_adapters(model)
    given = {name: tensor for name, tensor in batch.items() if name != "labels"}
    if without.config.is_encoder_decoder:
        return _Encoded(without, given, beams)
    if not any(tensor.is_floating_point() for tensor in given.values()):
        return _Text(without, given, beams)
    return _WithImages(without, given, beams)


class _Text:
    """Texts of one length; a Trainer's may be padded, which a mask then says."""

    def __init__(self, model: Any, batch: Batch, beams: int) -> None:
        self._model, self._ids, self._beams = model, batch["input_ids"], beams
        self._padding = batch.get("attention_mask")
        self._mask: torch.Tensor | None = None
        self.length = self._ids.shape[1]

    def read(self, training: TrainingState, *, by_trainer: bool = False) -> torch.Tensor:
        if not by_trainer:
            ids = inputs_on_device(training, {"input_ids": self._ids})["input_ids"]
            return _repeated(self._model, ids, {}, self._beams)[0]
        padding = {} if self._padding is None else {"attention_mask": self._padding}
        ids, given = _repeated(self._model, self._ids, padding, self._beams)
        self._mask = given.get("attention_mask")
        return ids

    def new_cache(self, caches: Caches, longest: int) -> Any:
        return None if caches.is_default else caches.new(self._model, longest)

    def arguments(self, ids: torch.Tensor, before: int, cache: Any) -> dict[str, Any]:
        whole = before + ids.shape[1]
        mask = ids.new_ones((len(ids), whole))
        if self._mask is not None:
            mask = torch.cat([self._mask, mask[:, self.length :]], dim=-1)
        return {
            "input_ids": ids,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(-1) - 1)[:, before:],
        }


class _Encoded:
    """Input that an encoder reads once: a text, sound or an image.

    A decoder begins with one token.
    """

    length = 1

    def __init__(self, model: Any, batch: Batch, beams: int) -> None:
        self._model, self._batch, self._beams = model, batch, beams
        self._inputs: Batch = {}
        self._given: dict[str, Any] = {}

    def read(self, training: TrainingState, *, by_trainer: bool = False) -> torch.Tensor:
        # Who calls generate keeps them.
        self._inputs = self._batch if by_trainer else inputs_on_device(training, self._batch)
        training.phase = ENCODING
        encoder = self._model.get_encoder()
        known = signature(encoder.forward).parameters
        taken = {name: value for name, value in self._inputs.items() if name in known}
        context = nullcontext() if by_trainer else training.forward_context()
        with torch.no_grad(), context:
            encoded = encoder(**taken, return_dict=True)
        main = self._model.main_input_name
        others = {name: value for name, value in self._inputs.items() if name != main}
        self._given = others | {"encoder_outputs": encoded}
        (hidden, *_), config = encoded.values(), self._model.config
        start = getattr(config, "decoder_start_token_id", None)
        ids = torch.full((len(hidden), 1), start or 0, device=training.device)
        del encoded, hidden
        ids, self._given = _repeated(self._model, ids, self._given, self._beams)
        return ids

    def new_cache(self, caches: Caches, longest: int) -> Any:
        if caches.is_default:
            return None
        source = self._given["encoder_outputs"][0].shape[1]
        own, encoded = (caches.new(self._model, length) for length in (longest, source))
        return EncoderDecoderCache(own, encoded)

    def arguments(self, ids: torch.Tensor, before: int, cache: Any) -> dict[str, Any]:
        return self._given | {"decoder_input_ids": ids}


class _WithImages:
    """Texts with images or sound in them, of one length, whose features stand for tokens.

    What it is called with, transformers prepares for each model in its own way.
    """

    def __init__(self, model: Any, batch: Batch, beams: int) -> None:
        self._model, self._batch, self._beams = model, batch, beams
        self._inputs: Batch = {}
        self._given: dict[str, Any] = {}
        self.length = batch["input_ids"].shape[1]

    def read(self, training: TrainingState, *, by_trainer: bool = False) -> torch.Tensor:
        model = self._model
        prepare = getattr(model, "_prepare_position_ids_for_generation", None)
        if prepare is None:
            raise EngineError("this release of transformers takes images otherwise; update it")
        # Who calls generate keeps them.
        self._inputs = self._batch if by_trainer else inputs_on_device(training, self._batch)
        given = dict(self._inputs)
        ids: torch.Tensor = given.pop("input_ids")
        given.pop("attention_mask", None)  # dropped where nothing is padded
        self._given = {"use_cache": True} | given
        if "position_ids" in signature(model.forward).parameters:
            mask = {"attention_mask": torch.ones_like(ids)}
            self._given["position_ids"] = prepare(ids, self._given | mask)
        training.phase = ENCODING
        with torch.no_grad(), training.forward_context():
            self._given = model._maybe_prepare_encoder_kwargs_for_generation(
                ids, self._given, "input_ids", model.generation_config
            )
        ids, self._given = _repeated(model, ids, self._given, self._beams)
        return ids

    def new_cache(self, caches: Caches, longest: int) -> Any:
        return caches.new(self._model, longest)

    def arguments(self, ids: torch.Tensor, before: int, cache: Any) -> dict[str, Any]:
        whole = before + ids.shape[1]
        self._given |= {
            name: _lengthened(value, -1, whole)
            for name in _LENGTHENED
            if (value := self._given.get(name)) is not None
        }
        if (beside := self._given.get(_BESIDE)) is not None:
            self._given[_BESIDE] = _lengthened(beside, 1, whole)
        prepared: dict[str, Any] = self._model.prepare_inputs_for_generation(
            ids, past_key_values=cache, is_first_iteration=not before, **self._given
        )
        return prepared


def _repeated(
    model: Any, ids: torch.Tensor, given: dict[str, Any], beams: int
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Token ids and other inputs, once for each beam."""
    repeated: tuple[torch.Tensor, dict[str, Any]] = model._expand_inputs_for_generation(
        expand_size=beams,
        is_encoder_decoder=model.config.is_encoder_decoder,
        input_ids=ids,
        **given,
    )
    return repeated


def _lengthened(tensor: torch.Tensor, dimension: int, length: int) -> torch.Tensor:
    if tensor.shape[dimension] == length:
        return tensor
    shape = list(tensor.shape)
    shape[dimension] = length
    return tensor.new_zeros(shape)
