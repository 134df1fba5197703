"""Dummy batches with the shapes of real ones; memory does not depend on the other values."""

from __future__ import annotations

from collections.abc import Callable

from ...core.choices import Method
from ...core.errors import EngineError
from ...interface.workload import Workload
from ...models.tasks import Task
from . import diffusion, images, speech, text, time_series, vision_language
from .answers import answers
from .batch import Batch

__all__ = ["Batch", "make_batch"]


def make_batch(workload: Workload, batch_size: int) -> Batch:
    """One batch on the host, as a data collator would return it.

    The same batch each time, apart from its real numbers. Its tokens are where a model looks for
    them: the end of a text, its padding.

    Args:
        workload: The task and the sizes.
        batch_size: Samples in the batch, B.

    Returns:
        For text, ``input_ids`` of shape (B, S) and dtype int64, with an ``attention_mask`` (B, S)
        where texts are padded; (B, choices, S) for multiple choice; (2B, S) where a sample is a
        pair of texts. For images, ``pixel_values`` (B, 3, H, W) in fp32. For speech,
        ``input_features`` (B, mel bins, frames) in fp32. ``labels`` are (B,) for one label a
        sample, in fp32 where it is a regression, and (B, S) for one a token.
    """
    if workload.task is None:
        raise EngineError(f"the config of {workload.model} was not fetched")
    if workload.method is not Method.SFT:
        return answers(workload, batch_size)
    return _BATCHES[workload.task](workload, batch_size)


_BATCHES: dict[Task, Callable[[Workload, int], Batch]] = {
    Task.SEQUENCE_CLASSIFICATION: text.classified,
    Task.TOKEN_CLASSIFICATION: text.tagged,
    Task.QUESTION_ANSWERING: text.with_spans,
    Task.MULTIPLE_CHOICE: text.choices,
    Task.MASKED_LANGUAGE_MODELLING: text.masked,
    Task.PERMUTED_LANGUAGE_MODELLING: text.permuted,
    Task.CAUSAL_LANGUAGE_MODELLING: text.continued,
    Task.SEQUENCE_TO_SEQUENCE: text.with_target,
    Task.SENTENCE_EMBEDDING: text.pairs,
    Task.REWARD_MODELLING: text.pairs,
    Task.IMAGE_CLASSIFICATION: images.classified,
    Task.OBJECT_DETECTION: images.with_boxes,
    Task.UNIVERSAL_SEGMENTATION: images.with_segments,
    Task.SEMANTIC_SEGMENTATION: images.with_class_maps,
    Task.DEPTH_ESTIMATION: images.with_depths,
    Task.MASKED_IMAGE_MODELLING: images.with_hidden_patches,
    Task.VIDEO_CLASSIFICATION: images.videos,
    Task.TEXT_TO_IMAGE: diffusion.captioned,
    Task.CONTRASTIVE: images.with_captions,
    Task.IMAGE_TEXT_TO_TEXT: vision_language.conversations,
    Task.SPEECH_RECOGNITION: speech.with_transcript,
    Task.CTC: speech.with_transcript,
    Task.AUDIO_CLASSIFICATION: speech.classified,
    Task.TIME_SERIES_PREDICTION: time_series.with_futures,
}
