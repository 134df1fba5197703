"""Batches of text."""

from __future__ import annotations

import sys
from typing import Any

import torch

from ...core.choices import Batching
from ...interface.workload import Workload
from ..building import forward_arguments, model_config
from ..transformers_versions import text_part
from .batch import Batch, one_label_each

_MAX_QUESTION_LENGTH = 64
IGNORED = -100
"""The label of padding, which no loss counts."""
_SPECIAL = ("_token_id", "_token_index")


def classified(workload: Workload, batch_size: int) -> Batch:
    """Texts with one label each."""
    return padded(workload, batch_size) | one_label_each(workload, batch_size)


def tagged(workload: Workload, batch_size: int) -> Batch:
    """Texts with one label a token."""
    texts = padded(workload, batch_size)
    return texts | {"labels": torch.zeros_like(texts["input_ids"])}


def with_spans(workload: Workload, batch_size: int) -> Batch:
    """Questions with a text each, and the first and the last token of an answer in it."""
    first = torch.zeros(batch_size, dtype=torch.int64)
    texts = _in_two_parts(workload, padded(workload, batch_size), _short_part(workload))
    return texts | {
        "start_positions": first,
        "end_positions": first.clone(),
    }


def choices(workload: Workload, batch_size: int) -> Batch:
    """Several texts a sample, each with a choice at its end, one of which is right."""
    count = workload.label_count or 1
    second = (workload.sequence_length or 0) - _short_part(workload) - 2
    texts = _in_two_parts(workload, padded(workload, batch_size * count), second)
    return {
        name: tensor.view(batch_size, count, *tensor.shape[1:]) for name, tensor in texts.items()
    } | {"labels": torch.zeros(batch_size, dtype=torch.int64)}


def masked(workload: Workload, batch_size: int) -> Batch:
    """Texts with their own tokens as labels, some of which are hidden."""
    texts = padded(workload, batch_size)
    return texts | {"labels": texts["input_ids"].clone()}


def permuted(workload: Workload, batch_size: int) -> Batch:
    """Texts whose tokens are predicted in an order of their own.

    Of the shapes of transformers' ``DataCollatorForPermutationLanguageModeling``.
    """
    ids = token_ids(workload, batch_size)
    square = (*ids.shape, ids.shape[1])
    return {
        "input_ids": ids,
        "perm_mask": torch.zeros(square),
        "target_mapping": torch.zeros(square),
        "labels": ids.clone(),
    }


def continued(workload: Workload, batch_size: int) -> Batch:
    """Texts whose next tokens are predicted: padded where they differ in length."""
    if workload.batching is Batching.PADDING_FREE:
        return packed(workload, batch_size) | _positions(workload, batch_size)
    if not workload.batching.pads:
        return packed(workload, batch_size)
    texts = padded(workload, batch_size)
    labels = texts["input_ids"].masked_fill(texts["attention_mask"] == 0, IGNORED)
    return texts | {"labels": labels}


def packed(workload: Workload, batch_size: int) -> Batch:
    """Texts of the full length, as language models train on them.

    Nothing is padded, so there is no mask to give, and attention is plainly causal.
    """
    ids = token_ids(workload, batch_size)
    return {"input_ids": ids, "labels": ids.clone()}


def with_target(workload: Workload, batch_size: int) -> Batch:
    """Texts with a target each, as long as its source, as in translation.

    A target's padding is marked in the labels themselves (-100), so it has no mask.
    """
    return padded(workload, batch_size) | {"labels": token_ids(workload, batch_size)}


def pairs(workload: Workload, batch_size: int) -> Batch:
    """Two texts a sample: all first ones, then all second ones."""
    return padded(workload, 2 * batch_size)


def padded(workload: Workload, count: int) -> Batch:
    """Texts that differ in length: the last one lacks a token.

    Texts of one length would have a mask of ones only, which transformers drops; then another
    attention kernel runs.
    """
    ids = token_ids(workload, count)
    mask = torch.ones_like(ids)
    mask[-1, -1] = 0
    config = _text_config(workload)
    end, padding = _special(config, "eos_token_id"), _special(config, "pad_token_id")
    if padding is not None:
        ids[-1, -1] = padding
    if end is not None:  # at the end of each text
        ids[:-1, -1] = end
        ids[-1, -2:-1] = end
    return {"input_ids": ids, "attention_mask": mask} | _page(workload, count)


def _positions(workload: Workload, count: int) -> Batch:
    """Position of each token in its own text, as ``DataCollatorWithFlattening`` counts it."""
    if "position_ids" not in forward_arguments(workload):
        return {}
    return {"position_ids": torch.arange(workload.sequence_length or 0).repeat(count, 1)}


def _page(workload: Workload, count: int) -> Batch:
    """Box of each token on its page, and the page's image, for models that read those."""
    known = forward_arguments(workload)
    if "bbox" not in known:
        return {}
    boxes = {"bbox": torch.zeros(count, workload.sequence_length or 0, 4, dtype=torch.int64)}
    side = getattr(model_config(workload), "input_size", None)
    if "pixel_values" not in known or side is None:
        return boxes
    return boxes | {"pixel_values": torch.rand(count, 3, side, side)}


def _in_two_parts(workload: Workload, texts: Batch, begin: int) -> Batch:
    """Texts with two separators between their parts, as RoBERTa's tokenizer writes them.

    Longformer finds by them its question, or its choice, which sees all other tokens.
    """
    separator = _special(_text_config(workload), "sep_token_id")
    if separator is not None:
        texts["input_ids"][:, begin : begin + 2] = separator
    return texts


def _short_part(workload: Workload) -> int:
    """The tokens of a question or a choice: a quarter of the text, cut as in scripts for SQuAD."""
    return min(_MAX_QUESTION_LENGTH, (workload.sequence_length or 0) // 4)


def token_ids(workload: Workload, count: int) -> torch.Tensor:
    """Token ids of shape (count, S): all sorts of tokens, but none with a meaning of its own."""
    whole, config = model_config(workload), _text_config(workload)
    vocabulary = _vocabulary_size(config)
    is_plain = torch.ones(vocabulary, dtype=torch.bool)
    for part in (whole, config):
        for name in (*vars(part), *part.attribute_map):
            found = getattr(part, name, None) if name.endswith(_SPECIAL) else None
            if isinstance(found, int) and 0 <= found < vocabulary:
                is_plain[found] = False
    plain = torch.arange(vocabulary)[is_plain]
    length = workload.sequence_length or 0
    return plain[torch.arange(count * length) % len(plain)].view(count, length)


def _text_config(workload: Workload) -> Any:
    return text_part(model_config(workload))


def _vocabulary_size(config: Any) -> int:
    """Number of tokens in the vocabulary; a model without one reads characters by their codes."""
    return int(getattr(config, "vocab_size", sys.maxunicode + 1))


def _special(config: Any, name: str) -> int | None:
    """A token's id; ``None`` if the vocabulary does not have it."""
    found = getattr(config, name, None)
    if isinstance(found, list):
        found = found[0] if found else None
    return found if found is not None and 0 <= found < _vocabulary_size(config) else None
