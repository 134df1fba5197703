"""What an evaluation between steps does not combine with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..choices import Batching, Parallelism
from ..models.tasks import Task
from .contradiction import GIVEN, NOT_GIVEN, OF_ANSWERS, Contradiction, one_of, other_than

if TYPE_CHECKING:
    from ..workload import Workload

_WITHOUT_METRICS = one_of(
    Task.CONTRASTIVE,
    Task.DEPTH_ESTIMATION,
    Task.OBJECT_DETECTION,
    Task.REWARD_MODELLING,
    Task.SENTENCE_EMBEDDING,
    Task.UNIVERSAL_SEGMENTATION,
)
"""Their models return no loss, or outputs that the Trainer cannot concatenate."""

_NOT_WRITTEN = other_than(
    None, Task.CAUSAL_LANGUAGE_MODELLING, Task.SEQUENCE_TO_SEQUENCE, Task.SPEECH_RECOGNITION
)
"""What generates in evaluation elsewhere reads prompts of another form than training has."""


def _is_too_long(workload: Workload) -> bool:
    """Whether a decoder has no place for what it writes behind what it reads."""
    limits = workload.preset.limits("sequence_length", workload.task)
    whole = (workload.sequence_length or 0) + (workload.eval_new_tokens or 0)
    return limits is not None and whole > limits.largest


EVALUATION = (
    Contradiction(
        {"eval_batch_size": GIVEN, "parallelism": other_than(Parallelism.NONE)},
        "evaluation is predicted on one GPU only; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": GIVEN, "method": OF_ANSWERS},
        "evaluation is only predicted with sft; leave it empty",
    ),
    Contradiction(
        {"eval_batch_size": GIVEN, "task": one_of(Task.TEXT_TO_IMAGE)},
        "diffusers' scripts evaluate by generating images; leave it empty",
    ),
    Contradiction(
        {"eval_samples": GIVEN, "eval_batch_size": NOT_GIVEN},
        "enter the evaluation batch size too",
    ),
    Contradiction(
        {"eval_new_tokens": GIVEN, "task": _NOT_WRITTEN},
        "generation in evaluation is predicted for texts from texts or speech; leave it empty",
    ),
    Contradiction(
        {"eval_new_tokens": GIVEN, "task": one_of(Task.CAUSAL_LANGUAGE_MODELLING)},
        "the model does not take that many new tokens on top of a sample; enter fewer, or a "
        "smaller sequence length",
        _is_too_long,
    ),
    Contradiction(
        {"eval_new_tokens": GIVEN, "batching": one_of(Batching.PACKED, Batching.PADDING_FREE)},
        "nothing is generated from rows of several samples; leave it empty",
    ),
    Contradiction(
        {"eval_num_beams": other_than(1), "eval_new_tokens": NOT_GIVEN},
        "nothing is generated; leave it at 1 or enter the tokens generated in evaluation",
    ),
    Contradiction(
        {"eval_new_tokens": GIVEN, "eval_samples": NOT_GIVEN},
        "the Trainer generates only to compute metrics; enter the evaluation samples too",
    ),
    Contradiction(
        {"eval_samples": GIVEN, "task": _WITHOUT_METRICS},
        "kept logits are not predicted for this task; leave it empty",
    ),
    Contradiction(
        {"eval_accumulation_steps": GIVEN, "eval_samples": NOT_GIVEN},
        "nothing but the loss is kept; leave it empty or enter the evaluation samples",
    ),
)
