"""Evaluation between the steps of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from ..fields import Described, Group, Interval

_MOST_BATCH = 65_536
_MOST_SAMPLES = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Phases:
    """Evaluation between the steps of a training run."""

    eval_batch_size: Annotated[
        int | None,
        Interval(ge=1, le=_MOST_BATCH),
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
        Interval(ge=1, le=_MOST_SAMPLES),
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
        Interval(ge=1, le=_MOST_SAMPLES),
        Described(
            "Evaluation accumulation steps",
            "After this many batches the Trainer moves the kept logits to the host.",
            Group.PHASES,
            unit="batches",
            empty="logits stay on the GPU until the end",
        ),
    ] = None
