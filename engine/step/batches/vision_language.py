"""Batches of images with the text that a model is to write about them."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from PIL import Image

from ...interface.workload import Workload
from ..building import forward_arguments, model_config
from ..transformers_versions import image_processor
from .batch import Batch
from .placeholders import feature_count, interleaved, taken, token_of
from .text import padded, token_ids

_IMAGE_TOKENS = ("image_token_id", "image_token_index")
_TYPES = ("mm_token_type_ids", "token_type_ids")
"""Arguments that distinguish image tokens (1) from text (0)."""

_PLACES = "image_embeds_position_mask"
"""The same, in models that have no token for images."""

_QUESTION = ("qformer_input_ids", "qformer_attention_mask")
_OF_PATCHES = {
    "patch_size": "patch_size",
    "temporal_patch_size": "temporal_patch_size",
    "merge_size": "spatial_merge_size",
}
"""Settings that an image processor takes from the model, and their names in the model's config."""


def conversations(workload: Workload, batch_size: int) -> Batch:
    """Texts with images in them, which stand there as tokens of their own.

    The model says how many tokens an image makes. The text's own tokens come on top, one of them
    before each image: where images touch, some models count them as one. Models whose text looks at
    its images from aside make no tokens of them. An encoder that reads images only has a decoder
    that writes the text.
    """
    count = workload.image_count or 1
    images = _images(workload, batch_size, count)
    known = forward_arguments(workload)
    if "input_ids" not in known:
        return taken(known, images) | {"labels": token_ids(workload, batch_size)}
    texts = padded(workload, batch_size)
    config = model_config(workload)
    token = token_of(config, _IMAGE_TOKENS)
    features = _feature_count(workload) // count if token is not None or _PLACES in known else 0
    if (start := getattr(config, "vision_start_token_id", None)) is not None:
        texts["input_ids"][:, :count] = start
    ids = interleaved(texts["input_ids"], token or 0, count, features)
    mask = interleaved(texts["attention_mask"], 1, count, features)
    types = interleaved(torch.zeros_like(texts["input_ids"]), 1, count, features)
    batch = {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
    told = dict.fromkeys((*_TYPES, _PLACES), types)
    if (tiles := images.get("aspect_ratio_mask")) is not None:
        told["cross_attention_mask"] = torch.ones(*ids.shape, *tiles.shape[1:], dtype=torch.int64)
    if not features:  # each token may look at each image
        told["image_attention_mask"] = torch.ones(*ids.shape, count, dtype=torch.int64)
    return taken(known, images | told) | batch


def _images(workload: Workload, batch_size: int, count: int) -> Batch:
    """Photographs, ``count`` per sample, and the question that some models read beside them."""
    question = torch.ones(batch_size, workload.sequence_length or 0, dtype=torch.int64)
    told = taken(forward_arguments(workload), dict.fromkeys(_QUESTION, question))
    return _photographs(workload, batch_size, count) | told


def _photographs(workload: Workload, batch_size: int, count: int) -> Batch:
    """Photographs, ``count`` per sample, from the model's own image processor."""
    side = workload.image_size or 0
    if not workload.preset.image_processor:
        return {"pixel_values": torch.rand(batch_size * count, 3, side, side)}
    photographs = [Image.new("RGB", (side, side), color=(120, 90, 60))] * count
    processed = _processor(workload)([photographs] * batch_size, return_tensors="pt")
    if isinstance(processed, torch.Tensor):  # Idefics': all in a row, which it reads by sample
        return {"pixel_values": processed.unflatten(0, (batch_size, count))}
    return {name: value for name, value in processed.items() if isinstance(value, torch.Tensor)}


def _processor(workload: Workload) -> Any:
    """The model's image processor, told the sizes that the model's config has."""
    config = model_config(workload)
    encoder = getattr(config, "encoder", None)
    vision = getattr(encoder or config, "vision_config", encoder)
    made = image_processor(workload.preset.image_processor)
    usual = made()
    sizes = {
        name: getattr(vision, of_model)
        for name, of_model in _OF_PATCHES.items()
        if hasattr(usual, name) and isinstance(getattr(vision, of_model, None), int)
    }
    own = getattr(vision, "image_size", None)
    if isinstance(own, list | tuple) and len({*own}) == 1:  # height and width
        own = own[0]
    if isinstance(own, int):
        sizes |= _fixed_size(usual, own)
    return made(**sizes)


def _fixed_size(processor: Any, side: int) -> dict[str, Any]:
    """The settings of a processor for a model that reads images of one size."""
    square = {"height": side, "width": side}
    largest = getattr(processor, "max_image_size", None)
    if largest and not isinstance(largest, int):  # of a tile; a whole image has several
        whole = processor.size["longest_edge"] * side // largest["longest_edge"]
        return {"size": {"longest_edge": whole}, "max_image_size": {"longest_edge": side}}
    size = {name: value for name, value in dict(processor.size or {}).items() if value is not None}
    found: dict[str, Any] = {}
    if size.keys() == {"height", "width"}:
        found["size"] = square
    elif size.keys() == {"shortest_edge"}:
        found["size"] = {"shortest_edge": side}
    if found and getattr(processor, "crop_size", None):
        found["crop_size"] = square
    return found


@cache
def _feature_count(workload: Workload) -> int:
    """Number of tokens that a sample's images make; 0 where text reads them by cross-attention.

    Some models cut an image into tiles only where it is the only one.
    """
    count = workload.image_count or 1
    images = _images(workload, 1, count)
    if found := feature_count(workload, "get_image_features", images):
        return found
    return count * int(getattr(model_config(workload), "latent_query_num", 0))
