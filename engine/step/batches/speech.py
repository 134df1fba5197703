"""Batches of sound: speech with what was said, or sounds with what they are."""

from __future__ import annotations

from functools import cache
from inspect import signature
from typing import Any

import numpy as np
import torch

from ...interface.workload import Workload
from ..building import forward_arguments, model_config, new_model
from ..transformers_versions import feature_extractor
from .batch import Batch, one_label_each
from .placeholders import feature_count, interleaved, token_of
from .text import padded, token_ids

_MEL_BINS = ("num_mel_bins", "feature_size", "input_feat_per_channel")
_MASK = "attention_mask"
_SOUND_MASKS = ("feature_attention_mask", "input_features_mask")
_LENGTHS = "_get_feat_extract_output_lengths"
_SOUND_TOKENS = ("audio_token_id", "audio_token_index")
_WITH_MASK = "return_attention_mask"


def classified(workload: Workload, batch_size: int) -> Batch:
    """Clips with one label each."""
    return _sound(workload, batch_size) | one_label_each(workload, batch_size)


def with_transcript(workload: Workload, batch_size: int) -> Batch:
    """Clips with a transcript each.

    A language model that listens reads both as one text, in which its sound stands as tokens of
    their own; the model says how many.
    """
    token = token_of(model_config(workload), _SOUND_TOKENS)
    if token is not None:
        return _heard(workload, batch_size, token)
    return _sound(workload, batch_size) | {"labels": token_ids(workload, batch_size)}


def _heard(workload: Workload, batch_size: int, token: int) -> Batch:
    """Clips, and texts that begin with them."""
    texts, length = padded(workload, batch_size), _token_count(workload)
    ids = interleaved(texts["input_ids"], token, 1, length)
    mask = interleaved(texts["attention_mask"], 1, 1, length)
    text = {"input_ids": ids, "attention_mask": mask, "labels": ids.clone()}
    return _masked_sound(workload, batch_size) | text


@cache
def _token_count(workload: Workload) -> int:
    clips = _masked_sound(workload, 1)
    if count := feature_count(workload, "get_audio_features", clips):
        return count
    with torch.device("meta"):  # Qwen2-Audio's encoder only tells
        model = new_model(workload)
    tells = next(part for part in model.modules() if hasattr(part, _LENGTHS))
    _, lengths = getattr(tells, _LENGTHS)(clips["feature_attention_mask"].sum(-1))
    return int(lengths.sum())


def _masked_sound(workload: Workload, count: int) -> Batch:
    """``count`` clips, with a mask of what is sound under the model's name for it."""
    made = _extracted(
        workload.preset.feature_extractor,
        workload.audio_seconds or 0,
        _mel_bins(workload),
        with_mask=True,
    )
    made = dict.fromkeys(_SOUND_MASKS, made.get(_MASK)) | made
    known = forward_arguments(workload) - {_MASK}
    return {
        name: tensor.expand(count, *tensor.shape[1:]).clone()
        for name, tensor in made.items()
        if name in known and tensor is not None
    }


def _sound(workload: Workload, count: int) -> Batch:
    """``count`` clips from the model's own feature extractor; the last is a tenth shorter."""
    made = _extracted(
        workload.preset.feature_extractor, workload.audio_seconds or 0, _mel_bins(workload)
    )
    known = forward_arguments(workload)
    clips = {
        name: tensor.expand(count, *tensor.shape[1:]).clone()
        for name, tensor in made.items()
        if name in known
    }
    if _MASK in clips:
        length = clips[_MASK].shape[1]
        clips[_MASK][-1, length - length // 10 :] = 0
    return clips


def _mel_bins(workload: Workload) -> int | None:
    """The bands of the spectrogram that a model reads; ``None`` if it reads the wave itself."""
    config = model_config(workload)
    parts = (getattr(config, name, None) for name in ("encoder_config", "audio_config"))
    for part in (config, *parts):
        for name in _MEL_BINS:
            if isinstance(found := getattr(part, name, None), int):
                return found
    return None


@cache
def _extracted(
    extractor_name: str, seconds: int, mel_bins: int | None, *, with_mask: bool = False
) -> dict[str, Any]:
    """A clip after the model's own feature extractor, as a batch of one."""
    extractor_class = feature_extractor(extractor_name)
    usual = extractor_class()
    sizes = {
        name: mel_bins for name in _MEL_BINS if mel_bins is not None and getattr(usual, name, 1) > 1
    }
    extractor = extractor_class(**sizes)
    wave = np.sin(np.arange(seconds * extractor.sampling_rate, dtype=np.float32) / 10)
    options = {"sampling_rate": extractor.sampling_rate, "return_tensors": "pt"}
    if (with_mask or getattr(extractor, _WITH_MASK, None)) and _WITH_MASK in signature(
        extractor
    ).parameters:
        options[_WITH_MASK] = True  # some only ask the call
    made = extractor(wave, **options)
    return dict(made)
