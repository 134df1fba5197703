"""Dummy batches with the shapes of real ones; memory does not depend on their values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image

from ..errors import EngineError
from ..models.config import text_config
from ..models.kinds import Task
from ..workload import Workload
from .transformers_versions import image_processor

Batch = dict[str, torch.Tensor]


def make_batch(workload: Workload, batch_size: int) -> Batch:
    """One batch on the host, as a data collator would return it.

    Args:
        workload: The task and the sizes.
        batch_size: Samples in the batch, B.

    Returns:
        For text, ``input_ids`` of shape (B, S) and dtype int64, with an ``attention_mask`` (B, S)
        where sentences are padded. For images, ``pixel_values`` (B, 3, H, W) in fp32. For speech,
        ``input_features`` (B, mel bins, frames) in fp32. ``labels`` are (B,) for one label a
        sample, in fp32 where it is a regression, and (B, S) for one a token.
    """
    if workload.task is None:
        raise EngineError(f"the config of {workload.model} was not fetched")
    return _BATCHES[workload.task](workload, batch_size)


def _classified_text(workload: Workload, batch_size: int) -> Batch:
    return _padded_text(workload, batch_size) | _one_label_each(workload, batch_size)


def _tagged_text(workload: Workload, batch_size: int) -> Batch:
    text = _padded_text(workload, batch_size)
    return text | {"labels": torch.zeros_like(text["input_ids"])}


def _masked_text(workload: Workload, batch_size: int) -> Batch:
    text = _padded_text(workload, batch_size)
    return text | {"labels": text["input_ids"].clone()}


def _packed_text(workload: Workload, batch_size: int) -> Batch:
    # Language models train on text packed to the full length. Nothing is padded, so there is no
    # mask to give, and attention is plainly causal.
    token_ids = _token_ids(workload, batch_size)
    return {"input_ids": token_ids, "labels": token_ids.clone()}


def _text_and_target(workload: Workload, batch_size: int) -> Batch:
    # As in translation, a target is as long as its source. Its padding is marked in the labels
    # themselves (-100), so it has no mask.
    return _padded_text(workload, batch_size) | {"labels": _token_ids(workload, batch_size)}


def _images(workload: Workload, batch_size: int) -> Batch:
    return _pixels(workload, batch_size) | _one_label_each(workload, batch_size)


def _pairs(workload: Workload, batch_size: int) -> Batch:
    return _padded_text(workload, batch_size) | _pixels(workload, batch_size)


def _speech(workload: Workload, batch_size: int) -> Batch:
    config = workload.preset.config()
    # The encoder's second convolution halves the frames: 3,000 of them, 30 s, for Whisper.
    frames = 2 * config["max_source_positions"]
    return {
        "input_features": torch.rand(batch_size, config["num_mel_bins"], frames),
        "labels": _token_ids(workload, batch_size),
    }


def _padded_text(workload: Workload, batch_size: int) -> Batch:
    token_ids = _token_ids(workload, batch_size)
    mask = torch.ones_like(token_ids)
    # Sentences differ in length, so a batch has padding, and so attention keeps its mask: with a
    # mask of ones only, transformers would drop it and take another attention kernel.
    mask[-1, -1] = 0
    return {"input_ids": token_ids, "attention_mask": mask}


def _token_ids(workload: Workload, batch_size: int) -> torch.Tensor:
    vocabulary: int = text_config(workload.preset.config())["vocab_size"]
    return torch.randint(0, vocabulary, (batch_size, workload.sequence_length or 0))


def _one_label_each(workload: Workload, batch_size: int) -> Batch:
    dtype = torch.float32 if workload.label_count == 1 else torch.int64
    return {"labels": torch.zeros(batch_size, dtype=dtype)}


def _pixels(workload: Workload, batch_size: int) -> Batch:
    shape = _processed_shape(workload.preset.image_processor, workload.image_size or 0)
    return {"pixel_values": torch.rand(batch_size, *shape)}


@cache
def _processed_shape(processor_name: str, side: int) -> tuple[int, ...]:
    """(channels, height, width) of a photograph after the model's own image processor.

    The processor decides the shape, not this module: it resizes and crops as training would.
    """
    processor_class = image_processor(processor_name)
    usual = processor_class()
    sizes: dict[str, Any] = {"size": {"height": side, "width": side}}
    if "shortest_edge" in dict(usual.size):
        sizes = {"size": {"shortest_edge": side}}
    if getattr(usual, "crop_size", None):
        sizes["crop_size"] = {"height": side, "width": side}
    processor = processor_class(**sizes)
    photograph = Image.new("RGB", (640, 480), color=(120, 90, 60))
    pixels = np.asarray(processor(photograph, return_tensors="np")["pixel_values"][0])
    return pixels.shape


_BATCHES: dict[Task, Callable[[Workload, int], Batch]] = {
    Task.SEQUENCE_CLASSIFICATION: _classified_text,
    Task.TOKEN_CLASSIFICATION: _tagged_text,
    Task.MASKED_LANGUAGE_MODELLING: _masked_text,
    Task.CAUSAL_LANGUAGE_MODELLING: _packed_text,
    Task.SEQUENCE_TO_SEQUENCE: _text_and_target,
    Task.IMAGE_CLASSIFICATION: _images,
    Task.CONTRASTIVE: _pairs,
    Task.SPEECH_RECOGNITION: _speech,
}
