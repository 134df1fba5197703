"""Dummy batches with the shapes real training sees; memory does not depend on their values."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
import transformers
from PIL import Image

from engine.workload import Workload

Batch = dict[str, torch.Tensor]


def make_batch(workload: Workload, batch_size: int) -> Batch:
    """One batch on the host, as a data collator would hand it to the training loop.

    Args:
        workload: Decides the task and the sizes.
        batch_size: Samples in the batch, B.

    Returns:
        For text, ``input_ids`` of shape (B, S) and dtype int64, for classifiers with an
        ``attention_mask`` (B, S) and ``labels`` (B,), for language models with ``labels`` (B, S).
        For images, ``pixel_values`` (B, 3, H, W) in fp32 and ``labels`` (B,).
    """
    if workload.preset.task == "sequence-classification":
        return _padded_text(workload, batch_size)
    if workload.preset.task == "causal-language-modelling":
        return _packed_text(workload, batch_size)
    return _images(workload, batch_size)


def _token_ids(workload: Workload, batch_size: int) -> torch.Tensor:
    vocabulary = int(workload.preset.config()["vocab_size"])
    return torch.randint(0, vocabulary, (batch_size, workload.sequence_length or 0))


def _padded_text(workload: Workload, batch_size: int) -> Batch:
    token_ids = _token_ids(workload, batch_size)
    mask = torch.ones_like(token_ids)
    # Sentences differ in length, so a batch has padding, and so attention keeps its mask: with a
    # mask of ones only, transformers would drop it and take another attention kernel.
    mask[-1, -1] = 0
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return {"input_ids": token_ids, "attention_mask": mask, "labels": labels}


def _packed_text(workload: Workload, batch_size: int) -> Batch:
    # Language models train on text packed to the full length. Nothing is padded, so there is no
    # mask to give, and attention is plainly causal.
    token_ids = _token_ids(workload, batch_size)
    return {"input_ids": token_ids, "labels": token_ids.clone()}


def _images(workload: Workload, batch_size: int) -> Batch:
    shape = _processed_shape(workload.preset.image_processor, workload.image_size or 0)
    labels = torch.zeros(batch_size, dtype=torch.int64)
    return {"pixel_values": torch.rand(batch_size, *shape), "labels": labels}


@cache
def _processed_shape(processor_name: str, side: int) -> tuple[int, ...]:
    """(channels, height, width) of a photograph after the model's own image processor.

    The processor decides the shape, not this module: it resizes and crops as training would.
    """
    processor = getattr(transformers, processor_name)(size={"shortest_edge": side})
    photograph = Image.new("RGB", (640, 480), color=(120, 90, 60))
    pixels = np.asarray(processor(photograph, return_tensors="np")["pixel_values"][0])
    return pixels.shape
