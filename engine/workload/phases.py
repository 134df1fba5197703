"""Evaluation between the steps of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..fields import Described, Group, Interval
from ..models.tasks import MAX_SEQUENCE_LENGTH

_MAX_BATCH = 65_536
_MAX_SAMPLES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Phases:
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
        ),
    ] = 1
