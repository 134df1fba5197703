"""Batches of images, alone or with text, and of videos."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image

from ...interface.workload import Workload
from ..building import forward_arguments, model_config
from ..transformers_versions import image_processor
from .batch import Batch, one_label_each
from .text import padded


def classified(workload: Workload, batch_size: int) -> Batch:
    """Images with one label each."""
    return _pixels(workload, batch_size) | one_label_each(workload, batch_size)


def with_captions(workload: Workload, batch_size: int) -> Batch:
    """Images with a text each."""
    return padded(workload, batch_size) | _pixels(workload, batch_size)


def with_class_maps(workload: Workload, batch_size: int) -> Batch:
    """Images with a class for each pixel."""
    pixels = _pixels(workload, batch_size)
    return pixels | {"labels": torch.zeros(_plane(pixels), dtype=torch.int64)}


def with_depths(workload: Workload, batch_size: int) -> Batch:
    """Images with a distance for each pixel."""
    pixels = _pixels(workload, batch_size)
    return pixels | {"labels": torch.ones(_plane(pixels))}


def with_hidden_patches(workload: Workload, batch_size: int) -> Batch:
    """Images of which some patches are hidden, half of them."""
    config = model_config(workload)
    pixels = _pixels(workload, batch_size)
    count = (pixels["pixel_values"].shape[-1] // config.patch_size) ** 2
    hidden = torch.arange(count) % 2 == 0
    return pixels | {"bool_masked_pos": hidden.expand(batch_size, count).clone()}


def with_boxes(workload: Workload, batch_size: int) -> Batch:
    """Images with a class and a box for each of their objects."""
    images = _pixels_and_mask(workload, batch_size)
    return images | {"labels": [_objects(workload) for _ in range(batch_size)]}


def with_segments(workload: Workload, batch_size: int) -> Batch:
    """Images with a class and a mask for each of their segments.

    DETR takes them as objects that have masks too, the models that came after it apart.
    """
    images = _pixels_and_mask(workload, batch_size)
    count, plane = workload.target_count or 0, images["pixel_values"].shape[-2:]
    if "mask_labels" in forward_arguments(workload):
        return images | {
            "mask_labels": [torch.zeros(count, *plane) for _ in range(batch_size)],
            "class_labels": [_classes(workload) for _ in range(batch_size)],
        }
    masks = [{"masks": torch.zeros(count, *plane)} for _ in range(batch_size)]
    return images | {"labels": [_objects(workload) | mask for mask in masks]}


def videos(workload: Workload, batch_size: int) -> Batch:
    """Videos of ``frame_count`` frames each, with one label each."""
    count = workload.frame_count or 1
    frame = _pixels(workload, 1)["pixel_values"].flatten(end_dim=-4)
    frames = frame.expand(count, *frame.shape[1:])
    name = next(iter({"pixel_values_videos"} & forward_arguments(workload)), "pixel_values")
    pixels = {name: frames.expand(batch_size, *frames.shape).clone()}
    return pixels | one_label_each(workload, batch_size)


def _objects(workload: Workload) -> Batch:
    """The objects in an image, each with a box (centre, width and height, as shares)."""
    classes = _classes(workload)
    return {"class_labels": classes, "boxes": torch.full((len(classes), 4), 0.5)}


def _classes(workload: Workload) -> torch.Tensor:
    return torch.zeros(workload.target_count or 0, dtype=torch.int64)


def _plane(images: Batch) -> tuple[int, ...]:
    """(images, height, width)."""
    count, _, *plane = images["pixel_values"].shape
    return (count, *plane)


def _pixels(workload: Workload, count: int) -> Batch:
    """``count`` photographs, none padded to the size of others."""
    images = _pixels_and_mask(workload, count)
    return {name: images[name] for name in images.keys() - {"pixel_mask"}}


def _pixels_and_mask(workload: Workload, count: int) -> Batch:
    """``count`` photographs, with whatever else the processor returns that the model takes.

    That may be a mask of what is not padding; then the last is half as wide, as photographs differ:
    without padding, models drop the mask.
    """
    preset = workload.preset
    made = _processed(preset.image_processor, workload.image_size or 0, preset.square_images)
    known = forward_arguments(workload)
    images = {
        name: tensor.expand(count, *tensor.shape[1:]).clone()
        for name, tensor in made.items()
        if name == "pixel_values" or name in known
    }
    if "pixel_mask" in images:
        width = images["pixel_mask"].shape[-1]
        images["pixel_mask"][-1, :, width // 2 :] = 0
    return images


def _processed(processor_name: str, side: int, is_square: bool) -> Batch:
    """A photograph after the model's own image processor, as a batch of one.

    The processor decides the shape, not this module: it resizes and crops as training would.
    Without one, images are square.
    """
    if not processor_name:
        return {"pixel_values": torch.full((1, 3, side, side), 0.5)}
    processor_class = image_processor(processor_name)
    usual = processor_class()
    photograph = Image.new("RGB", (640, 480), color=(120, 90, 60))
    sizes = _sizes(usual, side)
    if not sizes or is_square:  # it takes images of any size as they are
        photograph = photograph.resize((side, side))
    made = processor_class(**sizes)(photograph, return_tensors="pt")
    return {name: value for name, value in made.items() if isinstance(value, torch.Tensor)}


def _sizes(processor: Any, side: int) -> dict[str, Any]:
    """The settings of a processor for images of a size; none where it does not resize to one."""
    edges = dict(processor.size or {})
    if hasattr(processor, "max_num_patches"):  # of each image, whatever its shape
        return {"max_num_patches": (side // processor.patch_size) ** 2}
    if not edges:
        return {}
    square = {"height": side, "width": side}
    sizes = {"size": square}
    if "shortest_edge" in edges:
        sizes = {"size": {"shortest_edge": side}}
        if "longest_edge" in edges:
            longest = side * edges["longest_edge"] // edges["shortest_edge"]
            sizes["size"]["longest_edge"] = longest
    if getattr(processor, "crop_size", None):
        sizes["crop_size"] = square
    return sizes
