"""Evaluation between the steps of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from ..core.choices import Batching, Parallelism
from ..core.fields import Described, Group, Interval
from ..models.tasks import MAX_SEQUENCE_LENGTH, Task
from .contradiction import GIVEN, NOT_GIVEN, OF_ANSWERS, Contradiction, one_of, other_than

_MAX_BATCH = 65_536
_MAX_SAMPLES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Evaluation between the steps of a training run."""

    eval_batch_size: Annotated[
        int | None,
        Interval(ge=1, le=_MAX_BATCH),
        Described(
            "Evaluation batch size",
            "Samples per evaluation batch, between training steps. Hugging Face's Trainer uses 8 "
            "unless told otherwise.",
            Group.PHASES,
            unit="samples",
            empty="evaluation is left out",
            chip="evaluation batch {:,}",
        ),
    ] = None
    eval_samples: Annotated[
        int | None,
        Interval(ge=1, le=_MAX_SAMPLES),
        Described(
            "Evaluation samples for metrics",
            "Size of the evaluation set, if you pass compute_metrics: the Trainer then keeps the "
            "logits of all of it on the GPU.",
            Group.PHASES,
            unit="samples",
            empty="only the loss is kept",
            chip="metrics over {:,} samples",
        ),
    ] = None
    eval_accumulation_steps: Annotated[
        int | None,
        Interval(ge=1, le=_MAX_SAMPLES),
        Described(
            "Evaluation accumulation steps",
            "After this many batches the Trainer moves the kept logits to the host.",
            Group.PHASES,
            unit="batches",
            empty="logits stay on the GPU until the end",
            chip="evaluation accumulation {:,}",
        ),
    ] = None
    eval_new_tokens: Annotated[
        int | None,
        Interval(ge=1, le=MAX_SEQUENCE_LENGTH),
        Described(
            "Tokens generated in evaluation",
            "New tokens for each sample, if evaluation generates (predict_with_generate of the "
            "Seq2SeqTrainer) to compute metrics. A language model writes them behind the whole "
            "sample.",
            Group.PHASES,
            unit="tokens",
            empty="evaluation generates nothing",
            metavar="TOKENS",
        ),
    ] = None
    eval_num_beams: Annotated[
        int,
        Interval(ge=1, le=64),
        Described(
            "Beams in evaluation",
            "How many continuations of each sample are followed at once, where evaluation "
            "generates (generation_num_beams).",
            Group.PHASES,
            unit="beams",
            chip="{:,} beams in evaluation",
        ),
    ] = 1


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
"""Other tasks that generate in evaluation read prompts of another form than in training."""


def _is_too_long(workload: Any) -> bool:
    """Whether a decoder has no place for what it writes behind what it reads."""
    limits = workload.preset.limits("sequence_length", workload.task)
    whole = (workload.sequence_length or 0) + (workload.eval_new_tokens or 0)
    return limits is not None and whole > limits.largest


RULES = (
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
